"""Horovod's synthetic benchmark with small flags."""

from __future__ import annotations

import re
from shlex import split

import pytest

from tests.containers import IMAGE as GPU
from tests.rows import agrees, expected, places

FLAGS = [
    "--model=small", "--batch-size=2", "--image-size=32",
    "--num-warmup-batches=1", "--num-batches-per-iter=2", "--num-iters=2",
]  # fmt: skip


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_benchmark(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        run, spec = request.getfixturevalue("job_yaml"), "horovod-benchmark/job.yaml"
        containers, log = run(GPU, spec, "python", "benchmark.py", *FLAGS)
    else:
        run = request.getfixturevalue("variables")
        containers, log = run(
            GPU, "horovod-benchmark", "python", "benchmark.py", *FLAGS, "--fp16-allreduce"
        )
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-04" if given == "job.yaml" else "2e-02", falling=False)
    assert sorted(re.findall(r"rank (\d): \d+\.\d \+-\d+\.\d img/sec", log)) == split("0 1 2 3"), (
        log
    )
    assert re.search(r"Img/sec per CPU: \d+\.\d \+-\d+\.\d\n", log), log
    assert re.search(r"Total img/sec on 4 CPU\(s\): \d+\.\d \+-\d+\.\d\n", log), log
    assert "weights differ between ranks by 0.0e+00" in log
