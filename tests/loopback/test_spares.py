"""Jobs with spares: a node that is lost, cannot work or is to blame twice is replaced."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.system.proc import descendants
from tests.cluster import RUN, Cluster, Make, processes
from tests.waits import until

# Each attempt notes which node has which place in the job, then waits for the file `over`.
PROGRAM = """
place=${OMPI_COMM_WORLD_RANK:-${NODE_RANK:-$PMI_RANK}}
echo "place=$place node=$NODE attempt=up"
while [ ! -e over ]; do sleep 0.05; done
exit 0
"""


def start(job: Cluster, rank: int, launcher: str) -> None:
    argv = (*RUN, "--launcher", launcher, "--spares", "1", "--restarts", "3")
    # a node that does not come back is replaced 1.2 * 2 + 2 + 2 s after its loss
    settings = {"GRACE": "2", "JOIN": "3", "HEARTBEAT": "2"}
    settings = {f"ENTRYPOINT_TIMEOUTS_{name}": value for name, value in settings.items()}
    job.start(rank, argv=(*argv, "--", "sh", "-c", PROGRAM), env=settings)


def places(job: Cluster) -> list[tuple[str, str]]:
    """Where each place of the job ran, in the order of the starts: place and node."""
    files = sorted(job.folder.glob("out-*"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(
        (line.split("place=")[1].split()[0], line.split("node=")[1].split()[0])
        for line in lines
        if "attempt=up" in line
    )


def running(job: Cluster, launcher: str) -> Cluster:
    """Start it, and wait until all ranks but that of the spare are up."""
    for rank in range(job.nodes):
        start(job, rank, launcher)
    until(lambda: len(places(job)) == job.nodes - 1, "the ranks are up")
    return job


def results(job: Cluster, ranks: list[int]) -> list[dict[str, object]]:
    files = [job.folder / f"n{rank}-state.json" for rank in ranks]
    return [json.loads(file.read_text())["result"] for file in files]


@pytest.mark.promise("a lost node is replaced by a spare in the next attempt")
def test_a_spare_takes_the_place_of_a_lost_node(cluster: Make) -> None:
    job = running(cluster(4, slots=1), "mpirun")
    assert places(job) == [("0", "0"), ("1", "1"), ("2", "2")], job.both()
    assert "this node waits as a spare" in job.err(3), job.both()
    job.signal(1, signal.SIGKILL)
    job.processes.pop(1).wait()
    until(lambda: len(places(job)) == 6, "the second attempt")
    assert places(job)[-4:] == [("1", "1"), ("1", "3"), ("2", "2"), ("2", "2")], job.both()
    assert (
        "EP623 worker-3 (node-3) takes the place of worker-1 (node-1): EP602 worker-1 (node-1) is"
        " lost" in job.err(0)
    ), job.both()
    (job.folder / "over").touch()
    assert job.ends() == {0: 0, 2: 0, 3: 0}, job.both()
    for result in results(job, [0, 2, 3]):
        (excluded,) = result["excluded"]  # type: ignore[misc]
        assert (excluded["node"], excluded["host"]) == ("worker-1", "node-1")
        assert "EP602 worker-1 (node-1) is lost" in excluded["why"]


@pytest.mark.control("a lost node is replaced by a spare in the next attempt")
def test_without_a_loss_the_spare_waits_and_ends_with_the_job(cluster: Make) -> None:
    job = running(cluster(3, slots=1), "mpirun")
    (job.folder / "over").touch()
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert places(job) == [("0", "0"), ("1", "1")], job.both()
    assert all("excluded" not in result for result in results(job, [0, 1, 2]))


def leave(job: Cluster, rank: int) -> int:
    """Have a node leave, and wait until nothing runs there; return the command's status."""
    words = (sys.executable, "-m", "entrypoint", "leave", "--wait", "--run-dir")
    return subprocess.run([*words, str(job.folder / f"n{rank}")], check=False).returncode


@pytest.mark.promise("a worker that is told to stop leaves, and the others go on")
@pytest.mark.parametrize("launcher", ["mpirun", "plain"])
def test_a_worker_leaves_and_a_spare_takes_its_place(cluster: Make, launcher: str) -> None:
    job = running(cluster(4, slots=1), launcher)
    if launcher == "mpirun":
        job.signal(1, signal.SIGTERM)
    else:
        assert leave(job, 1) == 0, job.both()
    assert job.processes.pop(1).wait() == 143, job.both()
    until(lambda: len(places(job)) == 6, "the second attempt")
    assert places(job)[-4:] == [("1", "1"), ("1", "3"), ("2", "2"), ("2", "2")], job.both()
    assert "attempt 1 of 5 is over: EP611 worker-1 (node-1) leaves" in job.err(0), job.both()
    (job.folder / "over").touch()
    assert job.ends() == {0: 0, 2: 0, 3: 0}, job.both()


@pytest.mark.control("a worker that is told to stop leaves, and the others go on")
def test_worker_0_cannot_leave(cluster: Make) -> None:
    job = running(cluster(3, slots=1), "plain")
    assert leave(job, 0) == 64, job.both()
    for rank in (1, 0):
        job.signal(rank, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143, 2: 143}, job.both()


