"""A worker is killed while all train: a spare has its place in the next attempt, and the training
goes on from its checkpoint as if nothing had been lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.containers import exit_code, kill, stop
from tests.faults.faultjob import Job, Make
from tests.restarts.train import EVERY, reference
from tests.waits import until

HOSTS = [f"worker-{rank}" for rank in range(5)]
WORKING, LOST = 4, "worker-2"
STEPS, PAUSE = 40, 0.25  # ten seconds in which a worker can be killed
SECONDS = 240  # for all attempts of a job on a busy machine
pytestmark = [pytest.mark.timeout(2 * SECONDS)]
Begin = Callable[[str], Job]


@pytest.fixture
def begin(make: Make, folder: Path) -> Begin:
    """Start the training on four nodes and a spare."""
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)  # the image's user is not this one

    def start(launcher: str) -> Job:
        job = make(launcher, len(HOSTS))
        mounts = (
            *("-v", f"{Path(__file__).with_name('train.py')}:/job/train.py:ro"),
            *("-v", f"{shared}:/shared", "-w", "/job"),
        )
        env = {
            "ENTRYPOINT_SPARES": "1",
            "ENTRYPOINT_RESTARTS": "3",
            "ENTRYPOINT_TIMEOUTS_PEERS": "120",
            "ENTRYPOINT_TIMEOUTS_GRACE": "5",
        }
        python = ["python3"] if launcher != "torchrun" else []
        words = [*python, "train.py", "/shared", str(STEPS), str(PAUSE)]
        job.start(*words, env=env, options={"": mounts})
        return job

    return start


def losses(job: Job) -> list[tuple[int, float]]:
    """The steps that rank 0 printed, on whatever node it ran, in the order of the attempts."""
    found = re.findall(r"step (\d+) loss (\S+)", job.logs())
    return [(int(step), float(loss)) for step, loss in found]


def starts(job: Job) -> list[tuple[int, str, int, int]]:
    """Rank, host, attempt and first step of each start of a rank."""
    pattern = rf"rank (\d+) of {WORKING} on (\S+), attempt (\d+), from step (\d+)"
    found = {*re.findall(pattern, job.logs())}
    return sorted((int(rank), host, int(attempt), int(step)) for rank, host, attempt, step in found)


def agree(job: Job) -> None:
    """Every step, in whatever attempt, has the loss of a job that has lost nobody."""
    wanted, found = reference(WORKING, STEPS), losses(job)
    assert {step for step, _ in found} == set(range(STEPS)), job.logs()
    for step, loss in found:
        assert loss == pytest.approx(wanted[step], rel=1e-9), (step, job.logs())


@pytest.mark.parametrize("ends", [kill, stop])
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun", "plain"])
@pytest.mark.promise(
    "with a spare, a lost worker costs no more than the steps since the checkpoint"
)
@pytest.mark.promise("a worker that is told to stop leaves, and the others go on")
def test_the_spare_takes_the_place_of_a_worker_that_is_killed_or_leaves(
    begin: Begin, launcher: str, ends: Callable[[str], object]
) -> None:
    job = begin(launcher)
    until(lambda: any(step > 2 * EVERY for step, _ in losses(job)), "it trains")
    assert {host for _, host, _, _ in starts(job)} == {*HOSTS[:WORKING]}, job.logs()
    ends(job.boxes[LOST])
    survivors = [host for host in HOSTS if host != LOST]
    # The killed container's own status and time say nothing about the job's.
    assert job.ends(SECONDS, survivors) == dict.fromkeys(survivors, 0), job.logs()
    agree(job)
    again = [each for each in starts(job) if each[2] == 2]
    assert {host for _, host, _, _ in again} == {*survivors}, job.logs()
    assert sorted(rank for rank, *_ in again) == [*range(WORKING)], job.logs()
    (first,) = {step for *_, step in again}
    assert first >= 2 * EVERY, job.logs()
    assert first % EVERY == 0
    says = f"EP602 {LOST} is lost" if ends is kill else f"EP611 {LOST} leaves"
    assert f"EP623 worker-4 takes the place of {LOST}: {says}" in job.log("worker-0"), job.logs()
    assert exit_code(job.boxes[LOST]) == (137 if ends is kill else 143), job.logs()


@pytest.mark.control(
    "with a spare, a lost worker costs no more than the steps since the checkpoint"
)
def test_without_a_loss_it_is_one_attempt(begin: Begin) -> None:
    job = begin("torchrun")
    assert job.ends(SECONDS) == dict.fromkeys(HOSTS, 0), job.logs()
    agree(job)
    assert [host for _, host, _, _ in starts(job)] == HOSTS[:WORKING]
    assert {attempt for _, _, attempt, _ in starts(job)} == {1}, job.logs()
    assert [step for step, _ in losses(job)] == [*range(STEPS)], "no step twice"
