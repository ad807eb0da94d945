"""Lines of several ranks on their way through one pipe, in pieces that say whose they are, and whole again behind it.

What a pipe takes at once is never mixed (PIPE_BUF); a longer line would be. Open MPI and Hydra cut their ranks' output
anywhere, and what comes first goes first; each piece begins with a tag where they are asked, `[1,RANK]<stdout>:`.
"""

from __future__ import annotations

import os

from entrypoint.host.lines import LONGEST, Lines

if False:  # only for type checkers: importing it is slow
    from re import Pattern

PIECE = 4096  # bytes that a pipe takes in one piece
_TAIL = 16384  # bytes kept of a program's own words (stream.py)
# What begins a sender's pieces, and what is a line's end inside of them. Bytes that would look like those, or like the
# tags of Open MPI, are escaped; so is the first byte of a `\r\n`, since a `\r` alone ends a line.
MARK, END = b"\x1e", b"\x1f"
_CODES = (
    (b"\x10", b"\x100"), (MARK, b"\x101"), (END, b"\x102"), (b"<", b"\x103"), (b"\r\n", b"\x104\n"), (b"\n", END),
)  # fmt: skip


def coded(data: bytes) -> bytes:
    """Lines without a line end in them."""
    for plain, code in _CODES:
        data = data.replace(plain, code)
    return data


def decoded(data: bytes) -> bytes:
    """The lines that `coded` was given."""
    for plain, code in reversed(_CODES):
        data = data.replace(code, plain)
    return data


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


class Plain:
    """Lines as they are, where no other rank writes."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        return batches(self._lines.take(data))

    def rest(self) -> list[bytes]:
        """The last line."""
        return batches(self._lines.rest())


class Marked:
    """Lines in pieces of our own, `<MARK>PID.STREAM:...`, each a line that a pipe takes at once."""

    def __init__(self, lines: Lines, stream: int) -> None:
        self._lines = lines
        self._head = MARK + f"{os.getpid()}.{stream}:".encode()

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        return self._pieces(self._lines.take(data))

    def rest(self) -> list[bytes]:
        """The last line."""
        return self._pieces(self._lines.rest())

    def _pieces(self, lines: bytes) -> list[bytes]:
        data, room = coded(lines), PIECE - len(self._head) - 1
        return [self._head + data[at : at + room] + b"\n" for at in range(0, len(data), room)]


class ForMpirun:
    """Lines for an MPI, which cuts and tags them itself; the first one is marked."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._begin = lines, MARK

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        return self._piece(self._lines.take(data))

    def rest(self) -> list[bytes]:
        """The last line."""
        return self._piece(self._lines.rest())

    def _piece(self, lines: bytes) -> list[bytes]:
        if not lines:
            return []
        piece, self._begin = self._begin + coded(lines), b""
        return [piece]


# ---------------------------------------------------------------------------------------------------------------
# Where all of them come


class Senders:
    """Whole lines of each sender again; what no supervisor sent, as a launcher's own words, becomes `own` lines."""

    def __init__(self, own: Lines, tail: bytearray) -> None:
        """`tail` gets the last of what no supervisor sent."""
        self._own, self._tail = own, tail
        self._held: dict[bytes, list[bytes]] = {}  # sender -> pieces of its line that has not ended yet

    def __contains__(self, sender: bytes) -> bool:
        return sender in self._held

    def join(self, sender: bytes, piece: bytes) -> bytes:
        """The lines of this sender that end in this piece."""
        cut = max(piece.rfind(END), piece.rfind(b"\r")) + 1
        held = self._held.setdefault(sender, [])
        if not cut:
            held.append(piece)
            return b""
        whole = b"".join((*held, piece[:cut]))
        self._held[sender] = [piece[cut:]]
        return decoded(whole)

    def own(self, data: bytes) -> bytes:
        """The lines that end in what no supervisor has sent."""
        if not data:
            return b""
        self._tail += data
        del self._tail[:-_TAIL]
        return self._own.take(data)

    def rest(self, data: bytes) -> list[bytes]:
        """What is left without an end, of supervisors that were killed too; `data` is nobody's."""
        left = [decoded(b"".join(held)) + b"\n" for held in self._held.values() if any(held)]
        return [each for each in (*left, self.own(data) + self._own.rest()) if each]


class United:
    """Takes the pieces of Marked."""

    def __init__(self, own: Lines, tail: bytearray) -> None:
        self._senders = Senders(own, tail)
        self._line: list[bytes] = []  # a piece that has not ended yet
        self._size = 0  # of it

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        *lines, rest = data.split(b"\n")
        out = []
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line, self._size = [], 0
            out = [self._passed(line) for line in lines]
        self._line.append(rest)
        self._size += len(rest)
        if self._size > LONGEST:  # nobody's piece is that long
            out.append(self._senders.own(b"".join(self._line)))
            self._line, self._size = [], 0
        return batches(b"".join(out))

    def rest(self) -> list[bytes]:
        """What has come without an end."""
        last, self._line = b"".join(self._line), []
        return self._senders.rest(last)

    def _passed(self, line: bytes) -> bytes:
        before, mark, piece = line.partition(MARK)
        if not mark:
            return self._senders.own(line + b"\n")
        sender, _, piece = piece.partition(b":")
        return (self._senders.own(before + b"\n") if before else b"") + self._senders.join(sender, piece)


class FromMpirun:
    """Takes what an MPI made of ForMpirun's lines. `tag` finds its tags; ranks without a supervisor mark nothing."""

    _LONGEST_TAG, _OF_TAGS = 40, b"[],<>0123456789stdouterriag: "  # bytes

    def __init__(self, own: Lines, tag: Pattern[bytes]) -> None:
        self._senders, self._tag = Senders(own, bytearray()), tag
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
        for tag, piece in zip(words[::2], words[1::2]):  # noqa: B905 python 3.9 may run it
            self._sender = tag
            out.append(self._piece(piece))
        return b"".join(out)

    def _piece(self, piece: bytes) -> bytes:
        before, mark, after = piece.partition(MARK)
        if mark:
            return self._senders.own(before) + self._senders.join(self._sender, after)
        if self._sender not in self._senders:
            return self._senders.own(piece)
        piece, end, said = piece.partition(b"\n")  # what ends a line is mpirun's own word
        return self._senders.join(self._sender, piece) + (self._senders.own(said) if end else b"")

    def rest(self) -> list[bytes]:
        """What has come without an end."""
        last, self._rest = self._rest, b""
        return [each for each in (self._passed(last), *self._senders.rest(b"")) if each]