# Notes when it starts and ends, and needs most of its grace to end.
SAVES = """
import os, signal, sys, time
def note(what):
    with open("times", "a") as file:
        file.write(f"{what} {os.environ['NODE']} {time.monotonic()}\\n")
def save(*_):
    time.sleep(8 if os.environ["NODE"] == "1" else 0)
    note("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
note("start")
while not os.path.exists("over"):
    time.sleep(0.05)
note("end")
"""


def times(job: Cluster) -> list[tuple[float, str, str]]:
    """When ranks have started and ended, and on which node, in that order."""
    lines = [line for file in job.folder.glob("times") for line in file.read_text().splitlines()]
    return sorted((float(when), what, node) for what, node, when in map(str.split, lines))


def saving(job: Cluster, rank: int) -> None:
    settings = {"GRACE": "12", "JOIN": "0.5", "HEARTBEAT": "3"}
    env = {f"ENTRYPOINT_TIMEOUTS_{name}": value for name, value in settings.items()}
    argv = (*RUN, "--launcher", "plain", "--spares", "1", "--restarts", "3")
    job.start(rank, argv=(*argv, "--", sys.executable, "-c", SAVES), env=env)


def started(job: Cluster) -> set[str]:
    return {node for _, what, node in times(job) if what == "start"}


def all_saving(job: Cluster) -> Cluster:
    """Start it on three nodes, and wait until two ranks are up."""
    for rank in reversed(range(3)):
        saving(job, rank)
    until(lambda: started(job) == {"0", "1"}, "two ranks up")
    return job


def overlap(job: Cluster) -> float:
    """Seconds for which the rank of node 1 in the first attempt ran beside one of the second."""
    ends = (when for when, what, node in times(job) if (what, node) == ("end", "1"))
    starts = [when for when, what, _ in times(job) if what == "start"]
    return next(ends, math.inf) - starts[2]


@pytest.mark.promise("ranks of two attempts never run at the same time")
@pytest.mark.parametrize("fault", ["worker-0", "sshd", "sshd and worker-0"])
def test_the_next_attempt_starts_when_the_ranks_of_the_last_one_have_ended(
    cluster: Make, fault: str
) -> None:
    """Worker-0 is killed and comes back at once, or all sshd of worker-1 are, while its rank needs
    8 s to save."""
    job = all_saving(cluster(3, slots=1))
    if "sshd" in fault:
        kill_sshd(job, 1)
    if "worker-0" in fault:
        job.signal(0, signal.SIGKILL)
        job.processes.pop(0).wait()
        (job.folder / "err-0").rename(job.folder / "err-0-first")
        saving(job, 0)
    until(lambda: sum(what == "start" for _, what, _ in times(job)) == 4, "the next attempt")
    assert overlap(job) <= 0, job.both()
    (job.folder / "over").touch()
    ends = job.ends()
    assert (ends[0], ends[2]) == (0, 0), job.both()


@pytest.mark.promise("ranks of two attempts never run at the same time")
def test_a_new_worker_0_waits_for_an_old_one_that_fell_silent(cluster: Make) -> None:
    """It may only be cut off, and run its own rank until it has noticed that."""
    job = all_saving(cluster(3, slots=1))
    job.signal(0, signal.SIGSTOP)
    until(lambda: all("is over" in job.err(rank) for rank in (1, 2)), "the others' ends")
    job.signal(0, signal.SIGKILL)
    job.processes.pop(0).wait()
    saving(job, 0)
    said = "s at most: ranks of the last attempt may run on worker-0 (node-0) until then"
    until(lambda: said in job.err(0), "that it waits")
    until(lambda: sum(what == "start" for _, what, _ in times(job)) == 4, "the next attempt")
    (job.folder / "over").touch()
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()


def kill_sshd(job: Cluster, rank: int) -> None:
    """Kill all sshd processes of a node, its sessions' too."""
    mark = os.fsencode(job.run_dir(rank))
    parent = next(
        pid
        for pid, line in processes(job.folder).items()
        if "sshd" in line and mark in line.encode() and "-D" in line
    )
    for pid in (*descendants(parent), parent):
        if "sshd" in Path(f"/proc/{pid}/comm").read_text():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.control("a node whose rank hangs twice is replaced by a spare")
def test_a_job_in_which_both_nodes_hang_replaces_none(cluster: Make) -> None:
    job = cluster(3, slots=1)
    stall = {"ENTRYPOINT_STALL_MINUTES": "0.005", "ENTRYPOINT_STALL_ACTION": "stop"}
    argv = (*RUN, "--launcher", "plain", "--spares", "1", "--restarts", "2", "--", "sleep", "600")
    for rank in range(3):
        job.start(rank, argv=argv, env={**stall, "ENTRYPOINT_TIMEOUTS_JOIN": "3"})
    assert job.ends() == {0: 75, 1: 75, 2: 75}, job.both()
    assert job.err(0).count("is over: EP610") == 2, job.both()
    assert "EP623" not in job.err(0), job.both()
