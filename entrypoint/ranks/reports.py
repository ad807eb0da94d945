"""The ranks of this node, as their supervisors report them: which have started, ended, and still
exist; and the last output of those that failed.

A supervisor connects to the node socket when its rank starts, and sends a line when the rank prints
for the first time, ends, and when all of its output is passed on. A killed supervisor sends no
line, so its process is watched too. Programs can also connect, so a process is accepted only if it
runs below this one and below no other supervisor: a rank cannot report its own end, nor act as a
supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from entrypoint.base.text import one_line
from entrypoint.base.values import dataclass
from entrypoint.job.messages import LINE, LINES, MAX_RANKS
from entrypoint.launchers._daemons import DAEMONS
from entrypoint.system import children, proc, process
from entrypoint.system.nodesocket import Connection, NodeSocket, ignore

# Event ("start", or one of `_LARGEST` except "done"), rank, and value; that of "start" is the
# supervisor's pid.
Report = Callable[[str, int, int], None]

_INSPECTED = b"\n"  # the answer to a supervisor, which must still exist when it is inspected
# The pid of the launcher that ends a rank (proc(5), pid_max), a status, the number of an error
# (errno(3)), and bytes.
_LARGEST = {
    "launcher": 1 << 22,
    "output": 0,
    "end": 255,
    "done": 0,
    "log": 255,
    "copy": 255,
    "lost": 1 << 40,
    "late": 1 << 40,
}


@dataclass
class _Rank:
    pid: int  # of its supervisor
    forget: Callable[[], object]  # stops watching it
    done: bool = False  # its output is passed on, and no process that it started runs
    last_output: tuple[str, ...] = ()  # lines, if it failed


@dataclass(frozen=True)
class Failure:
    """The end of a rank or program that failed."""

    name: str  # such as `rank 3`
    status: int
    lines: tuple[str, ...]  # the last that it printed


class Ranks:
    """The ranks that are alive, of those whose supervisors report as this kind."""

    def __init__(self, node: NodeSocket, report: Report, kind: str = "rank") -> None:
        self._report = report
        self._ranks: dict[int, _Rank] = {}  # ranks whose supervisor exists
        self.statuses: dict[int, int] = {}  # rank -> status of those that have ended
        self._changed = asyncio.Event()
        self._read = node.read
        self.store: Callable[[int, Any], object] = ignore  # gets the program of each rank
        node.kinds[kind] = self._begin

    def _begin(self, supervisor: Connection, rank: Any) -> None:
        if not _is_number(rank, MAX_RANKS - 1):
            return
        running = self._ranks.get(rank)
        if running and running.pid != supervisor.pid and proc.has_ended(running.pid):
            # its end was not noticed yet, and torch has started this rank again
            self._died(rank, running.pid)
            running = self._ranks.get(rank)
        if running is None and self._is_outside(supervisor.pid):
            died = partial(self._died, rank, supervisor.pid)
            state = _Rank(supervisor.pid, children.on_end(supervisor.pid, died))
            supervisor.handler = partial(self._handle, rank, state)
            self._ranks[rank] = state
            self.statuses.pop(rank, None)
            self._changed.set()
            self._report("start", rank, supervisor.pid)
        supervisor.send(_INSPECTED)

    def _is_outside(self, pid: int) -> bool:
        """Return whether this process runs below this one, and below no rank."""
        supervisors = self.supervisors
        while pid and pid != os.getpid() and pid not in supervisors:
            pid = proc.state(pid)[1]
        return pid == os.getpid()

    def _handle(self, rank: int, state: _Rank, event: str, value: Any) -> None:
        if event == "program" and self._ranks.get(rank) is state:
            self.store(rank, value)
        if event == "tail":
            state.last_output = _lines(value)
        if self._ranks.get(rank) is not state or not _is_number(value, _LARGEST.get(event, -1)):
            return
        if event == "end":
            if rank in self.statuses:
                return
            self.statuses[rank] = value
        elif event == "done":
            state.done = rank in self.statuses
        self._changed.set()
        if event != "done":
            self._report(event, rank, value)

    def _died(self, rank: int, pid: int) -> None:
        self._read()  # its last line may be unread
        if rank in self._ranks and self._ranks[rank].pid == pid:
            self._lose(rank)

    def _lose(self, rank: int) -> None:
        self._ranks.pop(rank).forget()
        self._changed.set()
        if rank not in self.statuses:
            self.statuses[rank] = 128 + signal.SIGKILL
            self._report("end", rank, self.statuses[rank])

    def last_output(self, rank: int) -> tuple[str, ...]:
        """Return the last lines of a rank or program that has failed, if its supervisor exists."""
        return self._ranks[rank].last_output if rank in self._ranks else ()

    @property
    def count(self) -> int:
        """Return the number of ranks that have started."""
        return len({*self._ranks, *self.statuses})

    def _running(self) -> list[int]:
        return [state.pid for rank, state in self._ranks.items() if rank not in self.statuses]

    @property
    def alive(self) -> Mapping[int, int]:
        """Return rank -> pid of its supervisor, for ranks that run or have left processes
        running."""
        return {rank: state.pid for rank, state in self._ranks.items() if not state.done}

    @property
    def supervisors(self) -> set[int]:
        """Return the pids of all supervisors that exist."""
        return {rank.pid for rank in self._ranks.values()}

    @property
    def leaving(self) -> set[int]:
        """Return the pids of the supervisors whose program has ended."""
        return self.supervisors - {*self._running()}

    def signal(self, signum: int) -> None:
        """Send a signal to the process group of every rank that runs; supervisors end leftovers of
        the others."""
        for pid in self._running():
            process.kill_group(pid, signum)

    def kill(self) -> None:
        """Send SIGKILL to every rank that is alive."""
        for pid in self.alive.values():
            process.kill_group(pid, signal.SIGKILL)

    def release_failed(self) -> None:
        """Tell supervisors of failed ranks that they may leave now (--hold in supervisor.py)."""
        proc.kill(self.supervisors, signal.SIGURG)

    async def ended(self) -> None:
        """Return when no rank runs."""
        while self._running():
            await self._change()

    async def gone(self) -> None:
        """Return when no rank runs, and all that they printed is passed on."""
        while self.alive:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def of_spawn(self, started: Iterable[asyncio.subprocess.Process]) -> list[int]:
        """Return the processes that MPI_Comm_spawn has started, which no supervisor has: below
        MPI's daemons, or the programs that this node has started."""
        below = proc.below(os.getpid())
        daemons = {pid for pid, name, _ in below if name in DAEMONS}
        daemons |= {program.pid for program in started}
        # with parents, for --group apart
        supervised = self.supervisors | {proc.state(pid)[1] for pid in self.supervisors}
        # A process in its parent's group, such as an agent, is no process of the job.
        return [
            pid
            for pid, _, (_, parent, group, *_) in below
            if int(parent) in daemons - supervised
            and int(group) == pid
            and pid not in supervised | daemons
        ]

    def close(self) -> None:
        """Stop watching the supervisors."""
        for rank in self._ranks.values():
            rank.forget()


def last_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines of a failed program, for people."""
    return tuple(one_line(line, LINE) for line in lines[-LINES:])


def _lines(output: Any) -> tuple[str, ...]:
    """Return the lines of a program's last output as a terminal shows them, without empty ones. It
    comes in hexadecimal, which a supervisor writes without a module."""
    try:
        text = bytes.fromhex(output).decode("utf-8", "replace")
    except (ValueError, TypeError):
        return ()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line.rstrip() for line in lines if line.strip())


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
