"""With whom a job starts and goes on: what the policies answer."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import __version__
from entrypoint.base.model import NodeReport, Outcome
from entrypoint.job import events
from entrypoint.job.membership import Membership
from entrypoint.job.membership.participants import GoOn, TakeIn
from entrypoint.job.membership.quorum import Go, Refuse, Wait
from entrypoint.job.peers import Peer
from tests.unit.machine import Node

LOST = Outcome(75, "it is lost")
FULL = Outcome(73, "a full disk")
FIXED: dict[str, Any] = {}
SPARES: dict[str, Any] = {"spares": 1}
ELASTIC: dict[str, Any] = {"launcher": "elastic"}


def members(node: Node) -> Membership:
    membership: Membership = node.machine.membership
    return membership


def called(settings: dict[str, Any], *here: int) -> Node:
    """A leader that has called two workers, of which these have answered."""
    node = Node(**settings)
    node.told(events.NameState("a", ""))
    for rank in here:
        report = NodeReport(rank, 2, __version__)
        node.machine.state.peers[rank] = Peer(report, "10.0.0.1", node.now)
        members(node).quorum.answer(report, node.now)
    return node


@pytest.mark.parametrize(
    ("settings", "here", "after", "answer"),
    [
        (FIXED, [1], 0, Wait(1600.0)),
        (FIXED, [1], 600, Refuse),
        (FIXED, [1, 2], 0, Go()),
        (SPARES, [], 0, Wait(1600.0)),
        (SPARES, [1], 0, Wait(1030.0)),  # the spare has time to join
        (SPARES, [1], 30, Go),
        (SPARES, [1, 2], 0, Go()),
        (ELASTIC, [], 0, Wait(1600.0)),
        (ELASTIC, [1], 0, Wait(1030.0)),
        (ELASTIC, [1], 30, Go),
        (ELASTIC, [1, 2], 0, Go()),
    ],
)
def test_when_an_attempt_starts(
    settings: dict[str, Any], here: list[int], after: float, answer: Any
) -> None:
    """The roll call began at 1000 s."""
    node = called(settings, *here)
    members(node).quorum.decide(node.now)
    said = members(node).quorum.decide(node.now + after)
    assert said == answer or type(said) is answer


@pytest.mark.parametrize("settings", [FIXED, SPARES, ELASTIC])
def test_a_stop_is_the_answer_once_all_have_heard_of_it(settings: dict[str, Any]) -> None:
    node = called(settings, 1)
    node.machine.state.stop = stop = Outcome(143, "SIGTERM")
    assert members(node).quorum.decide(node.now) == Wait(node.now + 3.03)
    assert members(node).quorum.decide(node.now + 3.1) == Refuse(stop)


@pytest.mark.parametrize(
    ("settings", "lost", "answer"),
    [(FIXED, 1, LOST), (SPARES, 1, LOST), (SPARES, 2, GoOn(2)), (ELASTIC, 1, GoOn(2))],
)
def test_a_loss_while_the_job_runs(settings: dict[str, Any], lost: int, answer: Any) -> None:
    node = Node(**settings).start()
    assert members(node).participants.lose(lost, LOST, False, node.now) == answer


def test_an_elastic_job_ends_below_its_minimum() -> None:
    node = Node(**ELASTIC).start()
    assert members(node).participants.lose(1, LOST, False, node.now) == GoOn(2)
    assert members(node).participants.lose(2, LOST, False, node.now) == LOST


@pytest.mark.parametrize(
    ("settings", "not_ready", "answer"),
    [
        (SPARES, None, TakeIn("is here, and waits as a spare")),
        (SPARES, FULL, TakeIn("is here, and cannot work: a full disk")),
        (ELASTIC, None, TakeIn("joins: 3 nodes")),
        (ELASTIC, FULL, Refuse(FULL)),
    ],
)
def test_a_node_that_comes_late(
    settings: dict[str, Any], not_ready: Outcome | None, answer: Any
) -> None:
    node = Node(**settings)
    node.answers(1)
    node.waits(31)
    node.told(events.Prepared(4, None))
    report = NodeReport(2, 2, __version__, not_ready=not_ready)
    assert members(node).participants.arrive(2, report) == answer
