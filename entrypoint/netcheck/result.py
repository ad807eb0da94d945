"""The result of a network check, as frozen values and as the JSON that programs read."""

from __future__ import annotations

from typing import Any

from entrypoint.model import node_name
from entrypoint.values import dataclass


@dataclass(frozen=True)
class Measured:
    """One pair of nodes, `a` < `b`. The figures are 0 if `error` says why they could not
    measure."""

    a: int
    b: int
    latency_ms: float = 0.0  # median of small round trips
    worst_ms: float = 0.0  # the slowest of them
    there_gbps: float = 0.0  # Gbit/s from a to b, one TCP stream
    back_gbps: float = 0.0  # from b to a
    error: str = ""


@dataclass(frozen=True)
class Reduced:
    """The all-reduce of one size: seconds, and bus bandwidth in GB/s."""

    size: int  # bytes
    seconds: float
    bus_gbs: float


@dataclass(frozen=True)
class NetcheckResult:
    """One network check of a job."""

    nodes: tuple[tuple[str, str], ...]  # label and host, in rank order
    pairs: tuple[Measured, ...]
    left_out: int = 0  # pairs that were not measured
    why_left_out: str = ""
    backend: str = ""  # of the all-reduce sweep; "" if there was none
    reduced: tuple[Reduced, ...] = ()
    no_sweep: str = ""  # why there was none, or why it ended early
    # addresses that connected without the job's token, and to which node
    rejected: tuple[str, ...] = ()
    absent: tuple[int, ...] = ()  # nodes of an elastic job that were not there, or have left

    @property
    def present(self) -> list[int]:
        """The nodes that have measured, by rank."""
        return sorted(set(range(len(self.nodes))) - set(self.absent))

    def name(self, node: int) -> str:
        """Return what messages call a node."""
        return node_name(*self.nodes[node])


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Return the GB/s of each rank's link in an all-reduce, to be compared with the hardware's
    figure.

    Source: nccl-tests, doc/PERFORMANCE.md, "AllReduce": busbw = algbw * 2 * (n - 1) / n.
    """
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9 if seconds > 0 else 0.0


def as_json(result: NetcheckResult, findings: tuple[Any, ...]) -> dict[str, Any]:
    """Return what `--json` prints; units are in the names."""
    return {
        "nodes": [
            {"rank": rank, "label": label, "host": host}
            for rank, (label, host) in enumerate(result.nodes)
        ],
        "pairs": [dict(vars(pair)) for pair in result.pairs],
        "left_out": {"pairs": result.left_out, "why": result.why_left_out},
        "all_reduce": {
            "backend": result.backend,
            "ranks": len(result.present) if result.backend else 0,
            "sizes": [
                {"bytes": row.size, "seconds": row.seconds, "bus_gbytes_per_s": row.bus_gbs}
                for row in result.reduced
            ],
            "why_not": result.no_sweep,
        },
        "strangers": list(result.rejected),
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
