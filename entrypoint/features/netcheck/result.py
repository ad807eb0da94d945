"""The result of a network check: as frozen values, as JSON for programs, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high, median_low
from typing import Any

from entrypoint.base.model import node_name
from entrypoint.base.text import columns, figure
from entrypoint.base.values import frozen

_HEAD = ("node", "latency ms", "worst ms", "Gbit/s", "peers", "")
_PAIRS = 8  # findings about pairs that are shown


@frozen
class Measured:
    """All-reduces of one pair of nodes, `a` < `b`. The figures are 0 if `error` says why they could
    not measure."""

    a: int
    b: int
    latency_ms: float = 0.0  # median of those of 8 bytes
    worst_ms: float = 0.0  # the slowest of them
    gbps: float = 0.0  # bus bandwidth of large ones, Gbit/s
    error: str = ""


@frozen
class Together:
    """All-reduces of all nodes together, as Measured has them; `error` if there are none."""

    latency_ms: float = 0.0
    gbps: float = 0.0
    error: str = ""


@frozen
class NetcheckResult:
    """One network check of a job."""

    nodes: tuple[tuple[str, str], ...]  # label and host, in rank order
    pairs: tuple[Measured, ...]
    together: Together
    backend: str  # that all used
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

    def measured(self, node: int) -> list[Measured]:
        """Return the pairs of this node that were measured."""
        return [pair for pair in self.pairs if node in (pair.a, pair.b) and not pair.error]

    @property
    def usual(self) -> tuple[float, float]:
        """The usual milliseconds of a small all-reduce and the usual Gbit/s; 0 if none was
        measured."""
        of_node = list(filter(None, map(self.measured, self.present)))
        if not of_node:
            return 0.0, 0.0
        latencies = [median_low(pair.latency_ms for pair in pairs) for pairs in of_node]
        rates = [median_high(pair.gbps for pair in pairs) for pairs in of_node]
        return median_low(latencies), median_high(rates)


def as_json(result: NetcheckResult, findings: Sequence[Any]) -> dict[str, Any]:
    """Return what `--json` prints; units are in the names."""
    return {
        "nodes": [
            {"rank": rank, "label": label, "host": host}
            for rank, (label, host) in enumerate(result.nodes)
        ],
        "backend": result.backend,
        "pairs": [vars(pair) for pair in result.pairs],
        "left_out": {"pairs": result.left_out, "why": result.why_left_out},
        "together": vars(result.together),
        "absent": [result.nodes[node][0] for node in result.absent],
        "findings": [
            {**vars(finding), "nodes": [result.nodes[node][0] for node in finding.nodes]}
            for finding in findings
        ],
    }


def text(result: NetcheckResult, findings: Sequence[Any]) -> str:
    """Return the table, the worst node first, and the findings; a node's figures are medians over
    its peers."""
    marks = {
        finding.nodes[0]: "FAIL" if finding.fails else "SLOW"
        for finding in reversed(findings)  # those that fail come first, and win
        if len(finding.nodes) == 1
    }
    rows = sorted(_row(result, node, marks.get(node, "ok")) for node in result.present)
    lines = columns([_HEAD, *(row for _, row in rows)], range(1, len(_HEAD) - 1))
    latency, rate = result.usual
    lines += ["", f"usual: {figure(latency)} ms a small all-reduce, {figure(rate)} Gbit/s"]
    if result.left_out:
        lines.append(f"{result.left_out} pairs were not measured: {result.why_left_out}")
    nodes = [finding for finding in findings if len(finding.nodes) < 2]
    pairs = [finding for finding in findings if len(finding.nodes) == 2]
    lines += [finding.text for finding in (*nodes, *pairs[:_PAIRS])]
    if len(pairs) > _PAIRS:
        lines.append(f"and {len(pairs) - _PAIRS} more pairs; netcheck.json has all")
    if not findings:
        lines.append("no node is slow compared with the others")
    if result.absent:
        lines.append(f"not there: {', '.join(map(result.name, result.absent))}")
    together = f"all {len(result.present)} nodes together"
    figures = result.together
    if figures.error:
        lines.append(f"{together}: not measured, {figures.error}")
    else:
        reached = f"{figure(figures.latency_ms)} ms, {figure(figures.gbps)} Gbit/s"
        lines.append(f"{together}: {reached} ({result.backend})")
    return "\n".join(lines) + "\n"


def _row(
    result: NetcheckResult, node: int, mark: str
) -> tuple[tuple[bool, bool, float, int], tuple[str, ...]]:
    """Return a node's sort key and its line, of the pairs that it belongs to."""
    measured = result.measured(node)
    peers = f"{len(measured)} of {sum(node in (pair.a, pair.b) for pair in result.pairs)}"
    rate, figures = 0.0, ("-", "-", "-")
    if measured:
        latency = median_low(pair.latency_ms for pair in measured)
        worst = max(pair.worst_ms for pair in measured)
        rate = median_high(pair.gbps for pair in measured)
        figures = (f"{latency:.3f}", f"{worst:.3f}", figure(rate))
    return (mark == "ok", mark == "SLOW", rate, node), (result.name(node), *figures, peers, mark)
