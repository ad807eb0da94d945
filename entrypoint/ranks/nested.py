"""Finds a launcher that starts below a rank: it would make several trainings of one, and each would end with 0.

Each rank's supervisor imports this once its program runs.
"""

from __future__ import annotations

from entrypoint.launchers._nested import is_mpi, launcher_of, only_starts_others, starts_own_job
from entrypoint.system.proc import state, tree


def launcher_below(program: int) -> str:
    """The name of a launcher that this process of the rank is, or that runs below it; "" where there is none.

    What starts training counts wherever it is. What starts any program over MPI counts where only shells and wrappers
    have led to it: a program may well start a simulator by mpirun.
    """
    for pid in tree(program):
        words = command_line(pid)
        ours, name = launcher_of(words)
        if not ours or not starts_own_job(words) or _joined_by_variables(pid):
            continue
        if not is_mpi(name) or _by_shells(pid, program):
            return name
    return ""


def command_line(pid: int) -> list[str]:
    """The words that a process was started with; none where it is gone."""
    return [word.decode("utf-8", "surrogateescape") for word in _entries(pid, "cmdline")]


def _entries(pid: int, name: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def _joined_by_variables(pid: int) -> bool:
    """Whether variables tell torch's launcher of others that it is to join."""
    return any(
        name == b"PET_NNODES" and value not in (b"", b"1", b"1:1")
        for name, _, value in (entry.partition(b"=") for entry in _entries(pid, "environ"))
    )


def _by_shells(pid: int, program: int) -> bool:
    """Whether shells and wrappers alone are between this process and the rank's own, or are that one."""
    while pid not in (0, program):
        pid = state(pid)[1]
        if not only_starts_others(command_line(pid)):
            return False
    return pid == program


def message(name: str, rank: str) -> str:
    """What is said of it."""
    do = "give the job's launcher the program alone, or set launcher: plain, which starts the command once a node"
    what = f"EP118 `{name}` started inside rank {rank} of a job of several, and would train once a rank"
    return f"{what} | the job's launcher has started the ranks already | {do}\n"
