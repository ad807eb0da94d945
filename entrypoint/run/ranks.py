"""The ranks of this node, as their wrappers tell of them: who started, who ended how, who is still there.

The wrapper (keeper.py) writes one line at the start and one at the end of a rank into a named pipe. A wrapper that was
killed writes no last line, so its process is watched too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping

from entrypoint.run import process
from entrypoint.run.files import RunDir

Report = Callable[[str, int, int], None]  # event ("start" or "end"), rank, and pid or exit status


class Ranks:
    """Listens on the pipe and keeps the ranks that are alive."""

    def __init__(self, run_dir: RunDir, report: Report, pipe: str = "ranks") -> None:
        self._run_dir, self._report = run_dir, report
        self._pipe = run_dir.pipe(pipe)
        self._alive: dict[int, int] = {}  # rank -> pid of its wrapper
        self._watches: dict[int, int] = {}  # rank -> pidfd
        self._buffer = b""
        self._gone = asyncio.Event()
        self._gone.set()
        asyncio.get_running_loop().add_reader(self._pipe, self.read)

    def read(self) -> None:
        """Hear what the wrappers have written."""
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self._pipe, 65536)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            words = line.split()
            # A program may write into the pipe too; what is not a line of a wrapper's is not believed.
            if len(words) == 3 and words[0] in (b"start", b"end") and words[1].isdigit() and words[2].isdigit():
                self._heard(words[0].decode(), int(words[1]), int(words[2]))

    def _heard(self, event: str, rank: int, value: int) -> None:
        if event == "start":
            self._alive[rank] = value
            self._gone.clear()
            self._watch(rank, value)
        elif self._forget(rank) is None:
            return
        self._report(event, rank, value)

    def _watch(self, rank: int, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(self._died, rank)  # later, since its last line may be read already
        except OSError:
            return  # a kernel without pidfd: the line, or the launcher's end, must do
        else:
            self._watches[rank] = fd
            asyncio.get_running_loop().add_reader(fd, self._died, rank)

    def _died(self, rank: int) -> None:
        self.read()  # its last line may still lie in the pipe
        if self._forget(rank) is not None:
            self._report("end", rank, 128 + signal.SIGKILL)

    def _forget(self, rank: int) -> int | None:
        fd = self._watches.pop(rank, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
        pid = self._alive.pop(rank, None)
        if not self._alive:
            self._gone.set()
        return pid

    def catch_up(self) -> None:
        """Hear at once what lies in the pipe."""
        self.read()

    @property
    def alive(self) -> Mapping[int, int]:
        """Rank -> pid of what keeps it, of all that run."""
        return dict(self._alive)

    def signal(self, signum: int) -> None:
        """Signal every rank's process group."""
        for pid in list(self._alive.values()):
            process.kill_group(pid, signum)

    async def gone(self) -> None:
        """Return when no rank is alive."""
        await self._gone.wait()

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for rank in list(self._alive):
            self._forget(rank)
        loop.remove_reader(self._pipe)
        os.close(self._pipe)
