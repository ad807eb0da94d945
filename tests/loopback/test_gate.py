"""The gate before each attempt, in real jobs on two nodes: a node that is not healthy never gets a
rank."""

from __future__ import annotations

import os

import pytest

from tests.cluster import Cluster, Make
from tests.smi import calls, simulated_smi


def start(job: Cluster, launcher: str, restarts: str) -> None:
    """Start two nodes, of which the second has a card with four errors."""
    for rank in (1, 0):
        folder = simulated_smi(job.folder / f"bin-{rank}", ecc=(0, 4 * rank))
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "ENTRYPOINT_RESTARTS": restarts}
        job.start(rank, "echo", "started", env=env, launcher=launcher)


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
def test_a_node_with_errors_of_a_card_never_gets_a_rank(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, "mpirun", "1")
    assert job.ends() == {0: 71, 1: 71}, job.both()
    name = "worker-1 (node-1)"
    problem = "GPU 1: 4 uncorrectable memory errors since the driver was loaded"
    for rank in (0, 1):
        said = f"EP460 a node is not healthy | {problem} on {name}; exit 71"
        assert said in job.err(rank), job.both()
        assert f"cause: a node is not healthy on {name} (node; retry elsewhere)" in job.err(rank)
    assert "started" not in job.out(0) + job.out(1)


def test_a_job_that_cannot_start_again_asks_no_tool(cluster: Make) -> None:
    job = cluster(2, slots=1)
    start(job, "plain", "0")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert calls(job.folder / "bin-1") == 0
