"""Horovod's synthetic benchmark with small flags."""

from __future__ import annotations

import re
from collections.abc import Callable
from shlex import split

from tests.containers import IMAGE as GPU
from tests.rows import agrees, expected, places

FLAGS = [
    "--model=small", "--batch-size=2", "--image-size=32",
    "--num-warmup-batches=1", "--num-batches-per-iter=2", "--num-iters=2",
]  # fmt: skip


def test_benchmark(job_yaml: Callable[..., tuple[dict[str, str], str]]) -> None:
    containers, log = job_yaml(GPU, "horovod/benchmark.yaml", "python", "benchmark.py", *FLAGS)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-04", falling=False)
    speed = r"\d+\.\d \+-\d+\.\d"
    assert sorted(re.findall(rf"rank (\d): {speed} img/sec", log)) == split("0 1 2 3"), log
    assert re.search(rf"Img/sec per CPU: {speed}\n", log), log
    assert re.search(rf"Total img/sec on 4 CPU\(s\): {speed}\n", log), log
    assert "weights differ between ranks by 0.0e+00" in log
