"""Launchers that start a program on every node by itself: one verdict for all, by the roll call."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster, Make


def start(job: Cluster, program: str) -> None:
    job.start_all("sh", "-c", program, launcher="plain")


@pytest.mark.promise(
    "without mpirun too, a 1 gives way to the failure that caused it",
    control="its case in which nothing else fails",
)
@pytest.mark.parametrize("last", ["exit 7", "sleep 300"])
def test_a_1_that_may_be_the_consequence_waits_for_its_cause(cluster: Make, last: str) -> None:
    job = cluster(2)
    start(job, f"[ $NODE = 0 ] || exit 1; sleep 0.7; {last}")
    wanted = 7 if last == "exit 7" else 1
    assert job.ends() == {0: wanted, 1: wanted}, job.both()
    node = 0 if wanted == 7 else 1
    where = f" on worker-{node} (node-{node}) exited with {wanted}; exit {wanted}"
    assert where in job.err(1), job.both()
