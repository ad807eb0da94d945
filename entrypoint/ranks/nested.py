"""Finds a launcher below a rank: the job would become several trainings, each of which may end with
0.

Each rank's supervisor imports this once its program runs.
"""

from __future__ import annotations

from entrypoint.launchers._nested import is_mpi, launcher_of, only_starts_others, starts_own_job
from entrypoint.system.proc import state, tree


def launcher_below(program: int) -> str:
    """Return the name of the launcher that this process is, or that runs below it; "" if there is
    none.

    A launcher of trainings counts anywhere. An MPI launcher counts only if all its ancestors in the
    rank are shells or wrappers, since a program may legitimately start a simulator with mpirun.
    """
    for pid in tree(program):
        argv = command_line(pid)
        is_launcher, name = launcher_of(argv)
        if not is_launcher or not starts_own_job(argv) or _joined_by_variables(pid):
            continue
        if not is_mpi(name) or _by_shells(pid, program):
            return name
    return ""


def command_line(pid: int) -> list[str]:
    """Return the argv of a process; empty if it is gone."""
    return [argument.decode("utf-8", "surrogateescape") for argument in _entries(pid, "cmdline")]


def _entries(pid: int, name: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def _joined_by_variables(pid: int) -> bool:
    """Return whether variables make torch's launcher join launchers on other nodes."""
    return any(
        name == b"PET_NNODES" and value not in (b"", b"1", b"1:1")
        for name, _, value in (entry.partition(b"=") for entry in _entries(pid, "environ"))
    )


def _by_shells(pid: int, program: int) -> bool:
    """Return whether all processes from the rank's own down to the parent of this one are shells or
    wrappers."""
    while pid not in (0, program):
        pid = state(pid)[1]
        if not only_starts_others(command_line(pid)):
            return False
    return pid == program


def message(name: str, rank: str) -> str:
    """Return the message about a nested launcher."""
    hint = (
        "give the job's launcher the program alone, or set launcher: plain, which starts the"
        " command once a node"
    )
    summary = (
        f"EP118 `{name}` started inside rank {rank} of a job of several, and would train once a"
        " rank"
    )
    return f"{summary} | the job's launcher has started the ranks already | {hint}\n"
