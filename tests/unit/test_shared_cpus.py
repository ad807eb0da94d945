"""What the roll call tells each node of the others that share its CPUs."""

from __future__ import annotations

from entrypoint import __version__
from entrypoint.base.model import NodeReport
from entrypoint.job import events, messages
from tests.unit.machine import Node, sent


def starts(*pools: str, spares: int = 0) -> dict[int, tuple[int, ...]]:
    """Return what the leader tells each node; the CPUs of the workers have these names."""
    node = Node(spares=spares, restarts=2)
    node.told(events.NameState("a", ""))
    for rank, pool in enumerate(pools, 1):
        report = NodeReport(rank, rank + 1, __version__, "4.1.4", cpu_pool=pool)
        node.told(events.Answered(rank, report, f"10.0.0.{rank}"))
    node.told(events.Prepared(0, None))
    return {each.node: each.message.neighbours for each in sent(node.done, messages.Start)}


def test_nodes_with_the_same_cpus_are_told_of_each_others_slots() -> None:
    assert starts("one", "one") == {0: (), 1: (3,), 2: (2,)}


def test_nodes_with_other_or_unknown_cpus_are_not() -> None:
    assert starts("one", "two") == starts("", "") == {0: (), 1: (), 2: ()}


def test_a_spare_has_no_ranks_that_count() -> None:
    assert starts("one", "one", spares=1)[1] == ()
