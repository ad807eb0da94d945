"""The end of an attempt: what is said of the memory of a node that is lost, and a job that ends with
its first rank. The rest is in tests/transcripts/ending.txt."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.job import events, messages
from tests.unit.machine import Node

GIB = 1 << 30


def _reason_after(*memory: tuple[int, int] | None, why: str = "") -> str:
    """Return the outcome of a node that has answered with this memory, and is lost 2 s after its
    last answer and 0.5 s after its last message."""
    job = Node().start()
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
