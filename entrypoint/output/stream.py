"""The way of a program's output through the keeper: nothing is lost, and no other output delays it.

A `Stream` is what a program prints into; a `Target` is where several of them go.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import deque

from entrypoint.base.kept import NOTE_AT
from entrypoint.output.lines import END, NEVER, PIECE
from entrypoint.system.descriptors import CHUNK, open_regular, reopened

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

    from entrypoint.output.collapse import Collapser
    from entrypoint.output.framing import Framer
    from entrypoint.output.rotate import RotatingFile
    from entrypoint.output.steps import StepWatch


TAIL = 16384  # bytes kept; the reader uses their last lines
# seconds without output after which a line is passed on without its end: it may be a prompt
QUIET = 1.0
OPEN_FOR = 5.0  # seconds after which it is passed on anyway: progress dots come one by one
# bytes that wait for a reader: of all programs; of one that was told to stop, and must not wait;
# and of an MPI's launcher and the ranks next to it, which a short pause need not keep waiting
_ROOM = CHUNK
_OF_STOPPED = 4 << 20
OF_LAUNCHER = 4 << 20
_MOST = 2 << 20  # bytes read after a program's end: the size of two of the largest pipes
_PAUSE = 1.0  # seconds between two notes that something was printed
_FIONREAD = 0x541B  # ioctl(2): the bytes in a pipe
_OF_OTHERS = 4 * PIECE  # bytes of its room that other writers may take at that moment


class LastOutput:
    """The file in which a node notes when its programs last printed, and whether the last line of
    each stream has ended: the monotonic clock's seconds, and a byte for both streams, then one for
    stderr, and the number of this note."""

    _noted = 0.0
    _ends = b"\n\n"
    _count = 0

    def __init__(self, file: str) -> None:
        try:
            self._fd = open_regular(file, os.O_WRONLY)
        except OSError:
            self._fd = -1

    def took(self, now: float) -> None:
        """Note that something was printed."""
        if now > self._noted + _PAUSE:
            self._noted = now
            self._note(b"%020.3f\n" % now, 0)

    def ended(self, has_ended: bool, stream: int) -> None:
        """Note whether the last line of this stream, 1 or 2, has ended."""
        self._ends = (b"\n" if has_ended else b".") * stream + self._ends[stream:]
        self._count += 1
        self._note(b"%b%010d" % (self._ends, self._count), NOTE_AT)

    def _note(self, data: bytes, place: int) -> None:
        try:
            os.pwrite(self._fd, data, place)
        except OSError:
            return  # the disk is full, or there is no such file

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Target:
    """A stream of this node, or of an MPI's pipes to a rank, that several programs print into.
    Data waits in order until it can be written."""

    size = 0  # bytes that wait
    moved = 0.0  # when bytes were last written, or the first came to wait (monotonic seconds)
    collapser: Collapser | None = None  # if lines of ranks that are alike become one
    _ended = True  # whether the last output ended its line
    _is_open = False  # whether it has no end at all, not even that of a progress bar's line
    _last: Stream | None = None  # whose it was
    _feeding: Stream | None = None  # from which lines came last

    def __init__(self, fd: int, number: int, last_output: LastOutput) -> None:
        """`number` is 1 for stdout, 2 for stderr, and 0 for what is printed there only later. Takes
        `fd` over, if that is above 2."""
        self._number = number
        self.last_output = last_output
        private = reopened(fd)
        self._is_file = os.fstat(fd).st_mode & 0o170000 == 0o100000
        self._blocks = private < 0 and not self._is_file
        self.fd = private if private >= 0 else fd
        if private >= 0 and fd > 2:
            os.close(fd)
        self._data: deque[tuple[Stream, bytes]] = deque()

    def put(self, stream: Stream, data: bytes) -> None:
        """Have data of a stream wait."""
        if self.collapser is not None:
            self._feeding = stream
            data = self.collapser.take(data)
        self._wait(stream, data)

    def _wait(self, stream: Stream, data: bytes) -> None:
        if not data:
            return
        if not self._data:
            self.moved = time.monotonic()
        self._data.append((stream, data))
        self._count(stream, len(data))

    def _count(self, stream: Stream, more: int) -> None:
        self.size += more
        stream.waiting += more

    @property
    def due(self) -> float:
        """Return when lines that are held back are to be written."""
        return NEVER if self.collapser is None else self.collapser.due

    def pass_late(self, now: float) -> None:
        """Write lines that were held back for long enough."""
        if now >= self.due and self._feeding is not None:
            self.put(self._feeding, b"")
            self.write()

    def pass_rest(self) -> None:
        """Have all lines wait that were held back."""
        if self.collapser is not None and self._feeding is not None:
            self._wait(self._feeding, self.collapser.rest())

    def write(self) -> None:
        """Write as much as there is room for."""
        while self._data:
            stream, data = self._data.popleft()
            if stream is not self._last and self._is_open and stream.is_whole:
                data = b"\n" + data  # another one's line was passed on without its end
                self._count(stream, 1)
            self._last = stream
            rest = self._write(stream, data)
            if rest:
                self._data.appendleft((stream, rest))
            if rest or self._blocks:
                return  # until it has room again

    def _write(self, stream: Stream, data: bytes) -> bytes:
        """Write as much of this data as there is room for, and return the rest."""
        at = 0
        while at < len(data):
            piece = data[at : self._end_of_piece(stream, data, at)]
            if not piece.endswith((b"\n", END)):
                self._note_end(False)  # now, too: one of our messages may come before the next note
            try:
                sent = os.write(self.fd, piece)
            except BlockingIOError:
                break
            except OSError:
                # no reader, or a full disk: that does not end the program
                self._data.appendleft((stream, data[at:]))
                self._nobody_reads()
                return b""
            self.moved = time.monotonic()
            at += sent
            self._count(stream, -sent)
            stream.passed += sent
            written = piece[:sent]
            self._note_end(written.endswith((b"\n", END)))
            self._is_open = not written.endswith((b"\n", b"\r", END))
            if self._blocks:
                break
        return data[at:]

    def _end_of_piece(self, stream: Stream, data: bytes, at: int) -> int:
        """Return the end of what is written in one call: whole lines that are written at once, or
        not at all, so that our messages never split a line."""
        limit = at + PIECE if self._blocks else len(data)
        if self._is_file or not (self._number and stream.is_whole):
            return limit
        most = at + self._room()
        end = data.rfind(b"\n", at, most) + 1 or data.find(b"\n", most) + 1 or limit
        return min(end, limit)

    def _room(self) -> int:
        """Return how many bytes are written at once: a pipe that is empty takes several pieces."""
        try:
            if not any(fcntl.ioctl(self.fd, _FIONREAD, bytes(4))):
                return max(PIECE, fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ) - _OF_OTHERS)
        except OSError:
            pass  # it is no pipe
        return PIECE

    def _nobody_reads(self) -> None:
        for stream, data in self._data:
            stream.unread += len(data)
            self._count(stream, -len(data))
        self._data.clear()
        self._ended = True
        self._is_open = False

    def _note_end(self, has_ended: bool) -> None:
        """Note whether the last output ended its line, so that our messages start a new one
        (log.py)."""
        if self._number and not (has_ended and self._ended):
            self.last_output.ended(has_ended, self._number)
        self._ended = has_ended

    def drop(self, stream: Stream, most: int = 0) -> None:
        """Drop the last data of a stream, down to so many bytes that wait. It is lost."""
        kept: deque[tuple[Stream, bytes]] = deque()
        while self._data and stream.waiting > most:
            each, data = self._data.pop()
            if each is stream:
                self._count(stream, -len(data))
                stream.lost += len(data)
            else:
                kept.appendleft((each, data))
        self._data += kept

    def close(self) -> None:
        """Close what this has opened."""
        if self.fd > 2:
            os.close(self.fd)


class Copies:
    """Other receivers of a stream: a buffer of its last bytes, a log file, and what notes the last
    step."""

    def __init__(self, tail: bytearray, log: RotatingFile | None) -> None:
        self.tail = tail
        self.log = log
        # what makes the watch of one stream
        self.steps: Callable[[], StepWatch | None] = lambda: None


class Stream:
    """One of a program's two output streams, on its way to a target."""

    open = True
    waiting = 0  # bytes in the target
    passed = 0  # bytes that were written
    lost = 0  # bytes that did not wait any more
    unread = 0  # bytes that could not be written, since nobody holds the other end
    took = 0.0  # when it last had output (monotonic seconds)
    due = NEVER  # when an unfinished line in `lines` is passed on
    _opened = 0.0  # when that line began
    _rest = b""  # the unfinished line of one with a label
    ahead = _ROOM  # bytes that may wait in the target while this is read

    def __init__(
        self,
        source: int,
        target: Target,
        copies: Copies,
        lines: Framer | None,
        label: bytes,
    ) -> None:
        """`lines`, if any, makes what is written; `label` begins each line of one without."""
        self.source = source
        self.target = target
        self._copies = copies
        self._steps = copies.steps()
        self._lines = lines
        self._label = label
        self.is_shown = True  # else only `copies` get the output
        self.is_stopped = False  # whether the program was told to stop: it must not wait
        self.is_whole = bool(lines or label)
        os.set_blocking(source, False)

    @property
    def is_of_rank(self) -> bool:
        """Return whether its output waits for a reader; a launcher's own text does not."""
        return self._lines is None or not self._lines.is_launcher_s_own

    @property
    def is_wanted(self) -> bool:
        """Return whether to read more now."""
        return self.open and (self.is_stopped or self.target.size < self.ahead)

    def take(self, pieces: list[bytes]) -> bool:
        """Read a piece, and return whether there may be another one for this chunk."""
        if not self.open:
            return False
        room = CHUNK - sum(map(len, pieces))
        try:
            data = os.read(self.source, room)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal that nobody holds any more
        if not data:
            self._end()
            return False
        pieces.append(data)
        return PIECE - 1 <= len(data) < room  # less than a terminal gives at a time: it has no more

    def pass_chunk(self, data: bytes) -> int:
        """Have what was read go on its way, and return its size."""
        if data:
            self.took = time.monotonic()
            self.target.last_output.took(self.took)
            self._add(data)
            self.pass_on()
        if self.is_stopped:
            self.target.drop(self, _OF_STOPPED)
        return len(data)

    def _add(self, data: bytes) -> None:
        """Save data and have it wait as the program's output."""
        copies = self._copies
        copies.tail += data[-TAIL:]
        del copies.tail[:-TAIL]
        if copies.log is not None:
            copies.log.write(data)
        if self._steps is not None:
            self._steps.take(data)
        if not self.is_shown:
            return
        if self._lines is not None:
            self.target.put(self, self._lines.take(data))
        elif self._label:
            self._label_lines(data)
        else:
            self.target.put(self, data)

    def say(self, line: bytes) -> None:
        """Add a whole line of our own to the program's output."""
        ended = bytes(self._copies.tail[-1:]) in (b"", b"\n")
        self._add(line if ended else b"\n" + line)
        self.pass_on()

    def pass_on(self) -> None:
        """Write what there is room for, and note when an unfinished line is due."""
        self.target.write()
        now = time.monotonic()
        if self._lines is None or self.waiting or not self._lines.lines.open:
            # nothing is read while data waits, so the end cannot arrive
            self.due = NEVER
            return
        if self.due == NEVER:
            self._opened = now
        self.due = min(now + QUIET, self._opened + OPEN_FOR)

    def pass_late(self, now: float) -> None:
        """Pass on a line whose end has not come in time."""
        if (lines := self._lines) is not None and now >= self.due:
            self.target.put(self, lines.coded(lines.lines.rest()))
            self.pass_on()

    def _label_lines(self, data: bytes) -> None:
        """Have whole lines wait, each to be written in one call, so that others cannot mix with
        them; split long lines."""
        room = PIECE - len(self._label) - 2
        # a progress bar's lines end in a carriage return
        lines = (self._rest + data).splitlines(keepends=True)
        rest = lines.pop() if data and lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        whole = len(rest) // room * room
        lines.append(rest[:whole])
        self._rest = rest[whole:]
        pieces: list[bytes] = []
        for line in lines:
            text = line.rstrip(b"\r\n")
            for at in range(0, max(len(text), len(line) and 1), room):
                end = line[len(text) :] if at + room >= len(text) else b"\n"
                pieces += self._label, text[at : at + room], end or b"\n"
        self.target.put(self, b"".join(pieces))

    def _end(self) -> None:
        self.open = False
        os.close(self.source)

    def close(self) -> None:
        """Read no more, and pass on the last line, which has no end."""
        if self.open:
            self._end()
        if self._rest:
            self._label_lines(b"")
        if self._lines is not None:
            self.target.put(self, self._lines.rest())
        self.pass_on()


def read(streams: list[Stream]) -> int:
    """Read what is available from these streams, a chunk of each at most, and return the bytes.

    A terminal gives a piece at a time, and the next one takes the kernel a moment: so they are read
    in turn.
    """
    pieces = {stream: list[bytes]() for stream in streams}
    left = streams
    while left:
        left = [stream for stream in left if stream.take(pieces[stream])]
    return sum(stream.pass_chunk(b"".join(taken)) for stream, taken in pieces.items())


def take_rest(streams: list[Stream]) -> None:
    """Read all bytes that are available now from a program's streams; processes that it left
    running may go on printing."""
    taken = 0
    while taken < _MOST and (size := read(streams)):
        taken += size
