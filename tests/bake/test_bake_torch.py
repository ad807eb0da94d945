"""Images whose own Python has torch, and two lines in a Dockerfile: torchrun boots."""

from __future__ import annotations

from pathlib import Path
from shlex import split

import pytest

from tests.containers import logs
from tests.image.boxes import Pair, write

BASES = ("entrypoint-two-lines:bookworm",)
SUM = """
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = torch.tensor([float(os.environ["RANK"])])
dist.all_reduce(rank)
print(f"rank {os.environ['RANK']}: sum {rank.item():g}, {os.uname().nodename}, {sys.executable}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.promise("the toolkit boots jobs in any image and changes nothing of it")
def test_torchrun_on_two_nodes(image: str, folder: Path) -> None:
    """torchrun starts the image's own Python twice on each of two nodes, and they reduce"""
    write(folder / "sum.py", SUM)
    options = (
        *split("-e ENTRYPOINT_LAUNCHER=torchrun -e OMP_NUM_THREADS=1 -v"),
        f"{folder}:/job:ro",
    )
    with Pair(image, options) as pair:
        pair.start_both("image-entry", "python", "/job/sum.py")
        assert pair.ends() == [0, 0], pair.logs()
        said = [
            line.partition("rank ")[2]
            for box in pair.boxes.values()
            for line in logs(box).splitlines()
        ]
        found = sorted(line for line in said if ": sum " in line)
    assert [line.rpartition(",")[0] for line in found] == [
        f"{rank}: sum 6, worker-{rank // 2}" for rank in range(4)
    ]
    assert all("/usr/bin/python" in line for line in found), found
