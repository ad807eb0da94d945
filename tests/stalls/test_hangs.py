"""Hangs that are staged in real jobs of two nodes with two ranks each: the rank that the others wait
for is named, with the right to trace processes and without it. `make test-all` runs two, `make test-release` all."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make, free_port, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
TRAIN = str(Path(__file__).parent / "train.py")
MINUTES = 0.35  # 21 seconds, longer than the imports of torch take
MARGIN = 60.0  # seconds after the limit within which the answer is there
VENV = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # where py-spy is

WHO = r"rank 3 on worker-1 \(node-1\)"
WAIT = r"3 of 4 ranks wait in all_reduce, train\.py:\d+; "
EXPECTED = {
    "stopped": rf"{WAIT}{WHO} is suspended by a signal",
    "order": rf"{WAIT}{WHO} waits in broadcast, train\.py:\d+",
    "read": rf"{WAIT}{WHO} is in read_shard\(\), train\.py:\d+",
    "worker": rf"{WAIT}{WHO} is in (\w+\.)?__next__\(\), train\.py:\d+;"
    r" its data worker, pid \d+, is in (\w+\.)?wait\(\), train\.py:\d+",
    "lock": rf"{WAIT}{WHO} is in save\(\), train\.py:\d+",
    "loop": rf"{WAIT}{WHO} is in evaluate\(\), train\.py:\d+",
    "left": rf"{WAIT}{WHO} has left \(exited with 0\)",
    "slow": r"all 4 ranks are in work\(\), train\.py:\d+: no rank differs from the others",
}


def start(job: Cluster, how: str, stacks: str, python: str, **more: str) -> None:
    env = {
        "PYTHON": python,
        "PATH": VENV if stacks == "py-spy" else os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
        "ENTRYPOINT_TORCH_PORT": str(free_port()),
        "ENTRYPOINT_STALL_MINUTES": str(MINUTES),
        "ENTRYPOINT_STALL_STACKS": stacks,
        "ENTRYPOINT_STALL_LINE": "step {step}",
        "ENTRYPOINT_TIMEOUTS_GRACE": "2",
        **more,
    }
    for rank in reversed(range(job.nodes)):
        job.start(rank, python, TRAIN, how, env=env, launcher="torchrun")


@pytest.mark.parametrize("stacks", ["py-spy", "signal"])
@pytest.mark.parametrize("how", EXPECTED)
def test_the_rank_that_the_others_wait_for_is_named(
    cluster: Make, torch_python: str, how: str, stacks: str
) -> None:
    job = cluster(2)
    start(job, how, stacks, torch_python, ENTRYPOINT_STALL_ACTION="stop")
    until(lambda: (job.out(0) + job.out(1)).count("step 2") >= 3, 90, "three steps")
    silent = time.monotonic()
    until(lambda: "this is what they do:" in job.err(0), 60 * MINUTES + MARGIN, "the stall")
    until(lambda: re.search("job stalled|the job goes on", job.err(0)), 60, "the verdict")
    took = time.monotonic() - silent
    assert re.search(EXPECTED[how], job.err(0)), job.both()
    assert took <= 60 * MINUTES + MARGIN, f"{took:.1f}s"
    if how == "slow":
        assert "the job goes on, since no rank differs; it ends after 1m45s" in job.err(0), (
            job.both()
        )
        job.signal(0, signal.SIGTERM)
        assert job.ends(60) == {0: 143, 1: 143}, job.both()
        return
    assert job.ends(60) == {0: 75, 1: 75}, job.both()
    (reason,) = re.findall(r"EP610 the job stalled: [^\n]*", job.err(1)[-2000:])[-1:]
    assert "rank 3 on worker-1 (node-1)" in reason, reason
    print(f"{how}, {stacks}: {took - 60 * MINUTES:.1f} s after the limit")


def test_torch_s_flight_recorder_is_asked(cluster: Make, torch_python: str, tmp_path: Path) -> None:
    job = cluster(2)
    pipes = f"{tmp_path}/pipe-"
    recorder = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipes,
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/record-",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    start(job, "order", "auto", torch_python, ENTRYPOINT_STALL_ACTION="stop", **recorder)
    until(lambda: "job stalled" in job.err(0), 60 * MINUTES + 120, "the verdict")
    assert job.ends(60) == {0: 75, 1: 75}, job.both()
    lines = re.findall(r"torch's flight recorder: (.*)", job.err(0))
    assert lines == [
        "rank 3 on worker-1 (node-1): broadcast 4 of default_pg, scheduled",
        "rank 0 on worker-0 (node-0), rank 1 on worker-0 (node-0), rank 2 on worker-1 (node-1): "
        "all_reduce 4 of default_pg, scheduled",
    ], job.both()
