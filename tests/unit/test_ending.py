"""The end of an attempt: what the leader waits for, and a worker's last word, which stays until the
leader has read it and ends the session, and 2 s at most."""

from __future__ import annotations

import math
from typing import Any

import pytest

from entrypoint.base.model import Outcome
from entrypoint.job import actions, events, messages
from tests.unit.machine import Node, ends, logged, sent, starts

KILLED = ends(4, status=137)[0]
FAILED = ends(4, status=7)[0]
RELEASE = messages.Release(0, "done", True, False)
END = actions.EndNode(Outcome(0, "done", True))
LIMIT = 2.0  # seconds that a last word stays


class Running(Node):
    """The leader of a job whose ranks run, two on each node."""

    def __init__(self) -> None:
        super().__init__()
        self.start()
        for node in range(3):
            self.hears(*starts(2 * node, 2 * node + 1), sender=node)

    def answer(self, number: int, *nodes: int) -> None:
        """These nodes answer that question of the leader."""
        for node in nodes:
            self.hears(messages.Pong(0.0, number), sender=node)

    def stopped(self, *nodes: int, read: bool = True) -> list[Any]:
        """All ranks of these nodes have ended, and the launcher has passed on so much."""
        for node in nodes:
            self.hears(messages.Stopped(), sender=node)
        return self.told(events.OutputProgress(100, read))

    def until(self, kind: type, read: bool = True) -> float:
        """Seconds until it sends such a message, if the launcher stays and passes on nothing."""
        begun, done = self.now, list[Any]()
        while not sent(done, kind):
            self.now = max(self.now, self.machine.wake)
            done = self.told(events.TimerFired())
            for _ in [each for each in done if isinstance(each, actions.CheckOutputProgress)]:
                done += self.told(events.OutputProgress(100, read))
        return self.now - begun


@pytest.mark.parametrize(("read", "seconds"), [(True, 0.3), (False, 5.0)])
def test_a_launcher_that_has_lost_a_node_gets_less_time_for_the_last_output(
    read: bool, seconds: float
) -> None:
    """And a reader that takes nothing has five seconds where no program failed, such as after a
    stop, whose sender may kill all after ten."""
    job = Running()
    job.told(events.SessionLost(2, "its session ended"))
    job.stopped(0, 1, read=read)
    assert job.until(messages.Release, read) == pytest.approx(seconds, abs=0.11)


@pytest.mark.parametrize(("read", "seconds"), [(True, 1.0), (False, 30.0)])
def test_with_all_nodes_it_gets_a_second(read: bool, seconds: float) -> None:
    """The control; and a reader that takes nothing gets the grace."""
    job = Running()
    job.hears(FAILED, sender=2)
    job.until(messages.Stop)
    job.stopped(0, 1, 2, read=read)
    assert job.until(messages.Release, read) == pytest.approx(seconds, abs=0.11)


def test_its_time_is_over_at_that_second() -> None:
    job = Running()
    job.hears(FAILED, sender=2)
    job.until(messages.Stop)
    job.stopped(0, 1, 2)
    job.now += 1.0
    assert sent(job.told(events.OutputProgress(100, True)), messages.Release)


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("", "EP601 rank 4 on worker-2 (c) exited with 143 (128 + SIGTERM)"),
        ("so", "EP601 rank 4 on worker-2 (c) exited with 143 (128 + SIGTERM), so"),
        ("EP410 no log | full | make room", "EP410 no log | full on worker-2 (c) | make room"),
    ],
)
def test_a_rank_s_end_names_its_node(why: str, reason: str) -> None:
    job = Running()
    job.hears(messages.RankEnd(4, 143, (), why), sender=2)
    job.waits(5.0)
    assert job.reason == reason


GIB = 1 << 30


def _reason_after(*memory: tuple[int, int] | None, why: str = "") -> str:
    """Return the outcome of a node that has answered with this memory, and is lost 2 s after its
    last answer and 0.5 s after its last message."""
    job = Running()
    for each in memory:
        job.hears(messages.Pong(0.0, 0, 0, each))
    job.now += 1.5
    job.hears(messages.Signal("SIGUSR1"))
    job.now += 0.5
    job.told(events.SessionLost(1, why))
    return job.reason


SESSION = "EP602 worker-1 (b) is lost: its session ended, last message 0.5s before"


