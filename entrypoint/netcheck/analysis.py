"""What is slow: a node, where most of what it does with its peers is slow; else a pair of nodes.

A pair is slow where its round trip takes over three times as long as is usual in this job (and half a millisecond
more), or its bandwidth is under a third. What is usual is the median of the nodes' own medians: in a job of four, one
slow node is in half of all pairs, and would spoil their median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median_high, median_low

from entrypoint.netcheck.result import Limits, NetcheckResult
from entrypoint.values import dataclass

_TIMES = 3.0
_LEAST_MS = 0.5  # round trips that differ by less are alike: a busy processor makes as much
_SHOWN = 8  # pairs in a line

Cell = tuple[int, int]  # from one node to another
Group = tuple[str, int]  # what a node does, and which: ("send", 2)

WORDS = {
    "unreachable": "cannot be reached",
    "latency": "round trips take {} ms",
    "send": "sends {} Gbit/s",
    "receive": "receives {} Gbit/s",
}


@dataclass(frozen=True)
class NetworkFinding:
    """A node, or two that are slow with each other alone, or all nodes."""

    nodes: tuple[int, ...]  # none where it is all of them
    causes: tuple[str, ...]  # of WORDS, or "invalid"
    fails: bool  # it cannot be reached, or is beyond a limit: the job ends
    text: str


@dataclass(frozen=True)
class _View:
    """One thing that is measured: its cells, the groups of cells that belong to one node, and which cell is bad."""

    cells: Mapping[Cell, float]
    groups: tuple[str, ...]  # what a node's row means, or with "receive" its column
    is_bad: Callable[[float], bool]
    usual: str  # the usual value in words
    fails: bool


def usual(result: NetcheckResult) -> tuple[float, float]:
    """Milliseconds of a round trip, and Gbit/s in one direction, that are usual in this job; 0 where none was seen."""
    latency, bandwidth = _cells(result)
    trips = [median_low(row) for row in _rows(latency)]
    rates = [median_high(row) for row in _rows(bandwidth)]
    return (median_low(trips) if trips else 0.0), (median_high(rates) if rates else 0.0)


def findings(result: NetcheckResult, limits: Limits) -> tuple[NetworkFinding, ...]:
    """Nodes first, then pairs; what ends the job before what only is slow."""
    latency, bandwidth = _cells(result)
    broken = {cell: 1.0 for pair in result.pairs if pair.error for cell in ((pair.a, pair.b), (pair.b, pair.a))}
    whole = {**dict.fromkeys(latency, 0.0), **broken}
    trip, rate = usual(result)
    most, least = limits.max_latency_ms, limits.min_bandwidth_gbps
    both, directions = ("latency",), ("send", "receive")
    views = [
        _View(whole, ("unreachable",), bool, "", True),
        _View(latency, both, lambda ms: 0 < most < ms, f"limit {most:g}", True),
        _View(bandwidth, directions, lambda gbps: gbps < least, f"limit {least:g}", True),
        _View(latency, both, lambda ms: ms > max(_TIMES * trip, trip + _LEAST_MS), f"usual {short(trip)}", limits.stop),
        _View(bandwidth, directions, lambda gbps: gbps < rate / _TIMES, f"usual {short(rate)}", limits.stop),
    ]
    said: dict[tuple[int, ...], list[tuple[str, str, bool]]] = {}
    for view in views:
        for nodes, cause, values in _blame(view):
            known = said.setdefault(nodes, [])
            if cause not in [each[0] for each in known]:
                known.append((cause, _words(cause, values, view.usual), view.fails))
    found = [
        NetworkFinding((node,), ("invalid",), True, f"{result.name(node)} sent an invalid message: {why}")
        for node, why in result.invalid
    ]
    found += [_finding(result, nodes, causes) for nodes, causes in said.items()]
    return tuple(sorted(found, key=lambda each: (not each.fails, len(each.nodes), each.nodes)))


def summary(found: Iterable[NetworkFinding]) -> str:
    """The findings that end the job, in a line; "" where none does."""
    failed = [each.text for each in found if each.fails]
    more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return "; ".join(failed[:_SHOWN]) + more


def _cells(result: NetcheckResult) -> tuple[dict[Cell, float], dict[Cell, float]]:
    """Round trips and bandwidths of all pairs that were measured: the value from a node to another."""
    latency, bandwidth = {}, {}
    for pair in result.pairs:
        if not pair.error:
            there, back = (pair.a, pair.b), (pair.b, pair.a)
            latency[there] = latency[back] = pair.latency_ms
            bandwidth[there], bandwidth[back] = pair.there_gbps, pair.back_gbps
    return latency, bandwidth


def _rows(cells: Mapping[Cell, float]) -> list[list[float]]:
    rows: dict[int, list[float]] = {}
    for (here, _), value in cells.items():
        rows.setdefault(here, []).append(value)
    return list(rows.values())


def _blame(view: _View) -> Iterable[tuple[tuple[int, ...], str, list[float]]]:
    """Who explains the bad cells: the node with most of them, then of those that are left, until pairs are left.

    A node counts where at least two, and more than half, of its cells are bad. Nobody does where all cells are.
    """
    left = dict(view.cells)
    if len(left) > 2 and all(map(view.is_bad, left.values())):  # nobody is to blame more than another
        yield from (((), what, list(left.values())) for what in view.groups[:1])
        return
    while True:
        groups: dict[Group, list[Cell]] = {}
        for cell in left:
            for what in view.groups:
                groups.setdefault((what, cell[0] if what != "receive" else cell[1]), []).append(cell)
        bad = {group: [cell for cell in cells if view.is_bad(left[cell])] for group, cells in groups.items()}
        blamed = [group for group, cells in bad.items() if len(cells) >= 2 and 2 * len(cells) > len(groups[group])]
        if not blamed:
            break
        worst = max(blamed, key=lambda group: (len(bad[group]) / len(groups[group]), len(bad[group]), -group[1]))
        what, node = worst
        yield (node,), what, [left[cell] for cell in bad[worst]]
        gone = groups[worst] if what in ("send", "receive") else [cell for cell in left if node in cell]
        for cell in gone:
            del left[cell]
    for cell, value in left.items():
        if view.is_bad(value) and (view.groups[0] == "send" or cell[0] < cell[1]):
            what = view.groups[0]
            yield (min(cell), max(cell)), what if what != "send" or cell[0] < cell[1] else "receive", [value]


def _words(cause: str, values: list[float], usual: str) -> str:
    middle = median_low(values) if cause == "latency" else median_high(values)
    words = WORDS[cause].format(short(middle))
    return f"{words} ({usual})" if usual else words


def _finding(result: NetcheckResult, nodes: tuple[int, ...], causes: list[tuple[str, str, bool]]) -> NetworkFinding:
    names, order = [result.name(node) for node in nodes], list(WORDS)
    causes = sorted(causes, key=lambda cause: order.index(cause[0]))
    fails, words = any(cause[2] for cause in causes), ", ".join(cause[1] for cause in causes)
    if not names:
        errors = [pair.error for pair in result.pairs if pair.error]
        what = "no node can reach another" if errors else "the whole network is slow"
        words = max(errors, key=errors.count) if errors else words
    elif len(names) == 1:
        what = f"{names[0]} is slow"
        if causes[0][0] == "unreachable":
            what, words = f"{names[0]} cannot be reached", _why(result, nodes[0])
    else:
        what = f"{names[0]} and {names[1]} are slow with each other"
        errors = [pair.error for pair in result.pairs if (pair.a, pair.b) == nodes and pair.error]
        if errors:
            what, words = f"{names[0]} and {names[1]} cannot reach each other", errors[0]
        # Of a pair it is the first that sends and receives.
        words = words.replace("sends", f"to {result.nodes[nodes[1]][0]}")
        words = words.replace("receives", f"to {result.nodes[nodes[0]][0]}")
    return NetworkFinding(nodes, tuple(cause[0] for cause in causes), fails, f"{what}: {words}")


def _why(result: NetcheckResult, node: int) -> str:
    errors = [pair.error for pair in result.pairs if node in (pair.a, pair.b) and pair.error]
    return f"{max(errors, key=errors.count)} (with {len(errors)} of its peers)"


def short(value: float) -> str:
    """Three digits that mean something: 0.0712, 3.41, 201."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
