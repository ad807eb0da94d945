"""Prints a network check as a table: a line for each node, the worst first, then the findings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high, median_low

from entrypoint.netcheck.analysis import NetworkFinding, usual
from entrypoint.netcheck.result import NetcheckResult
from entrypoint.text import columns, figure

_HEAD = ("node", "latency ms", "worst ms", "Gbit/s", "peers", "")
_PAIRS = 8  # findings about pairs that are shown


def text(result: NetcheckResult, findings: Sequence[NetworkFinding]) -> str:
    """Return the table and the findings; a node's figures are medians over its peers."""
    marks = {
        finding.nodes[0]: "FAIL" if finding.fails else "SLOW"
        for finding in reversed(findings)  # those that fail come first, and win
        if len(finding.nodes) == 1
    }
    rows = sorted(_row(result, node, marks.get(node, "ok")) for node in result.present)
    lines = columns([_HEAD, *(row for _, row in rows)], range(1, len(_HEAD) - 1))
    latency, rate = usual(result)
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
    pairs = [pair for pair in result.pairs if node in (pair.a, pair.b)]
    measured = [pair for pair in pairs if not pair.error]
    peers = f"{len(measured)} of {len(pairs)}"
    rate, figures = 0.0, ("-", "-", "-")
    if measured:
        latency = median_low(pair.latency_ms for pair in measured)
        worst = max(pair.worst_ms for pair in measured)
        rate = median_high(pair.gbps for pair in measured)
        figures = (f"{latency:.3f}", f"{worst:.3f}", figure(rate))
    return (mark == "ok", mark == "SLOW", rate, node), (result.name(node), *figures, peers, mark)
