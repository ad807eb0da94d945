"""The ranks of this node, as their supervisors report them: which have started, ended, and are still there.

A supervisor connects to a socket and writes a line when its rank starts, prints for the first time, ends, and when all
of its output is passed on. A killed supervisor writes no line, so its process is watched too. Programs can also
connect, so a rank's lines count from the one process that has said that it starts this rank, and only if that process
runs below this one and below no other supervisor: a rank cannot report its own end, nor be a supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping

from entrypoint.job.messages import MAX_RANKS
from entrypoint.system import children, proc, process
from entrypoint.system.files import RunDir
from entrypoint.system.reports import ReportingProcess, Reports
from entrypoint.values import dataclass

# Event ("start", "launcher", "output", "end", "copy" or "lost"), rank; and the number that `_LARGEST` bounds.
Report = Callable[[str, int, int], None]

_LINE = 64  # bytes; a supervisor's line is shorter
# Pids of a supervisor and of the launcher that ends it (proc(5), pid_max), a status, the number of an error (errno(3)),
# and bytes.
_LARGEST = {
    b"start": 1 << 22,
    b"launcher": 1 << 22,
    b"output": 0,
    b"end": 255,
    b"done": 0,
    b"copy": 255,
    b"lost": 1 << 40,
}


@dataclass
class _Rank:
    reporter: ReportingProcess  # its supervisor
    forget: Callable[[], object]  # watch it no longer
    printed: bool = False
    ended: bool = False
    done: bool = False  # its output is passed on, and nothing runs that it started

    @property
    def pid(self) -> int:
        return self.reporter.pid


class Ranks:
    """Listens on the socket and keeps the ranks that are alive."""

    def __init__(self, run_dir: RunDir, report: Report, name: str = "ranks") -> None:
        self._report = report
        self._reports = Reports(run_dir, name, self.read, _LINE)
        self._ranks: dict[int, _Rank] = {}  # those whose supervisor is there
        # Rank and status, if the supervisor was gone before we looked.
        self._brief: dict[ReportingProcess, tuple[int, int]] = {}
        self._ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._look()

    def read(self) -> None:
        """Read what supervisors have written; one that is gone wrote all of its lines before."""
        for reporter, lines in self._reports.take():
            for event, rank, value in filter(None, map(_understood, lines)):
                if event == "start":
                    self._started(reporter, rank)
                else:
                    self._heard(reporter, event, rank, value)
        for reporter, (rank, status) in list(self._brief.items()):
            del self._brief[reporter]
            self._report("start", rank, reporter.pid)
            self._report("end", rank, status)

    def _started(self, reporter: ReportingProcess, rank: int) -> None:
        known = self._ranks.get(rank)
        if known and proc.has_ended(known.pid):
            self._lose(rank)  # its end was not noticed yet: torch has started this rank again
            known = None
        if known is None and proc.is_gone(reporter.pid):
            # A supervisor stays until it was looked at, so this one was killed; nobody can tell whose child it was.
            self._brief[reporter] = rank, 128 + signal.SIGKILL
        elif known is None and self._may_start(reporter.pid):
            self._ranks[rank] = _Rank(reporter, children.on_end(reporter.pid, lambda: self._died(rank, reporter)))
            self._look()
            self._report("start", rank, reporter.pid)
        reporter.answer()

    def _may_start(self, pid: int) -> bool:
        """Whether this process is below us, and no rank's."""
        supervisors = self.supervisors
        while pid and pid != os.getpid() and pid not in supervisors:
            pid = proc.state(pid)[1]
        return pid == os.getpid()

    def _heard(self, reporter: ReportingProcess, event: str, rank: int, value: int) -> None:
        known = self._ranks.get(rank)
        if known is None or known.reporter is not reporter:
            if event == "end" and value and self._brief.get(reporter, (-1, 0))[0] == rank:
                self._brief[reporter] = rank, value
            return
        if event == "output" and not known.printed:
            known.printed = True
        elif event == "end" and not known.ended:
            known.ended = True
        elif event == "done" and known.ended:
            known.done = True
        elif event not in ("copy", "launcher", "lost"):
            return
        self._look()
        if event != "done":
            self._report(event, rank, value)

    def _died(self, rank: int, reporter: ReportingProcess) -> None:
        self.read()  # its last line may not be read yet
        if rank in self._ranks and self._ranks[rank].reporter is reporter:
            self._lose(rank)

    def _lose(self, rank: int) -> None:
        lost = self._ranks.pop(rank)
        lost.forget()
        self._look()
        if not lost.ended:
            self._report("end", rank, 128 + signal.SIGKILL)

    def _look(self) -> None:
        for event, left in ((self._ended, list(self._running())), (self._gone, self.alive)):
            if left:
                event.clear()
            else:
                event.set()

    def _running(self) -> Iterator[int]:
        return (rank.pid for rank in self._ranks.values() if not rank.ended)

    @property
    def alive(self) -> Mapping[int, int]:
        """Rank -> pid of its supervisor, for ranks that run or have left something running."""
        return {number: rank.pid for number, rank in self._ranks.items() if not rank.done}

    @property
    def supervisors(self) -> set[int]:
        """Pids of all supervisors that are there."""
        return {rank.pid for rank in self._ranks.values()}

    @property
    def leaving(self) -> set[int]:
        """Pids of the supervisors whose program has ended."""
        return {rank.pid for rank in self._ranks.values() if rank.ended}

    def signal(self, signum: int) -> None:
        """A signal to the process group of every rank that runs; supervisors end what the others left running."""
        for pid in list(self._running()):
            process.kill_group(pid, signum)

    def kill(self) -> None:
        """SIGKILL to all that is alive."""
        for pid in list(self.alive.values()):
            process.kill_group(pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Tell supervisors of failed ranks that they may leave now (--hold in supervisor.py)."""
        proc.kill([rank.pid for rank in self._ranks.values()], signal.SIGURG)

    async def ended(self) -> None:
        """Return when no rank runs."""
        await self._ended.wait()

    async def gone(self) -> None:
        """Return when no rank runs, and all that they printed is passed on."""
        await self._gone.wait()

    def close(self) -> None:
        for rank in self._ranks.values():
            rank.forget()
        self._reports.close()


def _understood(line: bytes) -> tuple[str, int, int] | None:
    """Event, rank and value, if this can be a supervisor's line."""
    words = line.split() if len(line) < _LINE else []
    if len(words) != 3 or words[0] not in _LARGEST or not (words[1] + words[2]).isdigit():
        return None
    rank, value = int(words[1]), int(words[2])
    return (words[0].decode(), rank, value) if rank < MAX_RANKS and value <= _LARGEST[words[0]] else None
