"""Hangs that are staged in real jobs of two nodes with two ranks each: the rank that the others wait
for is named. unit/test_hangs.py judges all kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make, free_port
from tests.waits import until

pytestmark = [pytest.mark.slow]
TRAIN = str(Path(__file__).parent / "train.py")
MINUTES = 1.0  # longer than the imports of torch take, under load too

WHO = r"rank 3 on worker-1 \(node-1\)"
WAIT = r"3 of 4 ranks wait in all_reduce, train\.py:\d+; "
# How -> what is said of it.
HANGS = {
    "order": rf"{WAIT}{WHO} waits in broadcast, train\.py:\d+",
    "worker": rf"{WAIT}{WHO} is in __next__\(\), train\.py:\d+;"
    r" its data worker, pid \d+, is in wait\(\), train\.py:\d+",
}


def start(job: Cluster, how: str, python: str, **more: str) -> None:
    env = {
        "PYTHON": python,
        "OMP_NUM_THREADS": "1",
        "ENTRYPOINT_PORT": str(free_port()),
        "ENTRYPOINT_STALL_MINUTES": str(MINUTES),
        "ENTRYPOINT_STALL_LINE": "step {step}",
        "ENTRYPOINT_TIMEOUTS_GRACE": "2",
        **more,
    }
    for rank in reversed(range(job.nodes)):
        job.start(rank, python, TRAIN, how, env=env, launcher="torchrun")


@pytest.mark.parametrize("how", HANGS)
def test_the_rank_that_the_others_wait_for_is_named(
    cluster: Make, torch_python: str, how: str
) -> None:
    job = cluster(2)
    start(job, how, torch_python, ENTRYPOINT_STALL_ACTION="stop")
    until(lambda: "job stalled" in job.err(0), "the verdict")
    assert re.search(HANGS[how], job.err(0)), job.both()
    assert job.ends() == {0: 75, 1: 75}, job.both()
    (reason,) = re.findall(r"EP610 the job stalled: [^\n]*", job.err(1)[-2000:])[-1:]
    assert "rank 3 on worker-1 (node-1)" in reason, reason


def test_torch_s_flight_recorder_is_asked(cluster: Make, torch_python: str, tmp_path: Path) -> None:
    job = cluster(2)
    pipes = f"{tmp_path}/pipe-"
    recorder = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipes,
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/record-",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    start(job, "order", torch_python, ENTRYPOINT_STALL_ACTION="stop", **recorder)
    until(lambda: "job stalled" in job.err(0), "the verdict")
    assert job.ends() == {0: 75, 1: 75}, job.both()
    lines = re.findall(r"torch's flight recorder: (.*)", job.err(0))
    assert lines == [
        "rank 3 on worker-1 (node-1): broadcast 4 of default_pg, scheduled",
        "rank 0 on worker-0 (node-0), rank 1 on worker-0 (node-0), rank 2 on worker-1 (node-1): "
        "all_reduce 4 of default_pg, scheduled",
    ], job.both()
