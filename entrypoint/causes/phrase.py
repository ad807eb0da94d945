"""A cause as part of a message, and which of several is the job's."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.causes.kinds import KINDS
from entrypoint.model import Cause

_ROLES = ("root", "unclear", "cascade")
_RETRIES = {
    "no": "a retry does not help",
    "same": "retry",
    "elsewhere": "retry elsewhere",
    "unknown": "whether a retry helps is unknown",
}
_BLAMES = {"peer": "another rank", "unknown": ""}


def phrase(cause: Cause, node: str, rank: str = "") -> str:
    """Return the cause as one sentence without its full stop: what, where, whose, retry.

    `node` is the name of the node that it happened on, `rank` the rank's number; "" for what is
    unknown.
    """
    says = cause.says
    rank = f"rank {rank}" if rank else ""
    where = " of ".join(part for part in (rank, node) if part)
    if "{device}" in says:
        device = cause.device or "an accelerator"
        says = says.replace("{device}", f"{device} of {node}" if node else device)
        where = rank
    if where:
        says += f"{',' if ',' in says else ''} {'in' if rank else 'on'} {where}"
    about = [_BLAMES.get(cause.blame, cause.blame), _RETRIES[cause.retry]]
    if cause.certainty == "low":
        about.append("not certain")
    return f"{says} ({'; '.join(part for part in about if part)})"


def first_cause(causes: Sequence[Cause]) -> Cause | None:
    """Return the cause of the job, of those of its ranks and nodes in the order of their arrival:
    a root before what is unclear, and that before a consequence; then the most decisive, the
    certain, the first. None if there is none."""
    return min(causes, key=_order, default=None)


def _order(cause: Cause) -> tuple[int, int, bool]:
    return _ROLES.index(cause.role), KINDS[cause.slug].weight, cause.certainty == "low"
