"""Readers of the job's output: one that leaves, one that never reads, and a job that fails with
much on its way."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time

import pytest

from tests.cluster import Cluster, Make


def piped(job: Cluster, *program: str, stderr: int | None = None, **env: str) -> int:
    """Start both nodes; return the end of the pipe that is worker-0's stdout."""
    job.start(1, *program, env=env)
    reading, writing = os.pipe()
    job.start(0, *program, env=env, stdout=writing, stderr=stderr)
    os.close(writing)
    return reading


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
def test_the_reader_of_stdout_leaves(cluster: Make) -> None:
    """As `| head -1`: the program's own end, and who left is named."""
    job = cluster(nodes=2, slots=2)
    program = ("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do seq 2000; sleep 0.1; done; exit 7")
    reading = piped(job, *program)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    assert job.ends() == {0: 7, 1: 7}, job.err()
    assert job.err().count("EP627 nobody reads stdout any more") == 1, job.err()


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_stderr_that_is_full_holds_up_nobody(cluster: Make) -> None:
    """mpirun would wait for a reader with a warning of its own, and no rank would start. The job is
    longer than a heartbeat."""
    job = cluster(nodes=2, slots=1)
    unread, full = os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(full, b"x" * 4096):
            pass
    os.set_blocking(full, True)
    env = {
        "OPENMPI_EXTRA_ARGS": "-mca plm_base_verbose 5",  # mpirun's own words
        "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "1",
    }
    reading = piped(job, "sh", "-c", "sleep 2; echo up", stderr=full, **env)
    assert job.ends() == {0: 0, 1: 0}
    assert os.read(reading, 100) == b"up\nup\n"
    for end in (reading, unread, full):
        os.close(end)


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_reader_that_pauses_while_a_rank_fails(cluster: Make) -> None:
    """mpirun has all of it meanwhile, and loses it with the daemon of a node that has left."""
    job = cluster(nodes=2, slots=1)
    code = "import os, time; os.write(1, b'line\\n' * 400000)"
    code += "; os._exit(7) if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else time.sleep(600)"
    program = (sys.executable, "-c", code)
    reading = piped(job, *program)
    taken = len(os.read(reading, 65536))
    time.sleep(8)
    while data := os.read(reading, 65536):
        taken += len(data)
    assert set(job.ends().values()) == {7}
    assert taken == 2 * 5 * 400_000, job.err()


@pytest.mark.control("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_reader_that_stops_is_given_up_and_what_is_lost_is_said(cluster: Make) -> None:
    job = cluster(nodes=2, slots=1)
    code = "import os, time; os.environ['OMPI_COMM_WORLD_RANK'] == '1' or time.sleep(600)"
    code += "; os.write(1, b'line\\n' * 200000); os._exit(7)"
    program = (sys.executable, "-c", code)
    reading = piped(job, *program, ENTRYPOINT_TIMEOUTS_GRACE="5")
    assert set(job.ends().values()) == {7}
    assert re.search(r"EP628 .* (\d+) bytes", job.err()), job.err()
    os.close(reading)