@pytest.mark.promise("the loss of a node whose memory was nearly used up says so")
def test_a_loss_says_that_the_memory_of_the_container_was_nearly_used_up() -> None:
    """The kernel may kill all of a container (memory.oom.group), so no other word comes from it."""
    use = "; its container used 31.2 GiB of 32 GiB at its last answer, 2.0s before"
    assert _reason_after((GIB, 32 * GIB), (int(31.2 * GIB), 32 * GIB)) == SESSION + use


@pytest.mark.control("the loss of a node whose memory was nearly used up says so")
@pytest.mark.parametrize(
    "memory",
    [(), (None,), ((28 * GIB, 32 * GIB),), ((32 * GIB, 32 * GIB), (GIB, 32 * GIB)), ((1, 1), None)],
)
def test_a_loss_says_nothing_of_memory_that_was_not(memory: tuple[Any, ...]) -> None:
    assert _reason_after(*memory) == SESSION


def test_a_lie_about_memory_is_only_a_wrong_number() -> None:
    assert _reason_after((0, 0)).startswith(SESSION)
    assert len(_reason_after(((1 << 62), 1))) < 200
    assert _reason_after((1, 1), why="it is wrong") == "EP602 worker-1 (b) is lost: it is wrong"


@pytest.mark.parametrize("has_started", [False, True])
def test_a_node_that_comes_back_is_awaited_again_at_the_end(has_started: bool) -> None:
    """Whatever it has said before it was lost."""
    node = Node(launcher="elastic")
    if has_started:
        node.start()
    node.answers(1)
    node.hears(messages.Stopped())
    node.told(events.SessionLost(1))
    node.answers(1)
    if not has_started:
        node.start(2)
    node.told(events.Faulted(Outcome(71, "its sshd ended")))
    for sender, goes_on in ((0, False), (2, False), (1, True)):
        done = node.hears(messages.Stopped(), sender=sender)
        assert bool(sent(done, messages.ReleaseFailedRanks)) == goes_on


def test_a_node_that_does_not_answer_delays_that_for_a_moment_only() -> None:
    job = Running()
    job.hears(KILLED, sender=2)
    job.answer(1, 0, 1)
    assert job.until(messages.Stop) == pytest.approx(0.2)


@pytest.mark.parametrize(("status", "seconds"), [(7, 0.5), (143, 0.5), (137, 0.2)])
def test_a_killed_rank_ends_the_others_soon(status: int, seconds: float) -> None:
    """The control: others may fail for the same reason, or the cause may be heard later."""
    job = Running()
    job.hears(*ends(4, status=status), sender=2)
    assert job.until(messages.Stop) == pytest.approx(seconds)


def test_a_node_that_may_be_frozen_has_time_to_hear_the_result() -> None:
    job = Running()
    job.hears(FAILED, sender=2)
    job.until(messages.Stop)
    job.stopped(0, 1, 2)
    job.told(events.LaunchersGone())
    job.hears(messages.Goodbye(), sender=1)
    begun, done = job.now, list[Any]()
    while not has_ended(done):
        job.now = job.machine.wake
        done += job.told(events.TimerFired())
    assert logged(done) == [
        "EP618 the result is known; waiting 18s at most for worker-2 (c) to receive it"
    ]
    assert job.now - begun <= 20.0, "with the 2 s in which the others leave"


# --------------------------------------------------------------------------------------------------
# A worker's last word


def worker(stopping: bool = True) -> Node:
    """Worker-1, which its leader has called; and whose ranks the leader has stopped."""
    node = Node(me=1, launcher="torchrun")
    node.hears(node.hello, sender=0)
    if stopping:
        node.hears(messages.Start(1), messages.Stop(10.0), sender=0)
    return node


def has_ended(done: list[Any]) -> bool:
    return any(isinstance(each, actions.EndNode) for each in done)


