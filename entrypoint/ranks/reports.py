"""The ranks of this node, as their supervisors report them: which have started, ended, and still
exist; and the last output of those that failed.

A supervisor connects to a socket and writes a line when its rank starts, prints for the first time,
ends, and when all of its output is passed on. A killed supervisor writes no line, so its process is
watched too. Programs can also connect, so lines about a rank are accepted only from the process
that reported its start, and only if that process runs below this one and below no other supervisor:
a rank cannot report its own end, nor act as a supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Mapping

from entrypoint.job.messages import LINE, LINES, MAX_RANKS
from entrypoint.launchers._daemons import DAEMONS
from entrypoint.output.stream import TAIL
from entrypoint.system import children, proc, process
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import RunDir
from entrypoint.system.reports import ReportingProcess, Reports
from entrypoint.text import one_line
from entrypoint.values import dataclass

# Event ("start", "launcher", "log", "output", "end", "copy", "lost" or "late"), rank, and the value
# that `_LARGEST` bounds.
Report = Callable[[str, int, int], None]

_LINE = 64  # bytes; a supervisor's line is shorter
# Pids of a supervisor and of the launcher that ends it (proc(5), pid_max), a status, the number of
# an error (errno(3)), and bytes.
_LARGEST = {
    b"start": 1 << 22,
    b"launcher": 1 << 22,
    b"output": 0,
    b"end": 255,
    b"done": 0,
    b"log": 255,
    b"copy": 255,
    b"lost": 1 << 40,
    b"late": 1 << 40,
}


@dataclass
class _Rank:
    reporter: ReportingProcess  # its supervisor
    forget: Callable[[], object]  # stops watching it
    ended: bool = False
    done: bool = False  # its output is passed on, and no process that it started runs

    @property
    def pid(self) -> int:
        return self.reporter.pid


class Ranks:
    """Listener on the socket, and the ranks that are alive."""

    def __init__(self, run_dir: RunDir, report: Report, name: str = "ranks") -> None:
        self._report = report
        self._reports = Reports(run_dir, name, self.read, _LINE)
        self._ranks: dict[int, _Rank] = {}  # ranks whose supervisor exists
        self._ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._update()

    def read(self) -> None:
        """Read the lines that supervisors have written; one that is gone has written all of its
        lines."""
        for reporter, lines in self._reports.take():
            for event, rank, value in filter(None, map(_parsed, lines)):
                if event == "start":
                    self._started(reporter, rank)
                else:
                    self._handle(reporter, event, rank, value)

    def _started(self, reporter: ReportingProcess, rank: int) -> None:
        running = self._ranks.get(rank)
        if running and proc.has_ended(running.pid):
            self._lose(rank)  # its end was not noticed yet, and torch has started this rank again
            running = None
        if running is None and self._may_start(reporter.pid):
            self._ranks[rank] = _Rank(
                reporter, children.on_end(reporter.pid, lambda: self._died(rank, reporter))
            )
            self._update()
            self._report("start", rank, reporter.pid)
        reporter.answer()

    def _may_start(self, pid: int) -> bool:
        """Return whether this process runs below this one, and below no rank."""
        supervisors = self.supervisors
        while pid and pid != os.getpid() and pid not in supervisors:
            pid = proc.state(pid)[1]
        return pid == os.getpid()

    def _handle(self, reporter: ReportingProcess, event: str, rank: int, value: int) -> None:
        state = self._ranks.get(rank)
        if state is None or state.reporter is not reporter:
            return
        if event == "end":
            if state.ended:
                return
            state.ended = True
        elif event == "done":
            state.done = state.ended
        self._update()
        if event != "done":
            self._report(event, rank, value)

    def _died(self, rank: int, reporter: ReportingProcess) -> None:
        self.read()  # its last line may be unread
        if rank in self._ranks and self._ranks[rank].reporter is reporter:
            self._lose(rank)

    def _lose(self, rank: int) -> None:
        lost = self._ranks.pop(rank)
        lost.forget()
        self._update()
        if not lost.ended:
            self._report("end", rank, 128 + signal.SIGKILL)

    def _update(self) -> None:
        for event, ranks in ((self._ended, self._running()), (self._gone, self.alive)):
            if ranks:
                event.clear()
            else:
                event.set()

    def _running(self) -> list[int]:
        return [rank.pid for rank in self._ranks.values() if not rank.ended]

    @property
    def alive(self) -> Mapping[int, int]:
        """Return rank -> pid of its supervisor, for ranks that run or have left processes
        running."""
        return {number: rank.pid for number, rank in self._ranks.items() if not rank.done}

    @property
    def supervisors(self) -> set[int]:
        """Return the pids of all supervisors that exist."""
        return {rank.pid for rank in self._ranks.values()}

    @property
    def leaving(self) -> set[int]:
        """Return the pids of the supervisors whose program has ended."""
        return {rank.pid for rank in self._ranks.values() if rank.ended}

    def signal(self, signum: int) -> None:
        """Send a signal to the process group of every rank that runs; supervisors end leftovers of
        the others."""
        for pid in self._running():
            process.kill_group(pid, signum)

    def kill(self) -> None:
        """Send SIGKILL to every rank that is alive."""
        for pid in self.alive.values():
            process.kill_group(pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Tell supervisors of failed ranks that they may leave now (--hold in supervisor.py)."""
        proc.kill(self.supervisors, signal.SIGURG)

    async def ended(self) -> None:
        """Return when no rank runs."""
        await self._ended.wait()

    async def gone(self) -> None:
        """Return when no rank runs, and all that they printed is passed on."""
        await self._gone.wait()

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
        for rank in self._ranks.values():
            rank.forget()
        self._reports.close()


def saved_lines(run_dir: RunDir, number: str, status: int) -> tuple[str, ...]:
    """Return the output of a failed program that its supervisor has saved: its end."""
    if not status:
        return ()
    try:
        text = read_regular(run_dir.path / f"tail.{number}", TAIL).decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line.rstrip() for line in lines if line.strip())


def last_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines of a failed program, for people."""
    return tuple(one_line(line, LINE) for line in lines[-LINES:])


def _parsed(line: bytes) -> tuple[str, int, int] | None:
    """Return event, rank and value of a supervisor's line; None if the line is not valid."""
    fields = line.split() if len(line) < _LINE else []
    if len(fields) != 3 or fields[0] not in _LARGEST or not (fields[1] + fields[2]).isdigit():
        return None
    rank = int(fields[1])
    value = int(fields[2])
    return (
        (fields[0].decode(), rank, value)
        if rank < MAX_RANKS and value <= _LARGEST[fields[0]]
        else None
    )
