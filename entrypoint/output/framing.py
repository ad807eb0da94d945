"""Lines of several ranks on their way through one pipe, in pieces that say whose they are, and whole again behind it.

What a pipe takes at once is never mixed (PIPE_BUF); a longer line would be. Open MPI and Hydra cut their ranks' output
anywhere, and what comes first goes first; each piece begins with a tag where they are asked, `[1,RANK]<stdout>:`.
So every line of several ranks takes this way, whether a prefix was asked for or not.
"""

from __future__ import annotations

import os

from entrypoint.output.lines import LONGEST, Lines
from entrypoint.output.stream import END, OPEN, PIECE, TAIL

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable
    from re import Pattern

# What begins a sender's pieces. Bytes that would look like this, like END and OPEN, or like the tags of Open MPI, are
# escaped; so is the first byte of a `\r\n`, since a `\r` alone ends a line.
MARK, _ESCAPE = b"\x1e", b"\x10"
_CODES = (
    (_ESCAPE, b"\x100"), (MARK, b"\x101"), (END, b"\x102"), (b"]<", b"]\x103"), (b"\r\n", b"\x104\n"),
    (OPEN, b"\x105"), (b"\n", END),
)  # fmt: skip
_ESCAPED = {b"0": _ESCAPE, b"1": MARK, b"2": END, b"3": b"<", b"4": b"\r", b"5": OPEN}


def coded(data: bytes) -> bytes:
    """Lines without a line end in them; OPEN ends the last one where it has none."""
    is_open = data and not data.endswith((b"\n", b"\r"))
    for plain, code in _CODES:
        if plain[:1] in data:  # a search for two bytes is slow
            data = data.replace(plain, code)
    return data + OPEN if is_open else data


def decoded(data: bytes) -> bytes:
    """The lines that `coded` was given."""
    data = data.replace(OPEN, b"").replace(END, b"\n")
    if _ESCAPE not in data:
        return data
    first, *others = data.split(_ESCAPE)
    return first + b"".join([_ESCAPED.get(each[:1], _ESCAPE + each[:1]) + each[1:] for each in others])


def batches(lines: bytes) -> list[bytes]:
    """Whole lines, as many as a pipe takes at once, so that a message of ours finds none half-written."""
    out, at = [], 0
    while at < len(lines):
        end = lines.rfind(b"\n", at, at + PIECE) + 1 or lines.find(b"\n", at + PIECE) + 1 or len(lines)
        out.append(lines[at:end])
        at = end
    return out


# ---------------------------------------------------------------------------------------------------------------
# What a rank's supervisor writes: `take` gives it, each piece for one call, once something has come, `rest` at the end


class Framer:
    """Makes pieces of a program's output. `pieces` makes them of lines; the last of these may have no end."""

    def __init__(self, lines: Lines, pieces: Callable[[bytes], list[bytes]]) -> None:
        self.lines = lines
        self.pieces = pieces

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        return self.pieces(self.lines.take(data))

    def rest(self) -> list[bytes]:
        """The last line."""
        return self.pieces(self.lines.rest())


def marked(lines: Lines, stream: int) -> Framer:
    """Lines in pieces of our own, `<MARK>PID.STREAM:...`, each a line that a pipe takes at once."""
    head = MARK + f"{os.getpid()}.{stream}:".encode()
    room = PIECE - len(head) - 1

    def pieces(lines: bytes) -> list[bytes]:
        data = coded(lines)
        return [head + data[at : at + room] + b"\n" for at in range(0, len(data), room)]

    return Framer(lines, pieces)


def for_mpirun(lines: Lines) -> Framer:
    """Lines for an MPI, which cuts and tags them itself; the first one is marked."""
    begin = MARK

    def pieces(lines: bytes) -> list[bytes]:
        nonlocal begin
        if not lines:
            return []
        piece, begin = begin + coded(lines), b""
        return [piece]

    return Framer(lines, pieces)


# ---------------------------------------------------------------------------------------------------------------
# Where all of them come


