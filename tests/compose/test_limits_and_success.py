"""A job that its deadline ends, and one that has succeeded when its first rank has, in real
containers under three launchers."""

from __future__ import annotations

import re

import pytest

from tests.composed import Compose

pytestmark = [
    pytest.mark.parametrize("launcher", ["mpirun", "torchrun", "jax"]),
]
# Each rank but a rank 0 that is done runs until SIGTERM, and needs two seconds to save.
PROGRAM = """\
import os, signal, sys, time
rank = os.environ.get("RANK") or os.environ["JAX_PROCESS_ID"]
def stop(*_):
    time.sleep(2)
    print(f"rank {rank} saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print(f"rank {rank} runs")
if rank == "0" and os.environ["END"] == "first":
    time.sleep(3)
    print("rank 0 is done")
    sys.exit(int(os.environ["STATUS"]))
time.sleep(600)
"""


def run(compose: Compose, launcher: str, end: str, status: int = 0) -> tuple[set[int], str]:
    """Run the job to its end. Return the statuses of its nodes, and all that they printed."""
    deadline = ", job: 15" if end == "deadline" else ""
    fields = f"timeouts: {{grace: 20{deadline}}}\n"
    fields += f"success: {'first' if end == 'first' else 'all'}\n"
    fields += f'env: {{END: {end}, STATUS: "{status}"}}\n'
    return compose.train("limits", launcher, PROGRAM, fields)


def ranks(log: str, what: str) -> set[str]:
    return set(re.findall(rf"rank (\d+) {what}", log))


@pytest.mark.promise("a deadline stops the job with 72 and its grace, under every launcher")
def test_a_deadline_ends_the_job_on_every_node(compose: Compose, launcher: str) -> None:
    statuses, log = run(compose, launcher, "deadline")
    assert statuses == {72}, log
    assert ranks(log, "runs") == ranks(log, "saved") == {"0", "1", "2", "3"}, log
    assert log.count("EP652 the job's deadline has passed | 15s") >= 2, log


@pytest.mark.control("a deadline stops the job with 72 and its grace, under every launcher")
@pytest.mark.promise("with `success: first` the end of rank 0 ends the job, and the others save")
def test_the_first_rank_ends_the_job(compose: Compose, launcher: str) -> None:
    """It has no deadline, and ends with 0 long before its other ranks would."""
    statuses, log = run(compose, launcher, "first")
    assert statuses == {0}, log
    assert ranks(log, "saved") == {"1", "2", "3"}, log
    assert log.count("exited with 0 (success: first)") == 2, log


@pytest.mark.control("with `success: first` the end of rank 0 ends the job, and the others save")
def test_a_first_rank_that_fails_ends_the_job_with_its_status(
    compose: Compose, launcher: str
) -> None:
    statuses, log = run(compose, launcher, "first", status=7)
    assert statuses == {7}, log
    assert "(success: first)" not in log, log
