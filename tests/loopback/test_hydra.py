"""MPICH and Intel MPI on nodes of this machine: their real mpiexec.hydra, over the roll call's
sessions.

--with names a Python with the wheels of each; Debian's MPICH is tried in containers.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make
from tests.waits import until

STAYS = (
    "trap 'sleep 0.3; echo rank $PMI_RANK told; exit 0' TERM; echo rank $PMI_RANK is up; while :;"
    " do sleep 0.05; done"
)


@pytest.fixture(params=["mpich", pytest.param("impi", marks=pytest.mark.slow)])
def path(request: pytest.FixtureRequest, python_with: Callable[[str], str]) -> str:
    """PATH with one mpiexec.hydra first, and a Python that has mpi4py for it."""
    return f"{Path(python_with(request.param)).parent}:/usr/bin:/bin"


def start(job: Cluster, path: str, *command: str, **more: str) -> None:
    for rank in reversed(range(job.nodes)):
        env = {
            "PATH": path,
            "DEMO_NODE": f"node-{rank}",
            "OWN": f"it's node {rank}",
            "OMP_NUM_THREADS": "1",
            **more,
        }
        job.start(rank, *command, env=env, launcher="hydra")


@pytest.mark.control("ranks of MPICH and Intel MPI are supervised as those of Open MPI")
def test_every_rank_is_where_it_belongs_with_its_own_nodes_environment(
    cluster: Make, path: str
) -> None:
    job = cluster(3)
    words = (
        "$RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $NODE_RANK: $OWN, $*"
    )
    start(job, path, "sh", "-c", f'echo "{words}"', "sh", "a  b", ":", "$HOME")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == [
        f"{rank} of 6, local {rank % 2} of 2, node {rank // 2}: it's node {rank // 2}, a  b : $HOME"
        for rank in range(6)
    ]
    assert "6 ranks on 3 nodes: worker-0 (node-0) 0-1, worker-1 (node-1) 2-3, " in job.err(0)
    assert "is still running" not in job.err(0)  # its agents have
    assert job.survivors() == []


AFTER = """
import sys, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
MPI.COMM_WORLD.Barrier()
MPI.Finalize()
time.sleep(rank)
print(f"rank {rank} saved", flush=True)
"""


@pytest.mark.control("ranks of MPICH and Intel MPI that end without MPI_Finalize cost no grace")
def test_ranks_may_work_on_when_the_first_has_ended(cluster: Make, path: str) -> None:
    job = cluster(1, slots=3)
    start(job, path, "python", "-c", AFTER)
    assert job.ends() == {0: 0}, job.both()
    assert job.out(0).splitlines() == [f"rank {rank} saved" for rank in range(3)]


TOLD = """
import os, signal, time
from mpi4py import MPI
def told(number, frame):
    time.sleep(0.5 * rank)
    print(f"rank {rank} told", flush=True)
    os._exit(0)
rank = MPI.COMM_WORLD.rank
signal.signal(signal.SIGTERM, told)
MPI.COMM_WORLD.Barrier()
print(f"rank {rank} is up", flush=True)
while rank or not FAILS:
    time.sleep(0.05)
time.sleep(0.5)
os._exit(7)
"""


@pytest.mark.promise("ranks of MPICH and Intel MPI that end without MPI_Finalize cost no grace")
@pytest.mark.parametrize("fails", [True, False], ids=["a-rank-fails", "sigterm"])
def test_ranks_that_leave_without_finalize_take_nobody_s_grace(
    cluster: Make, path: str, fails: bool
) -> None:
    job = cluster(1, slots=4)
    start(job, path, "python", "-c", TOLD.replace("FAILS", str(fails)))
    until(lambda: len(re.findall(r"rank \d is up", job.out(0))) == 4, "all ranks are up")
    if not fails:
        job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 7 if fails else 143}, job.both()
    told = sorted(re.findall(r"rank (\d) told", job.out(0)))
    assert told == [str(rank) for rank in range(int(fails), 4)], job.both()
    assert "BAD TERMINATION" not in job.both()


@pytest.mark.promise("ranks of MPICH and Intel MPI are supervised as those of Open MPI")
def test_the_first_failing_rank_is_the_job_s_result(cluster: Make, path: str) -> None:
    job = cluster(2)
    go = job.folder / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; echo out; exit 7"
    start(job, path, "sh", "-c", f'if [ "$PMI_RANK" = 3 ]; then {waits}; fi; {STAYS}')
    until(lambda: len(re.findall(r"rank \d is up", job.out(0))) == 3, "the other ranks are up")
    go.touch()
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert "rank 3 on worker-1 (node-1) exited with 7" in job.err(1), job.both()
    assert sorted(re.findall(r"rank (\d) told", job.out(0))) == ["0", "1", "2"], job.both()
    assert job.survivors() == []


@pytest.mark.promise("ranks of MPICH and Intel MPI are supervised as those of Open MPI")
def test_sigterm_reaches_every_rank_which_has_its_grace(cluster: Make, path: str) -> None:
    job = cluster(2)
    start(job, path, "sh", "-c", STAYS)
    until(lambda: len(re.findall(r"rank \d is up", job.out(0))) == 4, "all ranks are up")
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert sorted(re.findall(r"rank (\d) told", job.out(0))) == ["0", "1", "2", "3"], job.both()
    assert job.survivors() == []
