"""The way of a program's output through the supervisor: nothing is lost, and no other output delays
it.

Each rank's supervisor imports this: keep it fast.
"""

from __future__ import annotations

import os
import time

from entrypoint.system.descriptors import CHUNK, open_regular, reopened

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

    from entrypoint.output.lines import Lines
    from entrypoint.output.rotate import RotatingFile
    from entrypoint.output.steps import StepWatch


TAIL = 16384  # bytes kept; the reader uses their last lines
# bytes that a pipe takes in one piece, without blocking once poll says that it has room (PIPE_BUF)
PIECE = 4096
_TURN = 32  # times that a stream reads and writes before the next stream is served
# seconds without output after which a line is passed on without its end: it may be a prompt
QUIET = 1.0
OPEN_FOR = 5.0  # seconds after which it is passed on anyway: progress dots come one by one
NEVER = float("inf")
END = b"\x1f"  # the end of a line in a piece (framing.py)
OPEN = b"\x1d"  # the end of a piece whose line has none
_AHEAD = 4 << 20  # bytes that wait for a reader once the program was told to stop
_MOST = 1 << 20  # bytes read from a stream after the program's end: the size of the largest pipe


class Copies:
    """Other receivers of a stream: a buffer of its last bytes, a log file, a file for the output's
    time, and what notes the last step."""

    def __init__(
        self,
        tail: bytearray,
        log: RotatingFile | None = None,
        last_output: str = "",
        steps: StepWatch | None = None,
    ) -> None:
        self.tail = tail
        self.log = log
        self.last_output = last_output
        self.steps = steps


