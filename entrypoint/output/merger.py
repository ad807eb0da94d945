"""The process that merges the lines of this node's ranks (unite.py), and the pipes into it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from entrypoint.base.errors import OsError
from entrypoint.system import children, proc

_GIVES_UP = 3.0  # seconds at most to read and count lost bytes


class LineMerger:
    """The merger process. Programs write into `streams`, which are closed here once all have
    started."""

    def __init__(
        self, process: asyncio.subprocess.Process, pipes: tuple[int, int], lost: int
    ) -> None:
        """`lost` is the pipe through which it reports the number of lost bytes at its end."""
        self.process = process
        self._lost = lost
        self.streams: dict[str, int] = dict(zip(("stdout", "stderr"), pipes, strict=True))

    @classmethod
    async def start(cls, command: Sequence[str]) -> LineMerger:
        """Start the merger, which inherits this process's output. Raises OsError if it cannot be
        started."""
        fds: list[int] = []
        try:
            for _ in ("stdout", "stderr", "lost"):
                fds += os.pipe2(os.O_CLOEXEC)
            out, to_out, err, to_err, lost, to_lost = fds
            argv = (*command, "--stderr", str(err), "--lost", str(to_lost))
            # It ends when all writers have closed its pipes, so also when this process ends.
            process = await children.start(
                argv, os.environ, supervised=True, stdin=out, pass_fds=(err, to_lost)
            )
        except OSError as error:
            for fd in fds:
                os.close(fd)
            raise OsError(
                "EP434 cannot start the line merger",
                error.strerror or "",
                "raise the limit on processes or file handles",
            ) from None
        for fd in (out, err, to_lost):
            os.close(fd)
        return cls(process, (to_out, to_err), lost)

    def close(self) -> None:
        """Close the pipes into it: it ends when nobody holds them any more."""
        for fd in self.streams.values():
            os.close(fd)
        self.streams = {}

    @property
    def written(self) -> int:
        """Return the bytes that it has written so far."""
        return proc.number(f"/proc/{self.process.pid}/io", "wchar:") or 0

    async def give_up(self) -> int:
        """End it without passing on more lines, and return how many bytes that it received are
        lost."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGURG)
            await asyncio.wait({asyncio.ensure_future(self.process.wait())}, timeout=_GIVES_UP)
        os.set_blocking(self._lost, False)
        count = b""
        with contextlib.suppress(BlockingIOError):
            count = os.read(self._lost, 64)
        os.close(self._lost)
        return int(count or b"0")

    async def ended(self, quiet: float | None = None) -> None:
        """Return when everything is passed on, or when nothing was for `quiet` seconds."""
        end = asyncio.ensure_future(self.process.wait())
        before = -1
        while not end.done() and (quiet is None or self.written != before):
            before = self.written
            await asyncio.wait({end}, timeout=quiet)
