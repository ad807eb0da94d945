"""Processes that a rank starts by MPI_Comm_spawn: they run without a supervisor, and belong to the
job all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import clean_environment, skip_with_open_mpi_5
from tests.local import Local, Make
from tests.waits import until

# All ranks together spawn a process, which fails with the first argument or "stays". SIGTERM: each
# saves for as many seconds as the second says. The third is a file for notes, since a spawned
# process has the daemon's environment.
SPAWN = """
import ctypes, os, signal, sys, time
mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
def note(words):
    with open(sys.argv[3], "a") as notes:
        notes.write(f"{words} {time.monotonic()}\\n")
def told(signum, frame):
    note(f"{who} told")
    time.sleep(saves)
    note(f"{who} saved")
    os._exit(0)
mpi.MPI_Init(None, None)
parent, inter, rank = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
mpi.MPI_Comm_get_parent(ctypes.byref(parent))
mpi.MPI_Comm_rank(handle("ompi_mpi_comm_world"), ctypes.byref(rank))
child = parent.value != handle("ompi_mpi_comm_null").value
who, saves = ("spawned" if child else f"rank-{rank.value}"), float(sys.argv[2])
signal.signal(signal.SIGTERM, told)
if child:
    note("spawned runs")
    time.sleep(0.5)
    if sys.argv[1] != "stays":
        note("spawned fails")
        os._exit(int(sys.argv[1]))
else:
    words = [word.encode() for word in (__file__, *sys.argv[1:])]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    world = handle("ompi_mpi_comm_world")
    info = handle("ompi_mpi_info_null")
    mpi.MPI_Comm_spawn(sys.executable.encode(), argv, 1, info, 0, world, ctypes.byref(inter), None)
    note(f"{who} up")
time.sleep(600)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "spawn.py").write_text(SPAWN)
    return tmp_path / "notes"


def start(local: Make, notes: Path, nodes: int, what: str, saves: float) -> Local:
    program = (sys.executable, str(notes.with_name("spawn.py")), what, str(saves), str(notes))
    words = ("--nodes", str(nodes), "--slots", "2", "--launcher", "mpirun")
    job = local(
        *words,
        "--",
        *program,
        OPENMPI_EXTRA_ARGS="--oversubscribe",
        ENTRYPOINT_TIMEOUTS_GRACE="600",
    )
    until(lambda: notes.exists() and "spawned runs" in notes.read_text(), "the spawned process")
    return job


def who(notes: Path, event: str) -> list[str]:
    """Those that noted this, sorted; one that did so twice is there twice."""
    return sorted(
        line.split()[0] for line in notes.read_text().splitlines() if f" {event} " in line
    )


@pytest.mark.promise("ranks have their grace when mpirun itself ends them, and its status counts")
def test_ranks_have_their_grace_when_a_spawned_process_fails(local: Make, notes: Path) -> None:
    """mpirun by itself kills them two seconds later."""
    job = start(local, notes, 2, "7", 4)
    assert job.ends() == 7
    assert who(notes, "told") == who(notes, "saved") == [f"rank-{rank}" for rank in range(4)]


@pytest.mark.control("ranks have their grace when mpirun itself ends them, and its status counts")
def test_bare_mpirun_kills_ranks_when_a_spawned_process_fails(notes: Path) -> None:
    """The control of both."""
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    words += [str(notes.with_name("spawn.py")), "7", "4", str(notes)]
    done = subprocess.run(words, env=clean_environment(), capture_output=True, check=False)
    assert done.returncode == 7
    assert who(notes, "saved") == []


def test_a_spawned_process_hears_sigterm_once_and_has_the_grace(local: Make, notes: Path) -> None:
    skip_with_open_mpi_5("it does not always spawn on another node")
    job = start(local, notes, 2, "stays", 4)
    until(lambda: len(who(notes, "up")) == 4, "every rank")
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() == 143
    assert (
        who(notes, "told")
        == who(notes, "saved")
        == [*(f"rank-{rank}" for rank in range(4)), "spawned"]
    )
