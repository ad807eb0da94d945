"""What a program prints, on its way through its supervisor: never lost, never held up by another's output.

It runs in a process of each rank's, so it imports what is built in and little else.
"""

from __future__ import annotations

import os
import time

_TAIL = 16384  # bytes kept; the reader takes the last lines of them
_CHUNK = 65536
_PIECE = 4096  # bytes that a pipe takes whole, and at once where it says that it has room (PIPE_BUF)
_MOST = 1 << 20  # bytes that are read of a stream when the program has ended; the largest pipe holds no more


class Stream:
    """One of the program's two output streams on its way to ours. What ours has no room for waits here, never we."""

    def __init__(
        self, source: int, target: int, label: bytes, tail: bytearray, log: int | None, last_output: str | None
    ) -> None:
        self.source, self._label, self._tail, self._log = source, label, tail, log
        self._last_output = last_output  # file whose number tells when there was output
        self._place = 20 + target  # of what is noted there of our last line
        self._ended = True  # with a line end
        self._rest = b""  # a line that has not ended yet
        self.open = True
        self.waiting: list[bytes] = []  # each is written at once where that is possible
        own = _own(target)
        self.target, self._blocks = (target, True) if own < 0 else (own, False)
        os.set_blocking(source, False)

    took = 0.0  # when any of them last had something, by time.monotonic()
    spoke = 0.0  # when any of them last told the entrypoint that there was output, by time.monotonic()

    def read(self) -> int:
        """Take what is there; how much that was."""
        try:
            data = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""  # a terminal that nobody holds any more
        self.open = bool(data)
        if data:
            Stream.took = time.monotonic()
        if data and self._last_output and time.monotonic() - Stream.spoke > 1:
            Stream.spoke = time.monotonic()
            _note(self._last_output, b"%020.3f\n" % time.monotonic(), 0)
        self._tail += data
        del self._tail[:-_TAIL]
        if self._log is not None:
            write_all(self._log, data)
        if self._label:
            self._label_lines(data)
        elif self._blocks:
            self.waiting += [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        elif data:
            self.waiting.append(data)
        self.write()
        return len(data)

    def _label_lines(self, data: bytes) -> None:
        """Whole lines in writes that nothing can come between; one that is too long for that comes in several lines."""
        room = _PIECE - len(self._label) - 2
        lines = (self._rest + data).splitlines(keepends=True)  # a progress bar's lines end in a carriage return
        rest = lines.pop() if data and lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        whole = len(rest) // room * room
        lines, self._rest = [*lines, rest[:whole]], rest[whole:]
        batch = b""
        for line in lines:
            text = line.rstrip(b"\r\n")
            for at in range(0, max(len(text), len(line) and 1), room):
                end = line[len(text) :] if at + room >= len(text) else b"\n"
                piece = self._label + text[at : at + room] + (end or b"\n")
                if len(batch) + len(piece) > _PIECE:
                    self.waiting.append(batch)
                    batch = b""
                batch += piece
        self.waiting += [batch] if batch else []

    def write(self) -> None:
        """Pass on what there is room for."""
        while self.waiting:
            try:
                sent = os.write(self.target, self.waiting[0])
            except BlockingIOError:
                return
            except OSError:
                self.waiting.clear()  # nobody reads it, or the disk is full: no reason to end the program
                return
            self._note_end(self.waiting[0][:sent].endswith(b"\n"))
            self.waiting[:1] = [left] if (left := self.waiting[0][sent:]) else []
            if self._blocks:
                return  # until it has room again

    def _note_end(self, ended: bool) -> None:
        """Note whether the last thing that was passed on ended its line, for our words (speaker.py): first of both
        streams, then of stderr."""
        if self._last_output and not (ended and self._ended):
            _note(self._last_output, (b"\n" if ended else b".") * (self._place - 20), 21)
        self._ended = ended

    def take_rest(self) -> None:
        """Take all that is there now; what the program left running may hold the stream open, and go on."""
        taken = 0
        while self.open and taken < _MOST and (read := self.read()):
            taken += read

    def close(self) -> None:
        """Take what is left without a line end."""
        if self._rest:
            self._label_lines(b"")
            self.write()


def _own(target: int) -> int:
    """Our own way to a pipe or terminal, which does not block for that of others; -1 where there can't be one."""
    if os.stat(target).st_mode & 0o170000 == 0o010000 or os.isatty(target):
        try:
            return os.open(f"/proc/self/fd/{target}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass  # it is another user's, as a container's may be
    return -1


def _note(file: str, data: bytes, place: int) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, place)
        finally:
            os.close(fd)
    except OSError:
        return  # nobody looks at it any more, or the disk is full


def write_all(target: int, data: bytes) -> None:
    """Write it, or lose it where that cannot be done."""
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        pass  # nobody reads it, or the disk is full: no reason to end the program
