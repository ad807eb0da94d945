"""The gate before each attempt, in real jobs on two nodes: a node that is not healthy never gets a
rank, and memory that is held delays the start."""

from __future__ import annotations

import os

import pytest

from tests.cluster import Cluster, Make
from tests.smi import calls, simulated_smi

RUNS = ("echo", "started")


def tools(job: Cluster, *ecc: int, held: float = 0.0) -> list[dict[str, str]]:
    """Return the variables of each node, whose simulated tool reports so many errors of a card."""
    folders = [
        simulated_smi(job.folder / f"bin-{rank}", ecc=(0, number), held=held if rank else 0.0)
        for rank, number in enumerate(ecc)
    ]
    return [
        {"PATH": f"{folder}:{os.environ['PATH']}", "ENTRYPOINT_RESTARTS": "1"} for folder in folders
    ]


def health(job: Cluster, rank: int, script: str) -> dict[str, str]:
    """Return the variables of a node that runs this script in its gate."""
    folder = job.folder / f"health-{rank}"
    folder.mkdir()
    file = folder / "10-check"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"ENTRYPOINT_GATE_FOLDER": str(folder)}


def start(
    job: Cluster,
    env: list[dict[str, str]],
    *command: str,
    launcher: str = "plain",
) -> None:
    for rank in reversed(range(job.nodes)):
        job.start(rank, *(command or RUNS), env=env[rank], launcher=launcher)


def started(job: Cluster) -> int:
    """Return how many ranks have started."""
    return "".join(map(job.out, range(job.nodes))).count("started\n")


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
def test_a_node_with_errors_of_a_card_never_gets_a_rank(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, tools(job, 0, 4), launcher="mpirun")
    assert job.ends() == {0: 71, 1: 71}, job.both()
    name = "worker-1 (node-1)"
    problem = "GPU 1: 4 uncorrectable memory errors since the driver was loaded"
    for rank in (0, 1):
        said = f"EP460 a node is not healthy | {problem} on {name}; exit 71"
        assert said in job.err(rank), job.both()
        assert f"cause: a node is not healthy on {name} (node; retry elsewhere)" in job.err(rank)
    assert started(job) == 0


@pytest.mark.control("a node that does not pass its gate never gets a rank")
def test_nodes_that_are_healthy_get_their_ranks(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, tools(job, 0, 0), launcher="mpirun")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert started(job) == 2
    assert [calls(job.folder / f"bin-{rank}") for rank in (0, 1)] == [1, 1]


def test_a_job_that_cannot_start_again_asks_no_tool(cluster: Make) -> None:
    job = cluster(2, slots=1)
    env = [{**each, "ENTRYPOINT_RESTARTS": "0"} for each in tools(job, 0, 4)]
    start(job, env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert calls(job.folder / "bin-1") == 0


@pytest.mark.promise(
    "an attempt waits until the memory of the cards is free, and says who holds it"
)
def test_memory_that_is_held_delays_the_start(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, tools(job, 0, 0, held=3))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    words = "the memory of cards is not free: GPU 0: 20480 MiB in use: pid 77 python"
    assert words in job.err(1)
    assert words in job.err(0), "the leader says what it waits for"
    assert calls(job.folder / "bin-1") > 1 == calls(job.folder / "bin-0"), "asked until it is free"
    assert started(job) == 2


@pytest.mark.parametrize(("script", "status"), [("echo it is hot; exit 1", 71), ("true", 0)])
def test_one_node_alone_has_a_gate(cluster: Make, script: str, status: int) -> None:
    """Also where the entrypoint becomes the program."""
    job = cluster(1, slots=1)
    start(job, [health(job, 0, script)])
    assert job.ends() == {0: status}, job.both()
    assert started(job) == (0 if status else 1)
    assert ("EP460 a node is not healthy | 10-check: it is hot" in job.err(0)) == bool(status)
