"""The output of some ranks only, in real containers under three launchers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.composed import Compose
from tests.containers import docker

# Rank 3 fails once the others have printed.
PROGRAM = """\
import os, sys, time
rank = os.environ.get("RANK") or os.environ["JAX_PROCESS_ID"]
print(f"rank {rank} says hello")
time.sleep(2 if rank == "3" else 60)
print(f"rank {rank} gives up")
sys.exit(5)
"""


@pytest.mark.promise(
    "with `logs.show`, other ranks print into their files alone, and a failed one's last lines",
    control="its case of all",
)
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun", "jax"])
@pytest.mark.parametrize(("show", "shown"), [("0", {"0"}), ("all", {"0", "1", "2", "3"})])
def test_only_some_ranks_are_shown(
    show: str, shown: set[str], launcher: str, compose: Compose, tmp_path: Path
) -> None:
    fields = f"logs: {{show: {show}, files: ranks}}\nlog_dir: /tmp/logs\n"
    statuses, log = compose.train("show", launcher, PROGRAM, fields)
    assert statuses == {5}, log
    assert set(re.findall(r"^(?:\[rank \d\] )?rank (\d) says hello$", log, re.M)) == shown, log
    assert re.search(r"\| rank 3 gives up$", log, re.M), "the last lines of the one that failed"
    containers = compose.containers()
    for rank in range(4):
        name = f"worker-{rank // 2}"
        source = f"{containers[name]}:/tmp/logs/show-{name}-rank-{rank}.log"
        docker("cp", source, str(tmp_path / f"{rank}"))
        assert (tmp_path / f"{rank}").read_text().startswith(f"rank {rank} says hello\n")
