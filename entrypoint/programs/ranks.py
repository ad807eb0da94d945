"""The ranks of this node, as their supervisors report them: which have started, ended, and are still there.

A supervisor writes a line into a named pipe when its rank starts, prints for the first time, ends, and when all of its
output is passed on. A killed supervisor writes no line, so its process is watched too. Programs can also write into
the pipe, so each number is checked, and a process counts only if it runs below this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping

from entrypoint.host import children, proc, process
from entrypoint.host.files import RunDir
from entrypoint.host.pipes import Lines
from entrypoint.values import dataclass

Report = Callable[[str, int, int], None]  # event ("start", "output", "end" or "copy"), rank; pid, 0, status or error

_LINE = 64  # bytes; a supervisor's line is shorter
# A pid (proc(5), pid_max), nothing, a status, nothing, and the number of an error (errno(3)).
_LARGEST = {b"start": 1 << 22, b"output": 0, b"end": 255, b"done": 0, b"copy": 255}
_RANKS = 1 << 20
_TAKES = 16  # of 64 KiB: the largest pipe that a user can make (pipe(7))


@dataclass
class _Rank:
    pid: int  # of its supervisor
    forget: Callable[[], object]  # watch it no longer
    printed: bool = False
    ended: bool = False
    done: bool = False  # its output is passed on, and nothing runs that it started


class Ranks:
    """Listens on the pipe and keeps the ranks that are alive."""

    def __init__(self, run_dir: RunDir, report: Report, pipe: str = "ranks") -> None:
        self._report = report
        self._lines = Lines(run_dir, pipe, self.read, _LINE)  # a supervisor's line is written whole, after a line end
        self._ranks: dict[int, _Rank] = {}  # those whose supervisor is there
        self._brief: dict[int, int] = {}  # rank -> pid, of those whose supervisor was gone before we looked
        self._ended, self._gone = asyncio.Event(), asyncio.Event()
        self._look()

    def read(self) -> None:
        """Read what is in the pipe."""
        for _ in range(_TAKES):  # a supervisor that is gone wrote all of its lines before: they are in the pipe
            lines = self._lines.take()
            if lines is None:
                break
            for event, rank, value in filter(None, map(_understood, lines)):
                self._heard(event, rank, value)
        for rank, pid in list(self._brief.items()):
            del self._brief[rank]
            self._report("start", rank, pid)
            self._report("end", rank, 128 + signal.SIGKILL)

    def _heard(self, event: str, rank: int, value: int) -> None:
        known = self._ranks.get(rank)
        if event == "start" and known and proc.has_ended(known.pid):
            self._lose(rank)  # its end was not noticed yet: torch has started this rank again
            known = None
        if event == "start" and known is None and value != os.getpid() and proc.is_below(value, os.getpid()):
            self._ranks[rank] = _Rank(value, children.on_end(value, lambda: self._died(rank, value)))
        elif event == "start" and known is None and proc.is_gone(value):
            self._brief[rank] = value  # the line of its end follows, unless it was killed
            return
        elif event == "end" and known is None and rank in self._brief:
            self._report("start", rank, self._brief.pop(rank))
        elif event == "output" and known and not known.printed:
            known.printed = True
        elif event == "end" and known and not known.ended:
            known.ended = True
        elif event == "done" and known and known.ended:
            known.done = True
        elif event == "copy" and known:
            pass
        else:
            return
        self._look()
        if event != "done":
            self._report(event, rank, value)

    def _died(self, rank: int, pid: int) -> None:
        self.read()  # its last line may still be in the pipe
        if rank in self._ranks and self._ranks[rank].pid == pid:
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
        self._lines.close()


def _understood(line: bytes) -> tuple[str, int, int] | None:
    """Event, rank and value, if this can be a supervisor's line."""
    words = line.split() if len(line) < _LINE else []
    if len(words) != 3 or words[0] not in _LARGEST or not (words[1] + words[2]).isdigit():
        return None
    rank, value = int(words[1]), int(words[2])
    return (words[0].decode(), rank, value) if rank < _RANKS and value <= _LARGEST[words[0]] else None
