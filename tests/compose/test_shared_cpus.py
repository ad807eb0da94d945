"""Two containers without a limit on this machine's CPUs: each rank knows of those of the other."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.composed import Compose

CPUS = len(os.sched_getaffinity(0))
SLOTS = (
    CPUS // 2 + 1
)  # so a node has a CPU for each rank unless it has one alone, and both have not
TELL = 'echo "yields=$OMPI_MCA_mpi_yield_when_idle threads=$OMP_NUM_THREADS"'


@pytest.fixture
def project(folder: Path) -> Iterator[Compose]:
    made = Compose(folder, f"ep{os.getpid()}")
    yield made
    made.down()


@pytest.mark.promise("ranks of several nodes on one machine yield their CPUs without a setting")
def test_ranks_of_two_containers_yield_and_divide_the_threads(project: Compose) -> None:
    spec = project.folder / "job.yaml"
    spec.write_text(f"launcher: mpirun\nhosts: [a, b]\nslots: {SLOTS}\nroll_call: required\n")
    project.render(spec, "sh", "-c", TELL)
    done = project.call("up", "--exit-code-from", "a")
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.findall(r"yields=(\d?) threads=(\d+)", done.stdout)
    assert told == [("1", str(max(1, CPUS // (2 * SLOTS))))] * 2 * SLOTS
