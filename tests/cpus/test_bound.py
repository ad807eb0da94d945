"""Ranks of this machine under real launchers: the CPUs that each may run on, its threads, and its
limits."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from entrypoint import supervised
from entrypoint.model import Facts
from entrypoint.system import processors
from entrypoint.values import replace
from tests.command import captured
from tests.cpus.test_machines import build, settled
from tests.slowness import slowness

ALLOWED = sorted(os.sched_getaffinity(0))
RANK = """
import json, os, resource
names = ("PMI_RANK", "LOCAL_RANK", "JAX_PROCESS_ID")
rank = int(next((os.environ[name] for name in names if name in os.environ), 0))
limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
answer = {"cpus": sorted(os.sched_getaffinity(0)), "limits": limits, "threads": os.environ.get("OMP_NUM_THREADS")}
with open(f"rank-{rank}", "w") as file:
    json.dump(answer, file)
"""


def run(
    folder: Path,
    launcher: str,
    *words: str,
    path: str = "",
    python: str = "python3",
    slots: int = 2,
) -> tuple[list[dict[str, Any]], list[list[int]], str]:
    """Run a job of one node with low soft limits; return the ranks' answers, the CPUs that its plan
    has for each, and what it logged."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    (folder / "rank.py").write_text(RANK)
    env = {
        "PATH": f"{path}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHON": python,
        "ENTRYPOINT_TORCH_PORT": port,
        "ENTRYPOINT_JAX_PORT": port,
        "ENTRYPOINT_RUN_DIR": str(folder / "run"),
        "PYTHONPATH": str(Path(supervised.__file__).parents[1]),
    }
    job = ("--launcher", launcher, "--slots", str(slots), *words, "--", python, "rank.py")
    how = {"cwd": folder, "env": env}
    planned = captured([sys.executable, "-m", "entrypoint", "plan", "--json", *job], **how)
    files = {file["name"]: file.get("text", "") for file in json.loads(planned.stdout)["files"]}
    masks = [sorted(map(int, line.split())) for line in files.get("cpus", "").splitlines()]
    low = ["prlimit", "--nofile=256:", "--memlock=4096:"]
    done = captured([*low, sys.executable, "-m", "entrypoint", "run", *job], **how)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*"))]
    return answers, masks, done.stderr


