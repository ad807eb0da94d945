"""STUB of the lead for tests until the helper's branch is merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from entrypoint.cause import Cause
from entrypoint.causes.evidence import Evidence


def judge(
    lines: Sequence[str],
    status: int | None = None,
    signal: str = "",
    evidence: Evidence | None = None,
) -> Cause:
    text = "\n".join(lines)
    if "ECC" in text:
        return Cause(
            "gpu-ecc",
            "root",
            "device",
            "elsewhere",
            "high",
            "{device} reported an uncorrectable ECC error",
        )
    if "reset by peer" in text:
        return Cause(
            "peer-lost",
            "cascade",
            "peer",
            "unknown",
            "high",
            "the connection to another rank was lost",
        )
    return Cause("user-code", "root", "program", "no", "low", "the program failed")


def first_cause(causes: Sequence[Cause]) -> Cause | None:
    order = ("root", "unclear", "cascade")
    return min(causes, key=lambda c: (order.index(c.role), c.certainty != "high"), default=None)


def phrase(cause: Cause, node: str = "", rank: str = "") -> str:
    device = cause.device or "a device"
    says = cause.says.replace("{device}", f"{device} of {cause.node}")
    return f"{says} ({cause.blame}; retry {cause.retry})"


def as_json(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.slug,
        "text": phrase(cause),
        "role": cause.role,
        "blame": cause.blame,
        "retry": cause.retry,
        "certainty": cause.certainty,
        "lines": list(cause.lines),
    }
