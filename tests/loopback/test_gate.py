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


def test_a_job_that_cannot_start_again_asks_no_tool(cluster: Make) -> None:
    job = cluster(2, slots=1)
    env = [{**each, "ENTRYPOINT_RESTARTS": "0"} for each in tools(job, 0, 4)]
    start(job, env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert calls(job.folder / "bin-1") == 0