class Demultiplexer:
    """Whole lines of each sender again; what no supervisor sent, as a launcher's own words, becomes `own` lines."""

    def __init__(self, own: Lines, tail: bytearray) -> None:
        """`tail` gets the last of what no supervisor sent."""
        self._own = own
        self._tail = tail
        self._held: dict[bytes, list[bytes]] = {}  # sender -> pieces of its line that has not ended yet
        self._open: bytes | None = None  # whose line was passed on without its end: a prompt, or a rank's last words

    def __contains__(self, sender: bytes) -> bool:
        return sender in self._held

    @property
    def any(self) -> bool:
        """Whether a supervisor has sent anything."""
        return bool(self._held)

    def is_within_line(self, sender: bytes) -> bool:
        """Whether a line of this sender has begun, and not ended."""
        return any(self._held[sender])

    def join(self, sender: bytes, piece: bytes) -> bytes:
        """The lines of this sender that end in this piece."""
        cut = max(piece.rfind(END), piece.rfind(b"\r"), piece.rfind(OPEN)) + 1
        held = self._held.setdefault(sender, [])
        if not cut:
            held.append(piece)
            return b""
        whole = b"".join((*held, piece[:cut]))
        self._held[sender] = [piece[cut:]]
        end = self._end_of_another(sender)
        self._open = sender if whole.endswith(OPEN) else None
        return end + decoded(whole)

    def _end_of_another(self, sender: bytes | None) -> bytes:
        """A line end, if another's line was passed on without one: this one's would go on where that stops."""
        end = b"" if self._open in (None, sender) else b"\n"
        self._open = None
        return end

    def own(self, data: bytes) -> bytes:
        """The lines that end in what no supervisor has sent."""
        if not data:
            return b""
        self._tail += data
        del self._tail[:-TAIL]
        lines = self._own.take(data)
        return self._end_of_another(None) + lines if lines else b""

    def rest(self, data: bytes) -> list[bytes]:
        """What is left without an end, of supervisors that were killed too; `data` is nobody's."""
        left = [
            self._end_of_another(sender) + decoded(b"".join(held)) + b"\n"
            for sender, held in self._held.items()
            if any(held)
        ]
        own = self.own(data) + self._own.rest()
        return [each for each in (*left, own and self._end_of_another(None) + own) if each]


class FramedInput:
    """Takes the pieces of `marked`."""

    pieces = staticmethod(batches)

    def __init__(self, own: Lines, tail: bytearray) -> None:
        self.lines = own
        self.senders = Demultiplexer(own, tail)
        self._piece: list[bytes] = []  # one that has not ended yet
        self._size = 0  # of it

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        *pieces, rest = data.split(b"\n")
        out = []
        if pieces:
            pieces[0] = b"".join((*self._piece, pieces[0]))
            self._piece = []
            self._size = 0
            out = [self._passed(piece) for piece in pieces]
        if self._piece or MARK in rest:
            self._piece.append(rest)
            self._size += len(rest)
        else:
            out.append(self.senders.own(rest))
        if self._size > LONGEST:  # nobody's piece is that long
            out.append(self.senders.own(b"".join(self._piece)))
            self._piece = []
            self._size = 0
        return batches(b"".join(out))

    def rest(self) -> list[bytes]:
        """What has come without an end."""
        last, self._piece = b"".join(self._piece), []
        return self.senders.rest(last)

    def _passed(self, line: bytes) -> bytes:
        before, mark, piece = line.partition(MARK)
        if not mark:
            return self.senders.own(line + b"\n")
        sender, _, piece = piece.partition(b":")
        return self.senders.own(before) + self.senders.join(sender, piece)


class TaggedInput:
    """Takes what an MPI made of `for_mpirun`'s lines. `tag` finds its tags; ranks without a supervisor mark nothing."""

    pieces = staticmethod(batches)
    _LONGEST_TAG, _OF_TAGS = 40, b"[],<>0123456789stdouterriag: "  # bytes

    def __init__(self, own: Lines, tag: Pattern[bytes]) -> None:
        self.lines = own
        self.senders = Demultiplexer(own, bytearray())
        self._tag = tag
        self._sender = b""  # whose the last piece was
        self._rest = b""  # that may be the beginning of a tag

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        data = self._rest + data
        cut = data.rfind(b"[", max(0, len(data) - self._LONGEST_TAG))
        data, self._rest = (data[:cut], data[cut:]) if cut >= 0 and not data[cut:].strip(self._OF_TAGS) else (data, b"")
        return batches(self._passed(data))

    def _passed(self, data: bytes) -> bytes:
        first, *words = self._tag.split(data)
        out = [self._piece(first)]
        for tag, piece in zip(words[::2], words[1::2], strict=True):
            self._sender = tag
            out.append(self._piece(piece))
        return b"".join(out)

    def _piece(self, piece: bytes) -> bytes:
        before, mark, after = piece.partition(MARK)
        if mark:
            return self.senders.own(before) + self.senders.join(self._sender, after)
        if self._sender not in self.senders:
            return self.senders.own(piece)
        if b"\n" not in piece:
            return self.senders.join(self._sender, piece)
        # What ends a line is mpirun's own. It begins where the rank's last line has ended, unless that is half through.
        said = piece.find(b"\n")
        begin = max(piece.rfind(END, 0, said), piece.rfind(OPEN, 0, said)) + 1
        if not begin and self.senders.is_within_line(self._sender):
            begin, said = said, said + 1
        else:
            said = begin
        return self.senders.join(self._sender, piece[:begin]) + self.senders.own(piece[said:])

    def rest(self) -> list[bytes]:
        """What has come without an end."""
        last, self._rest = self._rest, b""
        return [each for each in (self._passed(last), *self.senders.rest(b"")) if each]
