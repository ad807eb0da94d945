"""The roll call of a job with spares: which nodes it needs, and what it says of those that are
missing."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__
from entrypoint.base.model import NodeReport, Outcome
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.membership.team import Team
from tests.unit.machine import Node, logged

ALL = frozenset(range(3))
REFUSED = events.Unreachable(2, "our key is refused by 10.0.0.3", refused=True)
OTHER = events.Rejected(2, "EP504 the nodes disagree on toolkit", "1.0 and 2.0", "the same image")


def leader(expected: frozenset[int] = ALL, spares: int = 1, **left: Any) -> Node:
    """A leader of three nodes, which were there when the last attempt ended. `left`: what else that
    has left to this one."""
    team = Team(tuple(range(3 - spares)), expected, **left)
    node = Node(spares=spares, restarts=2, team=team)
    node.told(events.NameState("a", ""))
    return node


def later(node: Node, *told: events.Unreachable | events.Rejected) -> Outcome | None:
    """Tell it this twice, half a minute apart. Return how the job has ended."""
    for _ in range(2):
        for event in told:
            node.told(event)
        node.now += 30.0
    outcome: Outcome | None = node.outcome
    return outcome


@pytest.mark.parametrize(("event", "status"), [(REFUSED, 77), (OTHER, 78)])
@pytest.mark.parametrize(("expected", "spares"), [(ALL, 1), (frozenset({0, 2}), 1), (ALL, 0)])
def test_a_node_that_is_awaited_must_be_of_this_job(
    event: events.Unreachable | events.Rejected,
    status: int,
    expected: frozenset[int],
    spares: int,
) -> None:
    node = leader(expected, spares)
    report = NodeReport(1, 2, __version__, "4.1.4", checking=True)
    node.told(events.Answered(1, report, "10.0.0.1"))
    outcome = later(node, event)
    assert outcome.status == status


def running(*nodes: int) -> Node:
    """The leader of a job of two nodes and a spare, of which worker-0 and these are there."""
    node = leader(frozenset({0, *nodes}))
    node.answers(*nodes)
    node.told(events.Prepared(4, None))
    return node


def second(is_silent: bool, spares: int = 1) -> Node:
    """The leader of the second attempt, which has lost worker-1 just before."""
    may_run = {1: (1050.0, is_silent)}
    node = leader(frozenset({0, 2}), spares, reasons={1: "lost"}, may_run=may_run)
    state = node.machine.state
    state.history = replace(state.history, attempt=2)
    node.answers(2, attempt=2)
    return node


# How a call to a node fails of which nothing is known: its sshd, or its network, is gone.
NO_WORD = (
    "", "nothing listens there yet", "no DNS", "no answer from 10.0.0.2", "no route to host",
    "sshd at 10.0.0.2 closed the connection", "no control endpoint at 10.0.0.2", messages.TAKEN,
    messages.OTHER_JOB, "that is worker-2 of this job",
)  # fmt: skip


@pytest.mark.parametrize("why", NO_WORD)
def test_a_call_that_finds_nobody_does_not_show_that_no_rank_runs(why: str) -> None:
    node = second(is_silent=False)
    if why:
        node.told(events.Unreachable(1, why))
    node.waits(49.5)
    assert not node.is_prepared
    node.waits(1)
    assert node.is_prepared


def succeeding(*attempts: int) -> Node:
    """A leader that has just booted, of a job that goes on without worker-1: the attempts that
    worker-0 and worker-2 know of, after the time for those that are missing."""
    node = leader()
    node.answers(2, attempt=attempts[-1])
    node.waits(30.5)
    return node


@pytest.mark.parametrize("why", NO_WORD)
def test_a_leader_that_has_replaced_another_waits_for_what_that_may_have_started(why: str) -> None:
    node = succeeding(1, 2)
    if why:
        node.told(events.Unreachable(1, why))
    assert not node.is_prepared
    node.waits(19)
    assert not node.is_prepared
    said = [text for text in logged(node.done) if "the start waits for" in text]
    assert [text[:31] for text in said] == ["the start waits for 20s at most"], "once"
    node.waits(1)
    assert node.is_prepared


@pytest.mark.parametrize(("silent", "is_lost"), [(0.0, False), (14.0, False), (19.0, True)])
def test_a_worker_knows_whether_it_has_lost_its_leader_in_silence(
    silent: float, is_lost: bool
) -> None:
    node = Node(me=1, restarts=2)
    node.hears(node.hello, messages.Start(), sender=0)
    node.waits(silent)
    node.told(events.SessionLost(0))
    assert node.outcome.status == 75
    assert (node.machine.state.leader_lost > 0) == is_lost


@pytest.mark.parametrize("why", ["", "it sent nonsense"])
def test_a_node_that_has_lost_its_session_may_run_until_its_own_clock_ends_it(why: str) -> None:
    """The session may have ended here alone. A spare that is lost delays nothing."""
    for lost, may_run in ((1, {1: (1050.0, False)}), (2, {})):
        node = running(1, 2)
        node.told(events.SessionLost(lost, why))
        members = node.machine.membership
        assert members.roster.next_team().may_run == may_run
        excluded = members.participants.conclude(Outcome(75, "EP602")).excluded
        assert [each.host for each in excluded] == (["b"] if lost == 1 else [])


def test_a_silent_node_may_run_until_it_has_noticed_that_by_its_own_clock() -> None:
    node = running(1, 2)
    while node.outcome is None:
        node.now += 1
        node.told(events.TimerFired())
        node.hears(messages.Pong(0.0, 0), sender=2)
    assert "EP602 worker-1" in node.outcome.reason
    ((until, is_silent),) = node.machine.membership.roster.next_team().may_run.values()
    assert is_silent
    assert node.now + 49 < until < node.now + 51  # 18 s, its grace of 30 s, and 2 s to be killed


@pytest.mark.parametrize("spares", [0, 1])
def test_nodes_that_disagree_on_the_spares_run_no_job(spares: int) -> None:
    """Otherwise one that the others take for a spare would start its ranks."""
    node, other = Node(me=2, spares=spares, restarts=2), Node(me=2, spares=1 - spares, restarts=2)
    node.hears(replace(other.hello, rank=2), sender=0)
    assert node.outcome.status == 78
    assert "worker-2 (c) has mpirun" in node.outcome.reason
    assert "mpirun, spares: 1" in node.outcome.reason
