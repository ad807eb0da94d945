"""Made-up results of network checks: of nodes that are alike but for what a test makes slow."""

from __future__ import annotations

from collections.abc import Callable

from entrypoint.netcheck.analysis import findings
from entrypoint.netcheck.page import page
from entrypoint.netcheck.pairs import rounds
from entrypoint.netcheck.result import Measured, NetcheckResult, Reduced, bus_bandwidth
from entrypoint.spec.jobspec import NetcheckSpec

Change = Callable[[int, int], Measured | None]


def of(nodes: int, change: Change = lambda a, b: None) -> NetcheckResult:
    """A result in which `change` gives a pair's figures; those of other pairs differ by some
    percent."""
    pairs = [
        change(a, b) or Measured(a, b, 0.06 + 0.001 * (a + b), 0.2, 9.4 - 0.05 * a, 9.4 - 0.05 * b)
        for each in rounds(nodes)
        for a, b in each
    ]
    names = tuple((f"worker-{rank}", f"worker-{rank}") for rank in range(nodes))
    return NetcheckResult(names, tuple(pairs), no_sweep="there is no torch on worker-0")


def slow(node: int) -> Change:
    """A node whose packets take 200 ms."""
    return lambda a, b: Measured(a, b, 200.3, 201.0, 0.05, 0.05) if node in (a, b) else None


def made_up(nodes: int = 4, late: int = 2) -> NetcheckResult:
    """A whole result: one slow node, an all-reduce sweep, a rejected address."""
    result, sizes = of(nodes, slow(late)), [1 << power for power in range(10, 23, 2)]
    seconds = [0.4 + size / 40e6 for size in sizes]
    reduced = tuple(
        Reduced(size, took, bus_bandwidth(size, took, nodes))
        for size, took in zip(sizes, seconds, strict=True)
    )
    rejected = ("10.0.0.99 on worker-1",)
    return NetcheckResult(
        result.nodes, result.pairs, backend="gloo", reduced=reduced, rejected=rejected
    )


def made_up_page(nodes: int = 4) -> str:
    """The heat map of it."""
    result = made_up(nodes)
    return page(result, findings(result, NetcheckSpec()), "demo")
