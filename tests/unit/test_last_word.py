"""A worker's last word: it stays until the leader has read it and ends the session, and 2 s at
most."""

from __future__ import annotations

import math
from typing import Any

import pytest

from entrypoint import __version__, spec
from entrypoint.job import actions, events, messages
from entrypoint.job.history import History
from entrypoint.job.leader import Leader
from entrypoint.job.worker import Worker
from entrypoint.model import Facts, NodeReport, Outcome
from entrypoint.plan import settle
from entrypoint.values import replace

FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u", mpi="4.1.4",
    programs={name: f"/usr/bin/{name}" for name in ("sshd", "ssh", "mpirun", "orted", "python3")},
)  # fmt: skip
TEXT = (
    "hosts: [a=10.0.0.1, b=10.0.0.2]\nslots: 1\nlauncher: torchrun\ncommand: [train]\nsecret_file:"
    " /none\n"
)
RELEASE = messages.Release(0, "done", True, False)
END = actions.EndNode(Outcome(0, "done", True))
LIMIT = 2.0  # seconds


class Node:
    """A machine, and a clock that the test moves."""

    def __init__(self, me: int) -> None:
        job = spec.load(TEXT, "job.yaml", {"ENTRYPOINT_NODE_RANK": str(me)}, {})
        draft = settle(job, FACTS)
        self.now, self.rank = 1000.0, me
        self.machine = Worker(job, draft, History()) if me else Leader(job, FACTS, draft, History())
        self.told(events.Started())
        self.told(events.KeysReady())
        self.told(events.EndpointReady(NodeReport(me, 1, "")))

    def told(self, event: Any) -> list[Any]:
        """What it does about that; its phases are only for those who watch."""
        done = self.machine.handle(event, self.now)
        return [action for action in done if not isinstance(action, actions.Entered)]

    def hears(self, message: Any, sender: int | None = None) -> list[Any]:
        return self.told(
            events.MessageReceived(1 - self.rank if sender is None else sender, message)
        )

    def here(self, message: Any) -> list[Any]:
        return self.hears(message, self.rank)

    def waits(self) -> tuple[float, list[Any]]:
        """How long it stays where nothing happens, and what it does last."""
        begun, done = self.now, []
        while END not in done and self.machine.wake < math.inf:
            self.now = max(self.now, self.machine.wake)
            done = self.told(events.TimerFired())
        return self.now - begun, done


def hello(**other: Any) -> messages.Hello:
    return replace(
        messages.Hello(
            __version__, ("a", "b"), 1, "torchrun", {}, 15.0, "leader", "10.0.0.2", "token"
        ),
        **other,
    )


def worker(started: bool = True) -> Node:
    node = Node(1)
    node.hears(hello())
    if started:
        node.hears(messages.Start(1))
        node.hears(messages.Stop(10.0))
        node.here(messages.Stopped())
    return node


@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
def test_a_released_worker_stays_until_the_leader_ends_the_session() -> None:
    node = worker()
    assert node.hears(RELEASE) == [actions.ReportPhases(), actions.Send(0, messages.Goodbye())]
    node.now += 1.0
    assert node.here(messages.Pong(0.0, 0)) == [actions.Send(0, messages.Pong(0.0, 0))], (
        "nothing else ends it"
    )
    assert node.told(events.SessionLost(0)) == [END]


@pytest.mark.control("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
def test_a_leader_that_does_nothing_holds_it_up_for_two_seconds() -> None:
    node = worker()
    node.hears(RELEASE)
    node.now += 1.5
    node.hears(RELEASE)
    node.told(events.Signalled(15))
    node.told(events.Signalled(15, again=True))
    seconds, done = node.waits()
    assert (seconds, done) == (pytest.approx(LIMIT - 1.5), [END]), "whatever comes meanwhile"


@pytest.mark.parametrize(("again", "grace"), [(False, 30.0), (True, 0)])
def test_its_ranks_get_the_grace_unless_it_is_hurried(again: bool, grace: float) -> None:
    done = Node(1).told(events.Signalled(15, again=again))
    assert actions.Send(1, messages.Stop(grace)) in done


def test_without_a_session_it_leaves_at_once() -> None:
    node = Node(1)
    node.told(events.Signalled(15))
    assert isinstance(node.here(messages.Stopped())[-1], actions.EndNode)


@pytest.mark.parametrize("last", ["refuse", "sigterm"])
def test_other_last_words_are_waited_for_as_well(last: str) -> None:
    node = Node(1)
    if last == "refuse":
        said = node.hears(hello(launcher="mpirun"))
        assert isinstance(said[0].message, messages.Reject)
    else:
        node.hears(hello())
        said = node.told(events.Signalled(15))
        assert said[0].message.stop
    assert not any(isinstance(each, actions.EndNode) for each in node.here(messages.Stopped()))
    (ended,) = node.told(events.SessionLost(0))
    assert ended.outcome.status == {"refuse": 78, "sigterm": 143}[last]


def test_a_second_signal_kills_what_is_being_stopped() -> None:
    node = Node(1)
    node.hears(hello(), 0)
    node.hears(messages.Start(1))
    node.hears(messages.Stop(10.0))
    done = node.told(events.Signalled(15, again=True))
    assert done[:2] == [actions.Send(0, messages.ForceStop()), actions.Send(1, messages.Stop(0))]


def leader() -> Node:
    node = Node(0)
    node.told(events.NameState("a", ""))
    node.told(events.Answered(1, NodeReport(1, 1, "")))
    return node


def test_the_leader_ends_the_session_of_whoever_has_said_its_last_word() -> None:
    node = leader()
    node.told(events.Prepared(0, None))
    ended = messages.Ended(0, "torchrun", "torchrun exited with 0", (), True)
    node.here(ended)
    node.hears(ended)
    done = node.hears(messages.Goodbye())
    assert [type(each) for each in done] == [actions.CloseSession, actions.EndNode]


def test_one_that_leaves_and_was_not_released_is_lost() -> None:
    node = leader()
    node.told(events.Prepared(0, None))
    lost = node.hears(messages.Goodbye())
    assert lost[0] == actions.CloseSession(1)
    assert any(
        isinstance(each, actions.Log) and "EP602 worker-1 (b) is lost" in each.text for each in lost
    )
    assert node.machine.outcome is not None
    assert node.machine.outcome.status == 75


def test_one_that_is_told_to_stop_before_the_start_is_called_again() -> None:
    node = Node(0)
    node.told(events.Answered(1, NodeReport(1, 1, "")))
    done = node.hears(messages.Failed(143, "EP611", False, stop=True))
    assert done[0] == actions.CloseSession(1)
    assert done.count(actions.Call(1)) == 1
