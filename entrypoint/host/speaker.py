"""Our words to people: stderr, one line each. They never hold up the job, and never change how it ends.

A thread of its own writes them, since stderr may be a pipe that nobody reads, and to make it non-blocking would make it
so for the ranks and the terminal, too. What cannot be written is dropped, the oldest first, and counted.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from pathlib import Path

from entrypoint.errors import CantCreateError
from entrypoint.job.analysis import count
from entrypoint.secret import scrubbed

_ROOM = 1 << 20  # bytes that may wait to be written
_PATIENCE = 0.1  # seconds that a line may take before nobody waits for it any more
_LAST = 2.0  # seconds for what is left at the end


def write_all(fd: int, data: bytes) -> None:
    """Write it all, however long that takes, also where another process has made `fd` non-blocking.

    Raises OSError where nobody reads it any more, or the disk is full.
    """
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            ready.poll()


def answer(text: str) -> None:
    """Print what a command was asked for on stdout. A reader that leaves, as in `plan | head`, has what it wanted.

    Raises CantCreateError where it cannot be written.
    """
    try:
        write_all(1, text.encode("utf-8", "surrogateescape"))
    except BrokenPipeError:
        return
    except OSError as error:
        raise CantCreateError("cannot write to stdout", error.strerror or "", "make room where it goes") from None


def hold_standard_streams() -> None:
    """Put nothing in the place of a standard stream that is closed (`2>&-`): the next file would get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


class Speaker:
    """Says one line a call. A quick reader has it when the call returns, so that its place among others is right."""

    def __init__(self, fd: int = 2) -> None:
        self.name = ""
        self._fd = fd
        self._lines: deque[bytes] = deque()  # the first one is being written
        self._bytes = 0  # of them
        self._lost = 0  # lines that could not be written, or were in the way of later ones
        self._torn = False  # the last one may be there in part
        self._last_output = -1  # file that tells how programs' last line ended (stream.py)
        self._heard = 0  # when that was written, as we read it last
        self._late = False  # it has been waited for in vain since the last time that nothing was left
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None

    def __call__(self, text: str) -> None:
        line = f"{self._prefix()} {scrubbed(text, os.environ)}\n".encode("utf-8", "backslashreplace")
        with self._changed:
            self._lines.append(line)
            self._bytes += len(line)
            while len(self._lines) > 2 and self._bytes > _ROOM:
                self._bytes -= len(self._lines[1])
                del self._lines[1]
                self._lost += 1
            self._changed.notify_all()
            if self._running() and not self._late:
                self._late = not self._changed.wait_for(self._done, _PATIENCE)

    def follow(self, last_output: Path) -> None:
        """Begin on a new line from now on, where the last of a program's has no end, as that of a progress bar."""
        with self._changed:
            before, self._last_output = self._last_output, os.open(last_output, os.O_RDONLY | os.O_CLOEXEC)
            if before >= 0:
                os.close(before)

    def flush(self) -> None:
        """Return when all is written, or when that has taken too long."""
        with self._changed:
            self._changed.wait_for(self._done, _LAST)

    def _prefix(self) -> str:
        return f"[entrypoint {self.name}]" if self.name else "[entrypoint]"

    def _done(self) -> bool:
        return not self._lines

    def _running(self) -> bool:
        """Whether the writer is there; without one the lines are written here, as long as nobody has to wait for it."""
        if self._writer is not None:
            return True
        writer = threading.Thread(target=self._write, daemon=True)
        try:
            writer.start()
        except RuntimeError:  # no more threads
            ready = select.poll()
            ready.register(self._fd, select.POLLOUT)
            while self._lines and ready.poll(0):
                self._write_first()
            return False
        self._writer = writer
        return True

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
            self._write_first()

    def _write_first(self) -> None:
        with self._changed:
            line, lost, self._lost = self._lines[0], self._lost, 0
            cut = self._torn or self._cut()
        text = f"{self._prefix()} {count(lost, 'line')} could not be written here\n".encode() + line if lost else line
        try:
            write_all(self._fd, b"\n" + text if cut else text)
            lost, self._torn = 0, False
        except OSError:
            lost, self._torn = lost + 1, True
        with self._changed:
            self._lost += lost
            self._bytes -= len(self._lines.popleft())
            if not self._lines:
                self._late = False
            self._changed.notify_all()

    def _cut(self) -> bool:
        """Whether a line of a program's is not ended where ours go, and nothing was said after it."""
        with contextlib.suppress(OSError):
            written = os.fstat(self._last_output).st_mtime_ns
            if written != self._heard:
                self._heard = written
                return os.pread(self._last_output, 1, 21 if os.path.sameopenfile(1, self._fd) else 22) == b"."
        return False
