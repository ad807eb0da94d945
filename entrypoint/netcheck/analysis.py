"""Finds what is slow: a node, if it is slow with most of its peers; else a pair of nodes.

A pair is slow if its round trip takes over three times as long as usual in this job (and half a
millisecond more), or its bandwidth is under a third. The usual value is the median of the nodes'
own medians: in a job of four, one slow node is in half of all pairs and would distort their median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_high, median_low

from entrypoint.netcheck.result import NetcheckResult
from entrypoint.spec.jobspec import NetcheckSpec
from entrypoint.text import figure, some
from entrypoint.values import dataclass

_TIMES = 3.0
_LEAST_MS = 0.5  # round trips that differ by less are alike: a busy processor causes as much
_SHOWN = 8  # findings in a line

Cell = tuple[int, int]  # from one node to another
Group = tuple[str, int]  # a cause, and the node: ("send", 2)

CAUSES = {
    "unreachable": "cannot be reached",
    "latency": "round trips take {} ms",
    "send": "sends {} Gbit/s",
    "receive": "receives {} Gbit/s",
}


@dataclass(frozen=True)
class NetworkFinding:
    """A finding about a node, two that are slow only with each other, or all nodes."""

    nodes: tuple[int, ...]  # empty for all of them
    causes: tuple[str, ...]  # of CAUSES
    fails: bool  # it cannot be reached, or exceeds a limit: the job ends
    text: str


@dataclass(frozen=True)
class _View:
    """One measured quantity: its cells, the groups of cells that belong to one node, and which cell
    is bad."""

    cells: Mapping[Cell, float]
    groups: tuple[str, ...]  # causes: of a node's row, or for "receive" of its column
    is_bad: Callable[[float], bool]
    usual: str  # the usual value as text
    fails: bool


def usual(result: NetcheckResult) -> tuple[float, float]:
    """Return the usual milliseconds of a round trip and Gbit/s in one direction; 0 if none was
    measured."""
    latency, bandwidth = _cells(result)
    trips = [median_low(row) for row in _rows(latency)]
    rates = [median_high(row) for row in _rows(bandwidth)]
    return (median_low(trips) if trips else 0.0), (median_high(rates) if rates else 0.0)


def findings(result: NetcheckResult, limits: NetcheckSpec) -> tuple[NetworkFinding, ...]:
    """Return the findings that end the job, then the others; of each, nodes before pairs."""
    latency, bandwidth = _cells(result)
    broken = {
        cell: 1.0
        for pair in result.pairs
        if pair.error
        for cell in ((pair.a, pair.b), (pair.b, pair.a))
    }
    whole = {**dict.fromkeys(latency, 0.0), **broken}
    trip, rate = usual(result)
    many = max(_TIMES * trip, trip + _LEAST_MS)
    stops = limits.action == "stop"
    most, least = limits.max_latency_ms, limits.min_bandwidth_gbps
    both, directions = ("latency",), ("send", "receive")
    views = [
        _View(whole, ("unreachable",), bool, "", True),
        _View(latency, both, lambda ms: 0 < most < ms, f"limit {most:g}", True),
        _View(bandwidth, directions, lambda gbps: gbps < least, f"limit {least:g}", True),
        _View(latency, both, lambda ms: ms > many, f"usual {figure(trip)}", stops),
        _View(
            bandwidth,
            directions,
            lambda gbps: gbps < rate / _TIMES,
            f"usual {figure(rate)}",
            stops,
        ),
    ]
    causes_of: dict[tuple[int, ...], list[tuple[str, str, bool]]] = {}
    for view in views:
        for nodes, cause, values in _blame(view):
            causes = causes_of.setdefault(nodes, [])
            if cause not in [earlier for earlier, _, _ in causes]:
                causes.append((cause, _describe(cause, values, view.usual), view.fails))
    entries = [_finding(result, nodes, causes) for nodes, causes in causes_of.items()]
    return tuple(
        sorted(entries, key=lambda entry: (not entry.fails, len(entry.nodes), entry.nodes))
    )


def summary(findings: Iterable[NetworkFinding]) -> str:
    """Return the findings that end the job, in a line; "" if none does."""
    return some((finding.text for finding in findings if finding.fails), _SHOWN, "; ")


def _cells(result: NetcheckResult) -> tuple[dict[Cell, float], dict[Cell, float]]:
    """Return the round trips and bandwidths of all measured pairs, by the two nodes."""
    latency, bandwidth = {}, {}
    for pair in result.pairs:
        if not pair.error:
            forth, back = (pair.a, pair.b), (pair.b, pair.a)
            latency[forth] = latency[back] = pair.latency_ms
            bandwidth[forth], bandwidth[back] = pair.there_gbps, pair.back_gbps
    return latency, bandwidth


def _rows(cells: Mapping[Cell, float]) -> list[list[float]]:
    rows: dict[int, list[float]] = {}
    for (source, _), value in cells.items():
        rows.setdefault(source, []).append(value)
    return list(rows.values())


def _groups(view: _View, left: Iterable[Cell]) -> dict[Group, list[Cell]]:
    """Return the cells that each cause at each node would explain."""
    groups: dict[Group, list[Cell]] = {}
    for cell in left:
        for cause in view.groups:
            node = cell[0] if cause != "receive" else cell[1]
            groups.setdefault((cause, node), []).append(cell)
    return groups


def _worst(
    groups: Mapping[Group, Sequence[Cell]], bad: Mapping[Group, Sequence[Cell]]
) -> Group | None:
    """Return the group with the largest share of bad cells, of those that count; None if none."""
    blamed = [
        group
        for group, cells in bad.items()
        if len(cells) >= 2 and 2 * len(cells) > len(groups[group])
    ]
    return max(
        blamed,
        key=lambda group: (len(bad[group]) / len(groups[group]), len(bad[group]), -group[1]),
        default=None,
    )


def _blame(view: _View) -> Iterable[tuple[tuple[int, ...], str, list[float]]]:
    """Yield the nodes that explain the bad cells: the node with most of them, then of the rest,
    until pairs remain.

    A node counts if at least two, and more than half, of its cells are bad. No node does if all
    cells are bad.
    """
    left = dict(view.cells)
    # no node explains it better than another
    if len(left) > 2 and all(map(view.is_bad, left.values())):
        yield (), view.groups[0], list(left.values())
        return
    while True:
        groups = _groups(view, left)
        bad = {
            group: [cell for cell in cells if view.is_bad(left[cell])]
            for group, cells in groups.items()
        }
        worst = _worst(groups, bad)
        if worst is None:
            break
        cause, node = worst
        yield (node,), cause, [left[cell] for cell in bad[worst]]
        explained = (
            groups[worst]
            if cause in ("send", "receive")
            else [cell for cell in left if node in cell]
        )
        for cell in explained:
            del left[cell]
    for cell, value in left.items():
        if view.is_bad(value) and (view.groups[0] == "send" or cell[0] < cell[1]):
            cause = view.groups[0]
            yield (
                (min(cell), max(cell)),
                cause if cause != "send" or cell[0] < cell[1] else "receive",
                [value],
            )


def _describe(cause: str, values: list[float], usual: str) -> str:
    middle = median_low(values) if cause == "latency" else median_high(values)
    text = CAUSES[cause].format(figure(middle))
    return f"{text} ({usual})" if usual else text


def _finding(
    result: NetcheckResult, nodes: tuple[int, ...], causes: list[tuple[str, str, bool]]
) -> NetworkFinding:
    names, order = [result.name(node) for node in nodes], list(CAUSES)
    causes = sorted(causes, key=lambda cause: order.index(cause[0]))
    fails, detail = any(cause[2] for cause in causes), ", ".join(cause[1] for cause in causes)
    if not names:
        errors = [pair.error for pair in result.pairs if pair.error]
        summary = "no node can reach another" if errors else "the whole network is slow"
        detail = max(errors, key=errors.count) if errors else detail
    elif len(names) == 1:
        summary = f"{names[0]} is slow"
        if causes[0][0] == "unreachable":
            summary, detail = f"{names[0]} cannot be reached", _why(result, nodes[0])
    else:
        summary = f"{names[0]} and {names[1]} are slow with each other"
        errors = [pair.error for pair in result.pairs if (pair.a, pair.b) == nodes and pair.error]
        if errors:
            summary, detail = f"{names[0]} and {names[1]} cannot reach each other", errors[0]
        # The first node of a pair is the one that sends and receives.
        detail = detail.replace("sends", f"to {result.nodes[nodes[1]][0]}")
        detail = detail.replace("receives", f"to {result.nodes[nodes[0]][0]}")
    return NetworkFinding(nodes, tuple(cause[0] for cause in causes), fails, f"{summary}: {detail}")


def _why(result: NetcheckResult, node: int) -> str:
    errors = [pair.error for pair in result.pairs if node in (pair.a, pair.b) and pair.error]
    return f"{max(errors, key=errors.count)} (with {len(errors)} of its peers)"
