"""Ranks of this machine under real launchers: their threads and their limits, and that they may run
on all CPUs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import TREE
from tests.command import captured

ALLOWED = sorted(os.sched_getaffinity(0))
RANK = """
import json, os, resource
names = ("PMI_RANK", "LOCAL_RANK", "JAX_PROCESS_ID")
rank = int(next((os.environ[name] for name in names if name in os.environ), 0))
limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
threads = os.environ.get("OMP_NUM_THREADS")
answer = {"cpus": sorted(os.sched_getaffinity(0)), "limits": limits, "threads": threads}
with open(f"rank-{rank}", "w") as file:
    json.dump(answer, file)
"""


def run(
    folder: Path, launcher: str, *, path: str = "", python: str = "python3"
) -> list[dict[str, Any]]:
    """Run a job of one node and two ranks with low soft limits; return the ranks' answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    (folder / "rank.py").write_text(RANK)
    env = {
        "PATH": f"{path}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHON": python,
        "ENTRYPOINT_PORT": port,
        "ENTRYPOINT_RUN_DIR": str(folder / "run"),
        "PYTHONPATH": str(TREE),
    }
    job = ("--launcher", launcher, "--slots", "2", "--", python, "rank.py")
    low = ["prlimit", "--nofile=256:", "--memlock=4096:"]
    argv = [*low, sys.executable, "-m", "entrypoint", "run", *job]
    done = captured(argv, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*"))]


@pytest.mark.promise("a rank has its share of threads, and the hard limits")
@pytest.mark.parametrize("launcher", ["mpirun", "hydra", "jax", "torchrun", "torchlaunch"])
def test_each_rank_has_its_threads_and_limits(
    launcher: str, tmp_path: Path, request: pytest.FixtureRequest, python_with: Callable[[str], str]
) -> None:
    python, path = "python3", ""
    if launcher.startswith("torch"):
        python = request.getfixturevalue("torch_python")
    elif launcher == "hydra":
        path = os.path.dirname(python_with("mpich"))
    elif launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun on this machine")
    answers = run(tmp_path, launcher, path=path, python=python)
    assert [answer["cpus"] for answer in answers] == [ALLOWED] * 2
    assert {answer["threads"] for answer in answers} == {str(max(1, len(ALLOWED) // 2))}
    hard = [
        resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)
    ]
    assert [answer["limits"] for answer in answers] == [[[most, most] for most in hard]] * 2


@pytest.mark.control("a rank has its share of threads, and the hard limits")
def test_a_program_without_the_toolkit_has_the_soft_limits(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    low = ["prlimit", "--nofile=256:", "--memlock=4096:"]
    captured([*low, sys.executable, "rank.py"], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    answer = json.loads((tmp_path / "rank-0").read_text())
    assert [soft for soft, _ in answer["limits"]] == [256, 4096]
    assert answer["threads"] is None
