"""Results of network checks: of nodes that are alike but for what a test makes slow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from entrypoint.features.netcheck.result import Measured, NetcheckResult, Together

Change = Callable[[int, int], Measured | None]


def of(nodes: int, change: Change = lambda a, b: None) -> NetcheckResult:
    """A result in which `change` gives a pair's figures; those of other pairs differ by some
    percent."""
    pairs = [
        change(a, b) or Measured(a, b, 0.06 + 0.001 * (a + b), 0.2, 9.4 - 0.05 * a)
        for a, b in combinations(range(nodes), 2)
    ]
    names = tuple((f"worker-{rank}", f"worker-{rank}") for rank in range(nodes))
    return NetcheckResult(names, tuple(pairs), Together(0.3, 4.0), "gloo")


def slow(node: int) -> Change:
    """A node whose packets take 200 ms."""
    return lambda a, b: Measured(a, b, 200.3, 201.0, 0.05) if node in (a, b) else None
