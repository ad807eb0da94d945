"""A network check for people: a line for each node, the worst first, then what was found."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high, median_low

from entrypoint.netcheck.analysis import NetworkFinding, short, usual
from entrypoint.netcheck.result import NetcheckResult

_HEAD = ("node", "round trip ms", "worst ms", "sends Gbit/s", "receives Gbit/s", "peers", "")
_PAIRS = 8  # findings about pairs that are shown


def text(result: NetcheckResult, found: Sequence[NetworkFinding]) -> str:
    """The table, the findings and the all-reduce sweep; figures are medians over a node's peers."""
    rows = sorted((_row(result, found, node) for node in range(len(result.nodes))), key=lambda row: row[0])
    lines = _aligned([_HEAD, *(row[1] for row in rows)])
    trip, rate = usual(result)
    lines += ["", f"usual: {trip:.3g} ms a round trip, {rate:.3g} Gbit/s in one TCP stream"]
    if result.left_out:
        lines.append(f"{result.left_out} pairs were not measured: {result.why_left_out}")
    nodes = [each for each in found if len(each.nodes) < 2]
    pairs = [each for each in found if len(each.nodes) == 2]
    lines += [each.text for each in (*nodes, *pairs[:_PAIRS])]
    if len(pairs) > _PAIRS:
        lines.append(f"and {len(pairs) - _PAIRS} more pairs; netcheck.json has all")
    if not found:
        lines.append("no node is slow as against the others")
    lines += [f"turned away, without the job's token: {stranger}" for stranger in result.strangers]
    lines += ["", *_sweep(result)]
    return "\n".join(lines) + "\n"


def _row(
    result: NetcheckResult, found: Sequence[NetworkFinding], node: int
) -> tuple[tuple[bool, bool, float, float, int], tuple[str, ...]]:
    """A node's line, after what it is sorted by."""
    pairs = [pair for pair in result.pairs if node in (pair.a, pair.b)]
    fine = [pair for pair in pairs if not pair.error]
    bad = [each for each in found if each.nodes == (node,)]
    mark = ("FAIL" if any(each.fails for each in bad) else "SLOW") if bad else "ok"
    peers = f"{len(fine)} of {len(pairs)}"
    name = result.name(node)
    if not fine:
        return (mark == "ok", mark == "SLOW", 0.0, 0.0, node), (name, "-", "-", "-", "-", peers, mark)
    trip, worst = median_low(pair.latency_ms for pair in fine), max(pair.worst_ms for pair in fine)
    sends = median_high(pair.there_gbps if pair.a == node else pair.back_gbps for pair in fine)
    receives = median_high(pair.back_gbps if pair.a == node else pair.there_gbps for pair in fine)
    row = (name, f"{trip:.3f}", f"{worst:.3f}", f"{sends:.3g}", f"{receives:.3g}", peers, mark)
    return (mark == "ok", mark == "SLOW", min(sends, receives), -trip, node), row


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            word.ljust(width) if at in (0, last) else word.rjust(width)
            for at, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _sweep(result: NetcheckResult) -> list[str]:
    if not result.reduced:
        return [f"all-reduce: not measured, {result.no_sweep}"]
    head = [f"all-reduce over {len(result.nodes)} nodes, {result.backend}, one process each"]
    rows = [
        ("size", "ms", "bus MB/s"),
        *((size(each.size), f"{each.seconds * 1e3:.3f}", short(each.bus_gbs * 1e3)) for each in result.reduced),
    ]
    return [*head, *_aligned(rows), *([result.no_sweep] if result.no_sweep else [])]


def size(count: int) -> str:
    """Such as `1 KiB`, `4 MiB`."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
