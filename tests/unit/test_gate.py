"""The leader and the gates of the nodes: which it waits for, and what comes of a node that has not
passed."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__
from entrypoint.base.model import Members, NodeReport, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.values import replace
from entrypoint.job import actions, events, messages
from entrypoint.job.answer import node_info, node_report
from entrypoint.job.failure import UNHEALTHY, is_unhealthy, not_ready, unhealthy
from entrypoint.job.membership.team import Team
from tests.unit.machine import Node

PROBLEM = "GPU 1: 4 uncorrectable memory errors"


def checking(rank: int) -> NodeReport:
    return NodeReport(rank, 2, __version__, "4.1.4", checking=True)


def leader(*nodes: int, **settings: Any) -> Node:
    """A leader whose peers have all answered; of some the gate has not ended."""
    node = Node(**settings)
    node.told(events.NameState("a", ""))
    for rank in (1, 2):
        report = checking(rank) if rank in nodes else NodeReport(rank, 2, __version__, "4.1.4")
        node.told(events.Answered(rank, report, "10.0.0.1"))
    return node


def test_the_job_starts_when_all_gates_have_ended() -> None:
    node = leader(1, 2)
    node.hears(messages.Checked(""), sender=2)
    node.hears(messages.Checking("the memory of cards is not free"))
    assert not node.is_prepared
    assert node.shown("worker-1 (b)")[-2:] == [
        "it checks itself",
        "the memory of cards is not free",
    ]
    known = [each for each in node.done if isinstance(each, actions.Entered) and each.node == 1]
    assert [(each.phase, each.detail) for each in known[-2:]] == [
        (Phase.WAITING, "it checks itself"),
        (Phase.WAITING, "the memory of cards is not free"),
    ]
    node.hears(messages.Checked(""))
    assert node.is_prepared
    assert node.shown("worker-1 (b)")[-1] == ""


def test_the_gate_of_a_node_that_never_works_again_is_not_awaited() -> None:
    node = Node(
        spares=1, team=Team((0, 1), frozenset((0, 1, 2))).fault(1, "it hangs").fault(1, "it hangs")
    )
    node.told(events.Answered(1, checking(1), "10.0.0.1"))
    node.answers(2)
    assert node.is_prepared


def test_a_stop_does_not_wait_for_gates() -> None:
    node = Node(checking=True)
    node.machine.attempt = 2
    node.told(events.NameState("a", ""))
    for rank in (1, 2):
        node.told(events.Answered(rank, checking(rank), "10.0.0.1"))
    node.told(events.Signalled(15))
    assert node.outcome.status == 143


def test_a_gate_that_has_ended_before_the_call_is_in_the_answer() -> None:
    report = replace(checking(1), checking=False, not_ready=unhealthy(PROBLEM))
    arrived = node_report(1, node_info(report, 0.0), ("10.0.0.2", 22), 0.0, 0.0)
    assert arrived.not_ready == unhealthy(PROBLEM)
    lying = replace(node_info(report, 0.0), not_ready=(3, "EP460 x", True))
    assert node_report(1, lying, ("10.0.0.2", 22), 0.0, 0.0).not_ready == Outcome(
        71, "EP460 x", cause=UNHEALTHY
    )


def test_a_disk_that_is_full_is_not_the_gate_s() -> None:
    report = replace(checking(1), checking=False, not_ready=Outcome(73, "the disk is full"))
    arrived = node_report(1, node_info(report, 0.0), ("10.0.0.2", 22), 0.0, 0.0)
    assert arrived.not_ready
    assert not is_unhealthy(arrived.not_ready)
    outcome = not_ready(Node().machine.state.topology, Members((arrived,)))
    assert outcome == Outcome(73, "the disk is full on worker-1 (b)")


@pytest.mark.parametrize(
    ("reason", "placed"),
    [
        ("EP435 port 7000 is taken | by sh | set MASTER_PORT",
         "EP435 port 7000 is taken | by sh on worker-1 (b) | set MASTER_PORT"),
        ("EP410 cannot write /x | full | make room | or not",
         "EP410 cannot write /x | full on worker-1 (b) | make room | or not"),
        ("EP441 start hook 10-a exited with 9", "EP441 start hook 10-a on worker-1 (b) exited with 9"),
    ],
)  # fmt: skip
def test_a_place_is_not_a_part_of_the_hint(reason: str, placed: str) -> None:
    report = replace(checking(1), not_ready=Outcome(71, reason))
    outcome = not_ready(Node().machine.state.topology, Members((report,)))
    assert outcome is not None
    assert outcome.reason == placed
