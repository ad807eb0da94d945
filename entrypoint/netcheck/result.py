"""The result of a network check, as frozen values and as the JSON that programs read."""

from __future__ import annotations

from typing import Any

from entrypoint.model import node_name
from entrypoint.values import dataclass


@dataclass(frozen=True)
class Measured:
    """All-reduces of one pair of nodes, `a` < `b`. The figures are 0 if `error` says why they could
    not measure."""

    a: int
    b: int
    latency_ms: float = 0.0  # median of those of 8 bytes
    worst_ms: float = 0.0  # the slowest of them
    gbps: float = 0.0  # bus bandwidth of large ones, Gbit/s
    error: str = ""


@dataclass(frozen=True)
class Together:
    """All-reduces of all nodes together, as Measured has them; `error` if there are none."""

    latency_ms: float = 0.0
    gbps: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class NetcheckResult:
    """One network check of a job."""

    nodes: tuple[tuple[str, str], ...]  # label and host, in rank order
    pairs: tuple[Measured, ...]
    together: Together
    backend: str = ""  # that all used
    left_out: int = 0  # pairs that were not measured
    why_left_out: str = ""
    absent: tuple[int, ...] = ()  # nodes of an elastic job that were not there, or have left

    @property
    def present(self) -> list[int]:
        """The nodes that have measured, by rank."""
        return sorted(set(range(len(self.nodes))) - set(self.absent))

    def name(self, node: int) -> str:
        """Return what messages call a node."""
        return node_name(*self.nodes[node])


def as_json(result: NetcheckResult, findings: tuple[Any, ...]) -> dict[str, Any]:
    """Return what `--json` prints; units are in the names."""
    return {
        "nodes": [
            {"rank": rank, "label": label, "host": host}
            for rank, (label, host) in enumerate(result.nodes)
        ],
        "backend": result.backend,
        "pairs": [dict(vars(pair)) for pair in result.pairs],
        "left_out": {"pairs": result.left_out, "why": result.why_left_out},
        "together": dict(vars(result.together)),
        "absent": [result.nodes[node][0] for node in result.absent],
        "findings": [
            {
                "nodes": [result.nodes[node][0] for node in finding.nodes],
                "causes": list(finding.causes),
                "fails": finding.fails,
                "text": finding.text,
            }
            for finding in findings
        ],
    }