class Framer:
    """Encoder of a program's output. `pieces` returns the pieces of lines, of which the last may
    have no end."""

    def __init__(self, lines: Lines, pieces: Callable[[bytes], list[bytes]]) -> None:
        self.lines = lines
        self.pieces = pieces
        self.due = NEVER  # when the next line that is held is passed on
        self.held: dict[bytes, list[bytes]] = {}  # sender -> pieces of its unfinished line

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this data."""
        return self.pieces(self.lines.take(data))

    def rest(self) -> list[bytes]:
        """Return the last line."""
        return self.pieces(self.lines.rest())


class Stream:
    """One of the program's two output streams, and ours that it goes to. Bytes wait until they can
    be written."""

    _ended = True  # whether the last output ended its line
    _rest = b""  # the unfinished line
    due = NEVER  # when an unfinished line in `lines` is passed on
    _opened = 0.0  # when that line began
    open = True
    lost = 0  # bytes that did not wait any more
    passed = 0  # bytes that were written
    unread = 0  # bytes that could not be, since nobody holds the other end

    def __init__(
        self,
        source: int,
        target: int,
        label: bytes,
        copies: Copies,
        lines: Framer | None = None,
        is_shown: bool = True,
    ) -> None:
        """`lines`, if any, makes the pieces that are written; only `copies` get the output of one
        that is not shown."""
        self.source = source
        self._label = label
        self._tail = copies.tail
        self._log = copies.log
        self._steps = copies.steps
        self._lines = lines
        self._is_shown = is_shown
        # File for the time of the last output; -1 without one.
        self._last_output = _opened(copies.last_output) if copies.last_output else -1
        self._marks = target  # bytes of that file that tell whether the last line has ended
        self.waiting: list[bytes] = []  # each piece is written in one call if possible
        private = reopened(target)
        self.target = target if private < 0 else private
        self._blocks = private < 0
        os.set_blocking(source, False)

    took = 0.0  # when any stream last had output, by time.monotonic()
    spoke = 0.0  # when any stream last noted that in the file, by time.monotonic()

    def pass_on(self) -> None:
        """Read and write until one of the two has to wait, or it is another stream's turn."""
        for _ in range(_TURN):
            if self.waiting:
                self.write()
            elif not self.open or not self.read():
                return
            if self.waiting or self._blocks:
                return

    def read_ahead(self) -> None:
        """Read though earlier bytes still wait, so that the program need not; more than `_AHEAD`
        are lost."""
        self.read()
        size = sum(map(len, self.waiting))
        while size > _AHEAD and self.waiting[1:]:
            self.lost += len(self.waiting[-1])
            size -= len(self.waiting.pop())

    def read(self) -> int:
        """Read what is available and return the number of bytes."""
        try:
            data = self._take()
        except BlockingIOError:
            return 0
        except OSError:
            data = b""  # a terminal that nobody holds any more
        self.open = bool(data)
        if data:
            Stream.took = time.monotonic()
        if data and self._last_output >= 0 and time.monotonic() - Stream.spoke > 1:
            Stream.spoke = time.monotonic()
            _note(self._last_output, b"%020.3f\n" % time.monotonic(), 0)
        self._add(data)
        self.write()
        return len(data)

    def _add(self, data: bytes) -> None:
        """Save data and write it as the program's output."""
        self._tail += data[-TAIL:]
        del self._tail[:-TAIL]
        if self._log is not None:
            self._log.write(data)
        if self._steps is not None:
            self._steps.take(data)
        if not self._is_shown:
            return
        if self._lines is not None:
            self._wait_for_room(self._lines.take(data))
        elif self._label:
            self._label_lines(data)
        elif data:
            self._wait_for_room([data])

    def say(self, line: bytes) -> None:
        """Add a whole line of the supervisor's own to the program's output."""
        ended = bytes(self._tail[-1:]) in (b"", b"\n")
        self._add(line if ended else b"\n" + line)

    def _wait_for_room(self, pieces: list[bytes]) -> None:
        """Queue pieces, each of which is written in one call if possible."""
        if self._blocks:
            pieces = [
                piece[at : at + PIECE] for piece in pieces for at in range(0, len(piece), PIECE)
            ]
        self.waiting += pieces

    def pass_late(self) -> None:
        """Pass on a line whose end has not come in time."""
        if (lines := self._lines) is not None and time.monotonic() >= self.due:
            self._wait_for_room(lines.take(b"") or lines.pieces(lines.lines.rest()))
            self.write()

    def _take(self) -> bytes:
        """Read the available bytes; read again if there are many, so that fewer and larger pieces
        are written."""
        data = os.read(self.source, CHUNK)
        if len(data) < PIECE - 1:  # less than a terminal gives at a time
            return data
        pieces = [data]
        room = CHUNK - len(data)
        try:
            while room > 0 and (piece := os.read(self.source, room)):
                pieces.append(piece)
                room -= len(piece)
        except OSError:
            pass  # no more bytes, or the terminal is closed, which the next read will notice
        return b"".join(pieces)

    def _label_lines(self, data: bytes) -> None:
        """Write whole lines, each in one call, so that others cannot mix with them; split long
        lines."""
        room = PIECE - len(self._label) - 2
        # a progress bar's lines end in a carriage return
        lines = (self._rest + data).splitlines(keepends=True)
        rest = lines.pop() if data and lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        whole = len(rest) // room * room
        lines.append(rest[:whole])
        self._rest = rest[whole:]
        batch = b""
        for line in lines:
            text = line.rstrip(b"\r\n")
            for at in range(0, max(len(text), len(line) and 1), room):
                end = line[len(text) :] if at + room >= len(text) else b"\n"
                piece = self._label + text[at : at + room] + (end or b"\n")
                if len(batch) + len(piece) > PIECE:
                    self.waiting.append(batch)
                    batch = b""
                batch += piece
        self.waiting += [batch] if batch else []

    def write(self) -> None:
        """Write as much as there is room for."""
        self._write()
        now = time.monotonic()
        if self._lines is None or self.waiting or not self._lines.lines.open:
            # nothing is read while pieces wait, so the end cannot arrive
            self.due = NEVER if self._lines is None or self.waiting else self._lines.due
            return
        self._opened = now if self.due == NEVER else self._opened
        self.due = min(now + QUIET, self._opened + OPEN_FOR)

    def _write(self) -> None:
        while self.waiting:
            try:
                sent = os.write(self.target, self.waiting[0])
            except BlockingIOError:
                return
            except OSError:
                self.unread += sum(map(len, self.waiting))
                self.waiting.clear()  # no reader, or a full disk: that does not end the program
                return
            self.passed += sent
            written = self.waiting[0][:sent]
            self._note_end(written.endswith((b"\n", END)) and not written.endswith(OPEN + b"\n"))
            self.waiting[:1] = [rest] if (rest := self.waiting[0][sent:]) else []
            if self._blocks:
                return  # until it has room again

    def _note_end(self, ended: bool) -> None:
        """Note whether the last output ended its line, so that our messages start a new one
        (log.py).

        The file has a byte for both streams, then one for stderr.
        """
        if self._last_output >= 0 and not (ended and self._ended):
            _note(self._last_output, (b"\n" if ended else b".") * self._marks, 21)
        self._ended = ended

    def take_rest(self) -> None:
        """Read all bytes that are available now; processes that the program left running may go on
        printing."""
        taken = 0
        while self.open and taken < _MOST and (read := self.read()):
            taken += read

    def close(self) -> None:
        """Pass on the last line, which has no end."""
        if self._rest:
            self._label_lines(b"")
            self.write()
        if self._lines is not None:
            self._wait_for_room(self._lines.rest())
            self.write()


def _opened(file: str) -> int:
    try:
        return open_regular(file, os.O_WRONLY)
    except OSError:
        return -1


def _note(file: int, data: bytes, place: int) -> None:
    try:
        os.pwrite(file, data, place)
    except OSError:
        return  # the disk is full
