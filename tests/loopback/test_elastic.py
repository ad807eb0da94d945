"""Elastic torchrun on nodes of this machine: real torch, whose agents meet anew when a node goes or
comes."""

from __future__ import annotations

import re
import signal
from shlex import split

import pytest

from tests import TREE
from tests.cluster import RUN, Cluster, Make, free_port
from tests.rows import agrees
from tests.waits import until

pytestmark = [pytest.mark.slow]
# Says who it is, and stays until the folder has a file `enough`; a later start of it is a new
# attempt of torch's.
WAITS = (
    'echo "up $RANK of $WORLD_SIZE on $NODE"; until [ -e enough ]; do sleep 0.05; done; echo "done'
    ' $WORLD_SIZE"'
)


class Job:
    def __init__(self, made: Cluster, python: str) -> None:
        self.cluster, self.python, self.port = made, python, str(free_port())

    def start(self, rank: int, *command: str, **more: str) -> None:
        env = {
            "PYTHON": self.python,
            "ENTRYPOINT_PORT": self.port,
            "ENTRYPOINT_NODES": "2:3",
            "ENTRYPOINT_TIMEOUTS_JOIN": "2",
            "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3",
            "TORCHRUN_EXTRA_ARGS": "--rdzv_conf=last_call_timeout=1,keep_alive_interval=1",
            "OMP_NUM_THREADS": "1",
            "DEMO_NODE": f"node-{rank}",
            "TMPDIR": str(self.cluster.folder),
            **more,
        }
        argv = (*RUN, "--launcher", "torchrun", "--")
        argv += command or ("sh", "-c", WAITS)
        self.cluster.start(rank, argv=argv, env=env)

    def up(self, size: int, ranks: int = 0) -> None:
        """Wait until so many ranks say that they are this many."""

        def are_up() -> bool:
            said = "".join(self.cluster.out(rank) for rank in self.cluster.processes)
            return len(set(re.findall(rf"up (\d) of {size} on", said))) == (ranks or size)

        until(are_up, f"{size} ranks are up")

    def finish(self) -> dict[int, int]:
        (self.cluster.folder / "enough").touch()
        return self.cluster.ends()


@pytest.fixture
def job(cluster: Make, torch_python: str) -> Job:
    return Job(cluster(3, slots=1), torch_python)


@pytest.mark.promise(
    "an elastic job starts with the minimum, survives a lost node, admits a late one"
)
def test_two_of_three_are_enough_and_the_third_joins_late(job: Job) -> None:
    for rank in (1, 0):
        job.start(rank)
    job.up(2)
    assert "EP507 the job starts without worker-2 (node-2, " in job.cluster.err(0)
    assert "2 of 3 nodes are here, 2 slots" in job.cluster.err(0)
    job.start(2)
    job.up(3)
    assert "worker-2 (node-2) joins: 3 nodes" in job.cluster.err(0)
    assert job.finish() == {0: 0, 1: 0, 2: 0}, job.cluster.both()
    assert job.cluster.survivors() == []


@pytest.mark.promise(
    "an elastic job starts with the minimum, survives a lost node, admits a late one"
)
def test_the_job_goes_on_without_a_lost_node(job: Job) -> None:
    made = job.cluster
    options = split("--steps 100 --pause 0.2 --batch 48 --checkpoint")
    for rank in (2, 1, 0):
        program = str(TREE / "examples/pytorch/train.py")
        job.start(rank, program, *options, str(made.folder / "saved.pt"))
    # A node that is late, as on a busy machine, is taken in by a restart: the others may train as
    # two before it.
    begun = re.compile(r"rank 0 of 3 on .*\n(step 0 .*\n)?step [1-9]")
    until(lambda: any(begun.search(made.out(node)) for node in range(3)), "all train")
    made.signal(2, signal.SIGKILL)
    assert made.ends() == {0: 0, 1: 0, 2: -9}, made.both()
    assert "worker-2 (node-2) is lost" in made.err(0)
    assert "the job continues with 2 nodes" in made.err(0)
    after = "".join(made.out(node).rpartition(" of 3 on ")[2] for node in (0, 1))
    again = re.findall(
        r"rank (\d) of 2 on node-[01], local rank 0, pid \d+, from step [1-9]", after
    )
    assert set(again) == {"0", "1"}, made.both()
    agrees(made.both(), "1e-10")


@pytest.mark.control(
    "an elastic job starts with the minimum, survives a lost node, admits a late one"
)
def test_with_too_few_left_it_is_over(job: Job) -> None:
    for rank in (1, 0):
        job.start(rank, ENTRYPOINT_TIMEOUTS_GRACE="1")
    job.up(2)
    job.cluster.signal(1, signal.SIGKILL)
    assert job.cluster.ends() == {0: 75, 1: -9}, job.cluster.both()
    assert "worker-1 (node-1) is lost" in job.cluster.err(0)
