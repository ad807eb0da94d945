"""Finds a launcher below a rank: the job would become several trainings, each of which may end with
0.

It is known by its name, or by the variables of the processes that it starts.
"""

from __future__ import annotations

import os

from entrypoint.launchers._nested import (
    SIZES,
    VARIABLES,
    WITHOUT_FILE,
    is_mpi,
    launcher_of,
    only_starts_others,
    starts_own_job,
)
from entrypoint.system.proc import content, state, tree, variables

if False:  # only for type checkers: importing it is slow
    from collections.abc import Mapping

_loadavg = -1  # the file of that name, which each look of each rank reads


class NestedLaunchers:
    """Looks for launchers below a rank's program. Only new processes, and those that run another
    program than before, are inspected.

    `number` is the rank's. `node N` is the program of a node, which starts the processes there
    itself: only a launcher counts whose job has no others.
    """

    def __init__(self, program: int, number: str, env: Mapping[str, str]) -> None:
        """`env`: the program's environment, whose variables of a launcher are no other's."""
        self._program = program
        self._env = env
        self._of_node = number.startswith("node")
        self._seen: dict[int, bytes] = {}  # process -> its command line
        self._newest = ("", "")  # newest process of this container, at the last two looks

    def found(self) -> str:
        """Return the name of the launcher that the program is, or that runs below it; "" if there
        is none.

        A launcher of trainings counts anywhere. An MPI launcher counts only if all its ancestors in
        the rank are shells or wrappers, since a program may legitimately start a simulator with
        mpirun.
        """
        newest = _newest_process()
        # Twice, since a process that was looked at may only then have executed its program.
        if newest and self._newest == (newest, newest):
            return ""
        self._newest = (self._newest[1], newest)
        before = self._seen
        self._seen = {}
        for pid in tree(self._program):
            self._seen[pid] = line = _read(pid, "cmdline")
            if line != before.get(pid) and (name := self._started_by(pid, line)):
                return name
        return ""

    def _started_by(self, pid: int, line: bytes) -> str:
        """Return the name of the launcher that this process is, or that has started it."""
        argv = _argv(line)
        env = _variables(pid)
        is_launcher, name = launcher_of(argv)
        # torch's launcher joins launchers on other nodes
        is_joined = env.get("PET_NNODES", "") not in ("", "1", "1:1")
        is_known = is_launcher == WITHOUT_FILE or not self._of_node
        if is_launcher and is_known and starts_own_job(argv) and not is_joined:
            return name if not is_mpi(name) or self._by_shells(pid) else ""
        if self._of_node:
            launcher, name = _here_alone(env, self._env)
        else:
            launcher = name = _starter(env, self._env)
        return "" if is_mpi(launcher) and not self._by_shells(state(pid)[1]) else name

    def _by_shells(self, pid: int) -> bool:
        """Return whether all processes from the rank's own down to the parent of this one are
        shells or wrappers."""
        while pid not in (0, self._program):
            pid = state(pid)[1]
            if not only_starts_others(_argv(_read(pid, "cmdline"))):
                return False
        return pid == self._program


def _starter(variables: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return the launcher that has set these variables for a process of a job of its own; "" if
    none has."""
    for launcher, (job, size, alone) in VARIABLES.items():
        others = [name for name in job if name in variables]  # with other values than this rank's
        is_other = any(variables[name] != own.get(name) for name in others)
        if is_other and size in variables and (variables[size] == "1") == alone:
            return launcher
    return ""


def _here_alone(variables: Mapping[str, str], own: Mapping[str, str]) -> tuple[str, str]:
    """Return the launcher whose variables say that its whole job is on this node, and the size that
    it gives; "" if none does. A single process of an MPI is no job, since a tool may need it."""
    for launcher, (size, local, rank) in SIZES.items():
        number = variables.get(size, "")
        is_own = all(variables.get(name) == own.get(name) for name in (size, local, rank))
        if is_own or not number.isdecimal() or (number == "1" and launcher != WITHOUT_FILE):
            continue
        # The last process of a job has this number on its node only if all others are there, too.
        if number == variables.get(local) or str(int(number) - 1) == variables.get(rank):
            return launcher, f"{size}={number}"
    return "", ""


def _newest_process() -> str:
    """Return the id of the newest process of this pid namespace; "" if the kernel does not tell."""
    global _loadavg
    try:
        if _loadavg < 0:
            _loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        newest = os.pread(_loadavg, 200, 0).split()[-1].decode()
    except (OSError, IndexError):
        return ""
    return newest if newest != "0" else ""  # as gVisor gives it always


def _read(pid: int, name: str) -> bytes:
    """Return the arguments or variables of a process, each ended by NUL; nothing if it is gone."""
    try:
        return content(pid, name)
    except OSError:
        return b""


def _argv(line: bytes) -> list[str]:
    return [os.fsdecode(argument) for argument in line.split(b"\0")[:-1]]


def _variables(pid: int) -> dict[str, str]:
    """Return the environment with which a process has executed its program."""
    found = variables(_read(pid, "environ"))
    return {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()}


def message(name: str, number: str) -> str:
    """Return the message about a nested launcher; `number` as in NestedLaunchers."""
    if number.startswith("node"):
        return (
            f"EP118 `{name}` started on {number} of several for this node alone, and each node"
            " would train alone | launcher plain starts the command once on each node | have it"
            " join the others (torchrun --nnodes=$NNODES --node_rank=$NODE_RANK"
            " --nproc_per_node=$NPROC_PER_NODE --master_addr=$MASTER_ADDR"
            " --master_port=$MASTER_PORT), or set launcher: torchrun and give the program alone; or"
            " roll_call: none, if each node is to run a job of its own\n"
        )
    hint = (
        "give the job's launcher the program alone, or set launcher: plain, which starts the"
        " command once on each node"
    )
    summary = (
        f"EP118 `{name}` started inside rank {number} of several, and would train once for each"
        " rank"
    )
    return f"{summary} | the job's launcher has started the ranks already | {hint}\n"
