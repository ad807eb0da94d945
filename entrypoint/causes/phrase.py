"""A cause as part of a message, and which of several is the job's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base.cause import Cause, Retry
from entrypoint.causes.table import KINDS

_ROLES = ("root", "unclear", "cascade")
RETRIES_IN_WORDS: Mapping[Retry, str] = {
    "no": "a retry does not help",
    "same": "retry",
    "elsewhere": "retry elsewhere",
    "unknown": "whether a retry helps is unknown",
}
BLAMES_IN_WORDS = {"peer": "another rank", "unknown": ""}


def phrase(cause: Cause) -> str:
    """Return the cause as one sentence without its full stop: what, where, whose, retry."""
    says = cause.says
    where = " on ".join(filter(None, (cause.rank, cause.node)))
    if "{device}" in says:
        device = cause.device or "an accelerator"
        says = says.replace("{device}", f"{device} of {cause.node}" if cause.node else device)
        where = cause.rank
    if where:
        says += f"{',' if ',' in says else ''} {'in' if cause.rank else 'on'} {where}"
    about = [BLAMES_IN_WORDS.get(cause.blame, cause.blame), RETRIES_IN_WORDS[cause.retry]]
    if cause.certainty == "low":
        about.append("not certain")
    return f"{says} ({'; '.join(filter(None, about))})"


def is_known(cause: Cause) -> bool:
    """Return whether the cause says more than that the program failed."""
    return bool(cause.lines) or cause.slug != "user-code"


def as_json(cause: Cause) -> dict[str, Any]:
    """Return the fields that a result, a JSON line and `explain --json` have for a cause."""
    return {
        "cause": cause.slug,
        "text": phrase(cause),
        "role": cause.role,
        "blame": cause.blame,
        "retry": cause.retry,
        "certainty": cause.certainty,
        "lines": list(cause.lines),
        "fix": cause.fix,
    }


def first_cause(causes: Sequence[Cause]) -> Cause | None:
    """Return the cause of the job, of those of its ranks and nodes in the order of their arrival:
    a root before what is unclear, and that before a consequence; then the most decisive, the
    certain, that of a rank (a launcher repeats what its ranks print), the first. None if there is
    none."""
    return min(causes, key=_order, default=None)


def _order(cause: Cause) -> tuple[int, int, bool, bool]:
    weight = KINDS[cause.slug].weight
    return _ROLES.index(cause.role), weight, cause.certainty == "low", not cause.rank
