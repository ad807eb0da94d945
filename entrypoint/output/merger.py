"""The process that makes the lines of this node's ranks whole again (unite.py), and the pipes into it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from entrypoint.errors import OsError
from entrypoint.system import children, proc

_GIVES_UP = 3.0  # seconds at most to take and count what is lost


class LineMerger:
    """`streams` is where programs write, which is for them alone once all of them have started."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: tuple[int, int], lost: int) -> None:
        """`lost` is where it tells how many bytes nobody got, at its end."""
        self.process = process
        self._lost = lost
        self.streams: dict[str, int] = dict(zip(("stdout", "stderr"), pipes, strict=True))

    @classmethod
    async def start(cls, words: Sequence[str]) -> LineMerger:
        """Start it; its own output is ours. Raises OsError where it cannot be started."""
        fds: list[int] = []
        try:
            for _ in ("stdout", "stderr", "lost"):
                fds += os.pipe2(os.O_CLOEXEC)
            out, to_out, err, to_err, lost, to_lost = fds
            argv = (*words, "--stderr", str(err), "--lost", str(to_lost))
            # It ends with those who write, and so with us.
            process = await children.start(argv, os.environ, supervised=True, stdin=out, pass_fds=(err, to_lost))
        except OSError as error:
            for fd in fds:
                os.close(fd)
            do = "raise the limit on processes or file handles"
            raise OsError("EP434 cannot start what passes the ranks' lines on", error.strerror or "", do) from None
        for fd in (out, err, to_lost):
            os.close(fd)
        return cls(process, (to_out, to_err), lost)

    def close(self) -> None:
        """Hold its pipes no longer: it ends once nobody does."""
        for fd in self.streams.values():
            os.close(fd)
        self.streams = {}

    @property
    def written(self) -> int:
        """Bytes that it has written so far."""
        return proc.number(f"/proc/{self.process.pid}/io", "wchar:") or 0

    async def give_up(self) -> int:
        """Have it pass on nothing more and end. Returns how many bytes are lost, as far as they had come here."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGURG)
            await asyncio.wait({asyncio.ensure_future(self.process.wait())}, timeout=_GIVES_UP)
        os.set_blocking(self._lost, False)
        said = b""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._lost, 64)
        os.close(self._lost)
        return int(said or b"0")

    async def ended(self, quiet: float | None = None) -> None:
        """Return when all is passed on, or when nothing was for `quiet` seconds."""
        end, before = asyncio.ensure_future(self.process.wait()), -1
        while not end.done() and (quiet is None or self.written != before):
            before = self.written
            await asyncio.wait({end}, timeout=quiet)