@pytest.mark.promise("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
def test_a_released_worker_stays_until_the_leader_ends_the_session() -> None:
    node = worker()
    node.hears(messages.Stopped())
    done = node.hears(RELEASE, sender=0)
    assert actions.Send(0, messages.Goodbye()) in done
    assert not has_ended(done)
    node.now += 1.0
    assert not has_ended(node.hears(messages.Pong(0.0, 0))), "nothing else ends it"
    assert END in node.told(events.SessionLost(0))


@pytest.mark.control("a worker leaves when worker-0 has read its goodbye, or 2 s after it")
def test_a_leader_that_does_nothing_holds_it_up_for_two_seconds() -> None:
    node = worker()
    node.hears(messages.Stopped())
    begun = node.now
    node.hears(RELEASE, sender=0)
    node.now += 1.5
    node.hears(RELEASE, sender=0)
    node.told(events.Signalled(15))
    done = node.told(events.Signalled(15, again=True))
    while not has_ended(done) and node.machine.wake < math.inf:
        node.now = max(node.now, node.machine.wake)
        done = node.told(events.TimerFired())
    assert END in done
    assert node.now - begun == pytest.approx(LIMIT), "whatever comes meanwhile"


class First(Node):
    """A job under torchrun that has succeeded when its first rank has; ranks of the nodes have
    failed."""

    def __init__(self, *failed: int) -> None:
        super().__init__(launcher="torchrun", success="first")
        self.failed = failed
        self.start()
        self.hears(messages.Ended(0, "rank 0", "rank 0 exited with 0", (), last=True), sender=0)

    def reply(self, node: int, message: Any) -> list[Any]:
        if isinstance(message, messages.Ping):
            return [messages.Pong(0.0, message.number, int(node in self.failed))]
        return []


@pytest.mark.promise("with `success: first` the end of rank 0 ends the job, and the others save")
def test_the_first_rank_s_end_is_the_job_s() -> None:
    job = First()
    job.waits(2.0)
    assert job.outcome
    assert (job.outcome.status, job.reason) == (
        0,
        "rank 0 on worker-0 (a) exited with 0 (success: first)",
    )


@pytest.mark.control("with `success: first` the end of rank 0 ends the job, and the others save")
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_a_rank_that_has_failed_before_is_left_to_its_launcher(failed: int) -> None:
    """torchrun ends with it, or starts all ranks again, rank 0 too."""
    job = First(failed)
    job.waits(5.0)
    assert job.outcome is None
    end = messages.Ended(5, "rank 3", "rank 3 exited with 5", (), last=True)
    job.hears(end, sender=failed)
    job.waits(5.0)
    assert job.outcome
    assert job.outcome.status == 5


class Suspended(Running):
    """The same leader, suspended for so long while all nodes stop."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.hears(FAILED, sender=2)
        self.until(messages.Stop)
        self.told(events.TimerFired())
        self.now += seconds
        self.told(events.TimerFired())

    def pongs(self) -> list[Any]:
        """Its own node has stopped, and the launcher ends; return the questions that follow."""
        self.stopped(0, 1, 2)
        done = self.told(events.LaunchersGone())
        return [each for each in sent(done, messages.Ping) if each.message.number]

    def release(self) -> messages.Release:
        """What all nodes are told once they have answered."""
        asked = self.pongs()
        for each in asked:
            self.hears(messages.Pong(0.0, each.message.number), sender=each.node)
        return next(each.message for each in sent(self.done, messages.Release))


@pytest.mark.parametrize(("seconds", "status"), [(11.0, 7), (16.0, 7), (40.0, 75)])
def test_a_leader_that_was_suspended_while_all_stop_ends_as_its_workers_do(
    seconds: float, status: int
) -> None:
    """By its own clock alone. One that was suspended for nearly as long as they wait asks them."""
    release = Suspended(seconds).release()
    assert release.status == status
    assert ("was suspended for" in release.reason) == (status == 75)
    assert "exited with 7" in release.reason, "what it was ending for"


@pytest.mark.parametrize("says", [False, True])
def test_a_worker_that_has_lost_the_leader_decides_for_all(says: bool) -> None:
    """By its word, also where the leader's clock has stood still with it."""
    job = Running()
    job.hears(FAILED, sender=2)
    job.until(messages.Stop)
    if says:
        job.hears(messages.Failed(75, "worker-0 (a) is lost", False, False), sender=1)
    job.told(events.SessionLost(1, "its session ended"))
    job.stopped(0, 2)
    done = job.told(events.LaunchersGone())
    release = next(each.message for each in sent(done, messages.Release))
    assert release.status == (75 if says else 7)


@pytest.mark.promise(
    "a node whose own program has failed believes no success", control="its case with 0"
)
@pytest.mark.parametrize(("status", "end"), [(7, 75), (0, 0)])
def test_a_worker_that_knows_of_its_own_failed_program_believes_no_success(
    status: int, end: int
) -> None:
    node = Node(1, launcher="plain")
    node.hears(node.hello, messages.Start(1), sender=0)
    node.hears(messages.Ended(status, "plain", f"plain exited with {status}", (), True), sender=1)
    node.hears(RELEASE, sender=0)
    assert node.machine.outcome.status == end
    assert ("release of a success after a failure there" in node.machine.outcome.reason) == bool(
        end
    )
