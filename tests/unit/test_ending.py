"""How long the leader waits at the end of an attempt for a launcher that does not end."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint import spec
from entrypoint.job import actions, events, messages
from entrypoint.job.history import History
from entrypoint.job.leader import Leader
from entrypoint.model import NodeReport
from entrypoint.plan import settle
from tests.unit.test_last_word import FACTS

TEXT = (
    "hosts: [a=10.0.0.1, b=10.0.0.2, c=10.0.0.3]\nslots: 1\nlauncher: mpirun\ncommand: [train]\n"
    "secret_file: /none\nnode_rank: 0\n"
)
KILLED = messages.RankEnd(2, 137, (), "")


class Running:
    """The leader of a job whose three ranks run."""

    def __init__(self) -> None:
        job = spec.load(TEXT, "job.yaml", {}, {})
        self.now = 1000.0
        self.machine = Leader(job, FACTS, settle(job, FACTS), History())
        self.tell(events.Started(), events.KeysReady(), events.EndpointReady(report(0)))
        self.tell(events.NameState("a", ""))
        self.tell(*(events.Answered(node, report(node), "10.0.0.1") for node in (1, 2)))
        self.tell(events.Prepared(3, None))
        for rank in range(3):
            self.hear(rank, messages.RankStart(rank, 100))

    def tell(self, *happened: Any) -> list[Any]:
        """What it does about these events, but for what only watchers see."""
        done = [each for event in happened for each in self.machine.handle(event, self.now)]
        return [each for each in done if not isinstance(each, actions.Entered)]

    def hear(self, node: int, message: Any) -> list[Any]:
        return self.tell(events.MessageReceived(node, message))

    @property
    def reason(self) -> str:
        """Why the job ends; "" while that is not decided."""
        return self.machine.outcome.reason if self.machine.outcome else ""

    def answer(self, number: int, *nodes: int) -> None:
        """These nodes answer that question of the leader."""
        for node in nodes:
            self.hear(node, messages.Pong(0.0, number))

    def until(self, kind: type, read: bool = True) -> float:
        """Seconds until it sends such a message, if the launcher stays and passes on nothing."""
        begun = self.now
        done: list[Any] = []
        while not any(isinstance(getattr(each, "message", 0), kind) for each in done):
            self.now = max(self.now, self.machine.wake)
            done = self.tell(events.TimerFired())
            for _ in [each for each in done if isinstance(each, actions.CheckOutputProgress)]:
                done += self.tell(events.OutputProgress(100, read))
        return self.now - begun


def report(node: int) -> NodeReport:
    return NodeReport(node, 1, "4.1.4")


def stopped(*nodes: int) -> list[Any]:
    return [events.MessageReceived(node, messages.Stopped()) for node in nodes]


def test_a_launcher_that_has_lost_a_node_gets_less_time_for_the_last_output() -> None:
    job = Running()
    job.tell(events.SessionLost(2, "its session ended"))
    job.tell(*stopped(0, 1), events.OutputProgress(100, True))
    assert job.until(messages.Release) == pytest.approx(0.3, abs=0.11)


def test_with_all_nodes_it_gets_a_second() -> None:
    """The control; and a reader that takes nothing gets the grace."""
    for read, seconds in ((True, 1.0), (False, 30.0)):
        job = Running()
        job.hear(2, messages.RankEnd(2, 7, (), ""))
        job.until(messages.Stop)
        job.tell(*stopped(0, 1, 2), events.OutputProgress(100, read))
        assert job.until(messages.Release, read) == pytest.approx(seconds, abs=0.11)


def test_a_reader_that_takes_nothing_has_five_seconds_where_no_program_failed() -> None:
    """Such as after a stop, whose sender may kill all after ten seconds."""
    job = Running()
    job.tell(events.SessionLost(2, "its session ended"))
    job.tell(*stopped(0, 1), events.OutputProgress(100, False))
    assert job.until(messages.Release, False) == pytest.approx(5.0, abs=0.11)


def test_its_time_is_over_at_that_second() -> None:
    job = Running()
    job.hear(2, messages.RankEnd(2, 7, (), ""))
    job.until(messages.Stop)
    job.tell(*stopped(0, 1, 2), events.OutputProgress(100, True))
    job.now += 1.0
    sent = job.tell(events.OutputProgress(100, True))
    assert messages.Release in {type(getattr(each, "message", None)) for each in sent}


def test_a_leader_that_was_suspended_asks_all_nodes_once_before_it_decides() -> None:
    """They may have counted it as lost meanwhile."""
    job = Running()
    job.now += 40.0
    job.tell(events.TimerFired())
    job.hear(2, messages.RankEnd(2, 7, (), ""))
    job.now += 0.5
    asked = [
        each.message.number
        for each in job.tell(events.TimerFired())
        if isinstance(each, actions.Send) and isinstance(each.message, messages.Ping)
    ]
    (number,) = {*asked} - {0}
    assert job.reason == ""
    job.answer(number, 0, 1, 2)
    assert job.reason == "EP600 rank 2 on worker-2 (c) exited with 7"


def test_a_killed_rank_is_the_cause_once_every_node_has_answered_twice() -> None:
    job = Running()
    job.hear(2, KILLED)
    job.answer(1, 0, 1, 2)
    job.answer(2, 0, 1)
    assert job.reason == ""
    job.answer(2, 2)
    assert job.reason == "EP601 rank 2 on worker-2 (c) was ended by SIGKILL (137)"


def test_a_rank_that_had_failed_before_the_killed_one_is_the_cause() -> None:
    job = Running()
    job.hear(2, KILLED)
    job.answer(1, 0, 1, 2)
    job.hear(1, messages.RankEnd(1, 7, (), ""))
    job.answer(2, 0, 1, 2)
    assert job.reason == "EP600 rank 1 on worker-1 (b) exited with 7"


def test_a_node_that_does_not_answer_delays_that_for_a_moment_only() -> None:
    job = Running()
    job.hear(2, KILLED)
    job.answer(1, 0, 1)
    assert job.until(messages.Stop) == pytest.approx(0.2)


@pytest.mark.parametrize(("again", "grace"), [(False, 30.0), (True, 0)])
def test_ranks_get_the_grace_unless_the_stop_is_forced(again: bool, grace: float) -> None:
    sent = Running().tell(events.Signalled(15, again=again))
    assert [each for each in sent if isinstance(each, actions.Send)] == [
        actions.Send(node, messages.Stop(grace)) for node in range(3)
    ]


def test_a_node_that_may_be_frozen_has_time_to_hear_the_result() -> None:
    job = Running()
    job.hear(2, messages.RankEnd(2, 7, (), ""))
    job.until(messages.Stop)
    job.tell(*stopped(0, 1, 2), events.LaunchersGone())
    job.hear(1, messages.Goodbye())
    begun, done = job.now, list[Any]()
    while not any(isinstance(each, actions.EndNode) for each in done):
        job.now = job.machine.wake
        done += job.tell(events.TimerFired())
    said = [each.text for each in done if isinstance(each, actions.Log)]
    assert said == ["EP618 the result is known; waiting 18s at most for worker-2 (c) to hear it"]
    assert job.now - begun <= 20.0, "with the 2 s in which the others leave"


@pytest.mark.parametrize(("status", "seconds"), [(7, 0.5), (143, 0.5), (137, 0.2)])
def test_a_killed_rank_ends_the_others_soon(status: int, seconds: float) -> None:
    """The control: others may fail for the same reason, or the cause may be heard later."""
    job = Running()
    job.hear(2, messages.RankEnd(2, status, (), ""))
    assert job.until(messages.Stop) == pytest.approx(seconds)
