"""Jobs with spares: a node that is lost, cannot work or is to blame twice is replaced."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cluster import RUN, Cluster, Make, until

# Each attempt notes which node has which place in the job, then waits for the file `over`.
PROGRAM = """
place=${OMPI_COMM_WORLD_RANK:-${NODE_RANK:-$PMI_RANK}}
echo "place=$place node=$NODE attempt=up"
while [ ! -e over ]; do sleep 0.05; done
exit 0
"""


def start(job: Cluster, rank: int, launcher: str) -> None:
    argv = (*RUN, "--launcher", launcher, "--spares", "1", "--restarts", "3")
    settings = {"ENTRYPOINT_TIMEOUTS_GRACE": "2", "ENTRYPOINT_TIMEOUTS_JOIN": "3"}
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


def results(job: Cluster, ranks: list[int]) -> list[dict[str, object]]:
    files = [job.folder / f"n{rank}-state.json" for rank in ranks]
    return [json.loads(file.read_text())["result"] for file in files]


@pytest.mark.promise("a lost node is replaced by a spare in the next attempt")
def test_a_spare_takes_the_place_of_a_lost_node(cluster: Make) -> None:
    job = cluster(4, slots=1)
    for rank in range(4):
        start(job, rank, "mpirun")
    until(lambda: len(places(job)) == 3, 60, "three ranks up")
    assert places(job) == [("0", "0"), ("1", "1"), ("2", "2")], job.both()
    assert "this node waits as a spare" in job.err(3), job.both()
    job.signal(1, signal.SIGKILL)
    job.processes.pop(1).wait()
    until(lambda: len(places(job)) == 6, 60, "the second attempt")
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
    job = cluster(3, slots=1)
    for rank in range(3):
        start(job, rank, "mpirun")
    until(lambda: len(places(job)) == 2, 60, "two ranks up")
    (job.folder / "over").touch()
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert places(job) == [("0", "0"), ("1", "1")], job.both()
    assert all("excluded" not in result for result in results(job, [0, 1, 2]))


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
