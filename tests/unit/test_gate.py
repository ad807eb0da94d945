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
from tests.unit.machine import Node, logged

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


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
def test_a_node_that_has_not_passed_ends_the_job_by_name() -> None:
    node = leader(1, 2)
    node.hears(messages.Checked(PROBLEM))
    assert node.outcome is None, "others may not have passed, either"
    node.hears(messages.Checked(""), sender=2)
    assert not node.is_prepared
    assert node.outcome.status == 71
    assert node.outcome.reason == f"EP460 a node is not healthy | {PROBLEM} on worker-1 (b)"
    assert node.outcome.cause == replace(UNHEALTHY, node="worker-1 (b)")
    assert is_unhealthy(node.outcome)


@pytest.mark.control("a node that does not pass its gate never gets a rank")
def test_a_node_without_a_gate_has_passed() -> None:
    node = leader()
    assert node.is_prepared
    assert node.outcome is None


def test_the_leader_s_own_gate_is_awaited_too() -> None:
    node = Node(checking=True)
    node.answers(1, 2)
    assert not node.is_prepared
    node.hears(messages.Checked(PROBLEM), sender=0)
    assert node.outcome.reason.endswith(f"{PROBLEM} on worker-0 (a)")


def test_a_gate_that_never_ends_is_given_up_once() -> None:
    node = leader(1, gate="{seconds: 5, memory: 10}")
    node.waits(29)
    assert not node.is_prepared
    node.waits(2)
    assert node.is_prepared
    assert (
        "\n".join(logged(node.done)).count(
            "EP466 worker-1 (b) has not reported whether it is healthy"
        )
        == 1
    )


def test_a_result_that_comes_too_late_is_no_lie() -> None:
    node = leader(1, gate="{seconds: 5, memory: 10}")
    node.waits(31)
    node.hears(messages.Checked(PROBLEM))
    assert node.rejected() == set()
    assert "EP466 worker-1 (b) reported a failed health check after the start" in "\n".join(
        logged(node.done)
    )


def test_the_end_of_a_roll_call_waits_for_gates() -> None:
    """The nodes are there: their gates have limits of their own."""
    node = leader(1, timeouts="{peers: 5}", gate="{seconds: 5, memory: 10}")
    node.waits(20)
    assert node.outcome is None
    node.hears(messages.Checked(""))
    assert node.is_prepared


def test_a_node_that_is_lost_in_its_gate_is_awaited_until_the_roll_call_ends() -> None:
    """Its time is over already."""
    node = leader(1, timeouts="{peers: 5}", gate="{seconds: 5, memory: 10}")
    node.waits(10)
    node.told(events.SessionLost(1, "its session ended"))
    node.waits(5)
    assert node.outcome.status == 69
    assert "1 of 2 peers did not answer" in node.outcome.reason


def test_an_elastic_job_does_not_wait_for_the_gate_of_a_lost_node() -> None:
    node = leader(1, launcher="elastic", timeouts="{join: 5}", gate="{seconds: 60, memory: 60}")
    node.told(events.SessionLost(1, "its session ended"))
    assert not node.is_prepared, "it may come back"
    node.waits(6)
    assert node.is_prepared


def test_the_gate_of_a_node_that_never_works_again_is_not_awaited() -> None:
    node = Node(spares=1, team=Team((0, 1)).fault(1, "it hangs").fault(1, "it hangs"))
    node.told(events.Answered(1, checking(1), "10.0.0.1"))
    node.answers(2)
    assert node.is_prepared


def test_a_node_that_answers_again_has_another_gate() -> None:
    node = leader(1)
    node.hears(messages.Checked(""), sender=2)
    assert node.rejected() == {2}, "it has announced none"
    node = leader(1, 2)
    node.hears(messages.Checked(PROBLEM))
    node.told(events.SessionLost(1, "its container was restarted"))
    node.told(events.Answered(1, checking(1), "10.0.0.1"))
    node.hears(messages.Checked(""), sender=2)
    assert node.outcome is None
    assert not node.is_prepared
    node.hears(messages.Checked(""))
    assert node.is_prepared


@pytest.mark.parametrize("said", [messages.Checked(""), messages.Checking("memory")])
def test_the_end_of_a_gate_is_reported_once(said: Any) -> None:
    node = leader(1, 2)
    node.hears(messages.Checked(""), said)
    assert node.rejected() == {1}


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


def test_a_node_that_is_not_healthy_is_named_beside_one_that_never_comes() -> None:
    node = Node(timeouts="{peers: 60}")
    node.told(events.NameState("a", ""))
    node.told(events.Answered(1, checking(1), "10.0.0.1"))
    node.hears(messages.Checked(PROBLEM))
    node.waits(70)
    assert node.outcome.reason.startswith("EP500 1 of 2 peers did not answer within ")
    assert "worker-2 (c, not reached yet); EP460 a node is not healthy" in node.outcome.reason
    assert f"{PROBLEM} on worker-1 (b)" in node.outcome.reason