@pytest.mark.promise("a rank runs on the CPUs that `plan` has for it, with the hard limits")
@pytest.mark.parametrize("launcher", ["mpirun", "hydra", "jax", "torchrun", "torchlaunch"])
def test_each_rank_has_its_cpus(
    launcher: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    python_with: Callable[[str], str],
) -> None:
    python, path = "python3", ""
    if launcher.startswith("torch"):
        python = request.getfixturevalue("torch_python")
    elif launcher == "hydra":
        path = os.path.dirname(python_with("mpich"))
    elif launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun on this machine")
    answers, masks, err = run(tmp_path, launcher, "--cpu-bind", "cores", path=path, python=python)
    assert [answer["cpus"] for answer in answers] == masks, err
    assert len(masks) == 2
    assert sorted({cpu for mask in masks for cpu in mask}) == ALLOWED
    assert {answer["threads"] for answer in answers} == {str(max(1, len(ALLOWED) // 2))}
    hard = [
        resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)
    ]
    assert [answer["limits"] for answer in answers] == [[[most, most] for most in hard]] * 2


@pytest.mark.control("a rank runs on the CPUs that `plan` has for it, with the hard limits")
def test_without_the_setting_no_rank_is_bound(tmp_path: Path) -> None:
    answers, masks, err = run(tmp_path, "jax")
    assert ([answer["cpus"] for answer in answers], masks) == ([ALLOWED, ALLOWED], [])
    assert "EP428" not in err


def test_one_program_alone_is_bound_and_has_a_supervisor(tmp_path: Path) -> None:
    answers, masks, _ = run(tmp_path, "plain", "--cpu-bind", "numa", slots=1)
    assert [answer["cpus"] for answer in answers] == masks == [ALLOWED]


def test_a_program_that_starts_its_processes_itself_is_not_bound(tmp_path: Path) -> None:
    answers, _, err = run(tmp_path, "plain", "--cpu-bind", "cores")
    assert [answer["cpus"] for answer in answers] == [ALLOWED]
    assert (
        "warning: EP428 not all ranks are bound to CPUs: the program starts the processes of its node"
        " itself | cpu.bind: cores (flag --cpu-bind) | " in err
    )


@pytest.mark.parametrize(
    ("lines", "local", "cpus", "says"),
    [
        (f"{ALLOWED[0]}\n{ALLOWED[-1]}\n", "1", ALLOWED[-1:], ""),
        (f"{ALLOWED[0]}\n{ALLOWED[-1]}\n", "OWN", ALLOWED[-1:], ""),
        (f"{ALLOWED[0]}\n{ALLOWED[-1]}\n", "3", ALLOWED[-1:], ""),  # mpi.np is more than the slots
        (f"{ALLOWED[0]} 100000\n", "0", ALLOWED[:1], ""),  # never more than there are
        ("\n", "1", ALLOWED, ""),
        ("100000\n", "0", ALLOWED, "EP428 not all ranks are bound to CPUs: [Errno 22] "),
        ("0\n", "NOWHERE", ALLOWED, "EP428 not all ranks are bound to CPUs: invalid literal "),
    ],
)
def test_a_supervisor_and_its_file(
    lines: str, local: str, cpus: list[int], says: str, tmp_path: Path
) -> None:
    (tmp_path / "cpus").write_text(lines)
    words = ("--cpus", str(tmp_path / "cpus"), "--local", local)
    code = "import os; print(*sorted(os.sched_getaffinity(0)))"
    done = captured(
        [sys.executable, "-I", "-S", supervised.FILE, *words, "--", sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "OWN": "1"},
    )
    assert (done.returncode, done.stdout.split()) == (0, list(map(str, cpus)))
    assert done.stderr.startswith(says)
    assert bool(done.stderr) is bool(says)


# --------------------------------------------------------------------------------------------------
# What it costs

TIMED = """
import sys, time
sys.path.append({tree!r})
import entrypoint.ranks.supervisor
begin = time.process_time()
{more}
from entrypoint.ranks.binding import bind
bind({file!r}, "7")
print(time.process_time() - begin)
"""


def milliseconds_of_a_rank(folder: Path, more: str = "") -> float:
    """Return the CPU of the module's import, the file of a node with 192 CPUs and 8 ranks, and the
    call."""
    lines = [" ".join(map(str, [*ALLOWED, *range(24 * rank, 24 * rank + 24)])) for rank in range(8)]
    (folder / "cpus").write_text("\n".join(lines))
    tree = str(Path(supervised.__file__).parents[1])
    code = TIMED.format(tree=tree, file=str(folder / "cpus"), more=more)
    argv = [sys.executable, "-I", "-S", "-c", code]
    return 1000 * median(float(captured(argv).stdout) for _ in range(9))


@pytest.mark.promise("binding costs each rank at most 1 ms")
def test_a_rank_binds_itself_within_a_millisecond(tmp_path: Path) -> None:
    cost = milliseconds_of_a_rank(tmp_path)
    print(f"a rank binds itself: {cost:.2f} ms of CPU")
    assert cost <= 1


@pytest.mark.control("binding costs each rank at most 1 ms")
def test_a_usual_import_would_take_longer(tmp_path: Path) -> None:
    assert milliseconds_of_a_rank(tmp_path, "import pathlib, subprocess") > 1


@pytest.mark.promise("binding costs each rank at most 1 ms")
def test_a_node_divides_its_cpus_within_a_millisecond_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sockets of 48 cores with SMT, and eight GPUs."""
    nodes = ["0-47,96-143", "48-95,144-191"]
    gpus = [f"GPU-{number} {number // 4}" for number in range(8)]
    machine = {"nodes": nodes, "smt": 96, "gpus": gpus, "ranks": 8}
    allowed, devices = build(tmp_path, machine)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(allowed))
    facts = Facts({}, "a", "/", 0, "root", "/root", tuple(devices), cpus=192.0)

    def seconds(bind: str) -> float:
        begin = time.process_time()
        found = processors.read(devices, tmp_path) if bind != "none" else None
        settled(machine, bind, "mpirun", replace(facts, processors=found))
        return time.process_time() - begin

    seconds("numa")
    cost = median(seconds("numa") for _ in range(9)) - median(seconds("none") for _ in range(9))
    print(f"a node with 192 CPUs and 8 ranks: {1000 * cost / 8:.2f} ms of CPU a rank")
    assert cost / 8 <= 0.001 * slowness()
