"""Prints a network check as a table: a line for each node, the worst first, then the findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median_high, median_low

from entrypoint.netcheck.analysis import NetworkFinding, usual
from entrypoint.netcheck.result import Measured, NetcheckResult
from entrypoint.text import columns, figure, size

_HEAD = ("node", "round trip ms", "worst ms", "sends Gbit/s", "receives Gbit/s", "peers", "")
_PAIRS = 8  # findings about pairs that are shown


def text(result: NetcheckResult, findings: Sequence[NetworkFinding]) -> str:
    """Return the table, the findings and the all-reduce sweep; figures are medians over a node's
    peers."""
    lines = columns([_HEAD, *_rows(result, findings)], range(1, len(_HEAD) - 1))
    trip, rate = usual(result)
    lines += ["", f"usual: {figure(trip)} ms a round trip, {figure(rate)} Gbit/s in one TCP stream"]
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
    lines += [f"rejected, without the job's token: {address}" for address in result.rejected]
    lines += ["", *_sweep(result)]
    return "\n".join(lines) + "\n"


def _rows(result: NetcheckResult, findings: Sequence[NetworkFinding]) -> list[tuple[str, ...]]:
    """Return the lines of all nodes, the worst first."""
    pairs_of: defaultdict[int, list[Measured]] = defaultdict(list)
    for pair in result.pairs:
        pairs_of[pair.a].append(pair)
        pairs_of[pair.b].append(pair)
    marks: dict[int, str] = {}
    for finding in findings:
        if len(finding.nodes) == 1:
            (node,) = finding.nodes
            marks[node] = "FAIL" if finding.fails or marks.get(node) == "FAIL" else "SLOW"
    entries = (
        _row(result.name(node), node, pairs_of[node], marks.get(node, "ok"))
        for node in result.present
    )
    return [row for _, row in sorted(entries, key=lambda entry: entry[0])]


def _row(
    name: str, node: int, pairs: Sequence[Measured], mark: str
) -> tuple[tuple[bool, bool, float, float, int], tuple[str, ...]]:
    """Return a node's sort key and its line, of the pairs that it belongs to."""
    measured = [pair for pair in pairs if not pair.error]
    peers = f"{len(measured)} of {len(pairs)}"
    if not measured:
        return (mark == "ok", mark == "SLOW", 0.0, 0.0, node), (
            name,
            "-",
            "-",
            "-",
            "-",
            peers,
            mark,
        )
    trip = median_low(pair.latency_ms for pair in measured)
    worst = max(pair.worst_ms for pair in measured)
    sends = median_high(pair.there_gbps if pair.a == node else pair.back_gbps for pair in measured)
    receives = median_high(
        pair.back_gbps if pair.a == node else pair.there_gbps for pair in measured
    )
    row = (name, f"{trip:.3f}", f"{worst:.3f}", figure(sends), figure(receives), peers, mark)
    return (mark == "ok", mark == "SLOW", min(sends, receives), -trip, node), row


def _sweep(result: NetcheckResult) -> list[str]:
    if not result.reduced:
        return [f"all-reduce: not measured, {result.no_sweep}"]
    head = [f"all-reduce over {len(result.present)} nodes, {result.backend}, one process each"]
    rows = [
        ("size", "ms", "bus MB/s"),
        *(
            (size(row.size), f"{row.seconds * 1e3:.3f}", figure(row.bus_gbs * 1e3))
            for row in result.reduced
        ),
    ]
    return [*head, *columns(rows, (1, 2)), *([result.no_sweep] if result.no_sweep else [])]
