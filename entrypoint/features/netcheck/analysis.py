"""Finds what is slow: a node, if it is slow with most of its peers; else a pair of nodes.

A pair is slow if its small all-reduce takes over three times as long as usual in this job (and half
a millisecond more), or its bandwidth is under a third. The usual value is the median of the nodes'
own medians: in a job of four, one slow node is in half of all pairs and would distort their median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median_high, median_low

from entrypoint.base.text import figure, some
from entrypoint.base.values import frozen
from entrypoint.features.netcheck.result import NetcheckResult
from entrypoint.spec.jobspec import NetcheckSpec

_TIMES = 3.0
_LEAST_MS = 0.5  # latencies that differ by less are alike: a busy processor causes as much
_SHOWN = 8  # findings in a line

CAUSES = {
    "unreachable": "cannot take part",
    "latency": "a small all-reduce takes {} ms",
    "bandwidth": "an all-reduce reaches {} Gbit/s",
}


@frozen
class NetworkFinding:
    """A finding about a node, two that are slow only with each other, or all nodes."""

    nodes: tuple[int, ...]  # empty for all of them
    causes: tuple[str, ...]  # of CAUSES
    fails: bool  # it cannot be reached, or exceeds a limit: the job ends
    text: str


@frozen
class _View:
    """One judgement of all pairs: the cause that bad ones show, and which are bad."""

    cause: str
    values: Mapping[tuple[int, int], float]
    is_bad: Callable[[float], bool]
    compared: str  # with which value, as text
    fails: bool


def findings(result: NetcheckResult, limits: NetcheckSpec) -> tuple[NetworkFinding, ...]:
    """Return the findings that end the job, then the others; of each, nodes before pairs."""
    causes_of: dict[tuple[int, ...], dict[str, tuple[str, bool]]] = {}
    for view in _views(result, limits):
        for nodes, values in _blame(view):
            middle = median_low(values) if view.cause == "latency" else median_high(values)
            text = CAUSES[view.cause].format(figure(middle))
            described = f"{text} ({view.compared})" if view.compared else text
            causes_of.setdefault(nodes, {}).setdefault(view.cause, (described, view.fails))
    entries = [_finding(result, nodes, causes) for nodes, causes in causes_of.items()]
    return tuple(
        sorted(entries, key=lambda entry: (not entry.fails, len(entry.nodes), entry.nodes))
    )


def summary(findings: Iterable[NetworkFinding]) -> str:
    """Return the findings that end the job, in a line; "" if none does."""
    return some((finding.text for finding in findings if finding.fails), _SHOWN, "; ")


def _views(result: NetcheckResult, limits: NetcheckSpec) -> list[_View]:
    measured = [pair for pair in result.pairs if not pair.error]
    broken = {(pair.a, pair.b): float(bool(pair.error)) for pair in result.pairs}
    latency = {(pair.a, pair.b): pair.latency_ms for pair in measured}
    rate = {(pair.a, pair.b): pair.gbps for pair in measured}
    usual_ms, usual_gbps = result.usual
    many = max(_TIMES * usual_ms, usual_ms + _LEAST_MS)
    few = usual_gbps / _TIMES
    most, least = limits.max_latency_ms, limits.min_bandwidth_gbps
    ms, gbps = figure(usual_ms), figure(usual_gbps)
    stops = limits.action == "stop"
    return [
        _View("unreachable", broken, bool, "", True),
        _View("latency", latency, lambda value: 0 < most < value, f"limit {most:g}", True),
        _View("bandwidth", rate, lambda value: value < least, f"limit {least:g}", True),
        _View("latency", latency, lambda value: value > many, f"usual {ms}", stops),
        _View("bandwidth", rate, lambda value: value < few, f"usual {gbps}", stops),
    ]


def _blame(view: _View) -> Iterator[tuple[tuple[int, ...], list[float]]]:
    """Yield the nodes that explain the bad pairs, and their bad values: the node with the largest
    share of them, then of the rest, until pairs remain.

    A node counts if at least two, and more than half, of its pairs are bad. No node does if all
    pairs are bad.
    """
    left = dict(view.values)
    # no node explains it better than another
    if len(left) > 1 and all(map(view.is_bad, left.values())):
        yield (), list(left.values())
        return
    while True:
        shares: dict[int, tuple[float, int, int]] = {}
        for node in {node for pair in left for node in pair}:
            values = [value for pair, value in left.items() if node in pair]
            bad = len([value for value in values if view.is_bad(value)])
            if bad >= 2 and 2 * bad > len(values):
                shares[node] = (bad / len(values), bad, -node)
        if not shares:
            break
        worst = max(shares, key=shares.__getitem__)
        own = {pair: left.pop(pair) for pair in list(left) if worst in pair}
        yield (worst,), [value for value in own.values() if view.is_bad(value)]
    for pair, value in left.items():
        if view.is_bad(value):
            yield pair, [value]


def _finding(
    result: NetcheckResult, nodes: tuple[int, ...], causes: Mapping[str, tuple[str, bool]]
) -> NetworkFinding:
    names = [result.name(node) for node in nodes]
    ordered = {cause: causes[cause] for cause in CAUSES if cause in causes}
    detail = ", ".join(text for text, _ in ordered.values())
    # of all pairs where no node is named
    reasons = [pair.error for pair in result.pairs if pair.error and {*nodes} <= {pair.a, pair.b}]
    errors = reasons if "unreachable" in causes else []
    if not names:
        summary = "no node can reduce with another" if errors else "the whole network is slow"
    elif len(names) == 1:
        summary = f"{names[0]} cannot take part" if errors else f"{names[0]} is slow"
    else:
        how = "cannot reduce together" if errors else "are slow with each other"
        summary = f"{names[0]} and {names[1]} {how}"
    if errors:
        detail = max(errors, key=errors.count)
        if len(names) == 1:
            detail += f" (with {len(errors)} of its peers)"
    fails = any(fails for _, fails in ordered.values())
    return NetworkFinding(nodes, tuple(ordered), fails, f"{summary}: {detail}")
