"""Framing of output lines: several ranks write them into one pipe in pieces with a sender, and a
reader joins them.

A pipe keeps writes of up to PIPE_BUF bytes whole; longer lines would be mixed. Open MPI and Hydra
cut their ranks' output anywhere and forward it as it arrives; on request each piece begins with a
tag, `[1,RANK]<stdout>:`. So all lines of several ranks are framed, whether a prefix is configured
or not.
"""

from __future__ import annotations

import os
import time

from entrypoint.output.lines import FIELD, LONGEST, Lines
from entrypoint.output.stream import END, NEVER, OPEN, PIECE, TAIL

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable
    from re import Pattern

# Start of a sender's pieces. Bytes that look like it, like END and OPEN, or like the tags of Open
# MPI, are escaped; so is the first byte of a `\r\n`, since a `\r` alone ends a line.
MARK = b"\x1e"
_ESCAPE = b"\x10"
_CODES = (
    (_ESCAPE, b"\x100"), (MARK, b"\x101"), (END, b"\x102"), (b"]<", b"]\x103"),
    (b"\r\n", b"\x104\n"), (OPEN, b"\x105"), (b"\n", END),
)  # fmt: skip
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\r\x1b"})  # in a launcher's text: none is needed
_ESCAPED = {b"0": _ESCAPE, b"1": MARK, b"2": END, b"3": b"<", b"4": b"\r", b"5": OPEN}


def coded(data: bytes) -> bytes:
    """Return the lines encoded without line ends; OPEN marks a last line that has no end."""
    is_open = data and not data.endswith((b"\n", b"\r"))
    for plain, code in _CODES:
        if plain[:1] in data:  # a search for two bytes is slow
            data = data.replace(plain, code)
    return data + OPEN if is_open else data


def decoded(data: bytes) -> bytes:
    """Return the lines that `coded` has encoded."""
    data = data.replace(OPEN, b"").replace(END, b"\n")
    if _ESCAPE not in data:
        return data
    first, *others = data.split(_ESCAPE)
    return first + b"".join(
        [_ESCAPED.get(part[:1], _ESCAPE + part[:1]) + part[1:] for part in others]
    )


def batches(lines: bytes) -> list[bytes]:
    """Return whole lines in batches that a pipe takes at once, so that our messages never split a
    line."""
    out = []
    at = 0
    while at < len(lines):
        end = (
            lines.rfind(b"\n", at, at + PIECE) + 1
            or lines.find(b"\n", at + PIECE) + 1
            or len(lines)
        )
        out.append(lines[at:end])
        at = end
    return out


# --------------------------------------------------------------------------------------------------
# Output of a rank's supervisor: `take` returns the pieces of new data, each for one write; `rest`
# those at the end


class Framer:
    """Encoder of a program's output. `pieces` returns the pieces of lines, of which the last may
    have no end."""

    def __init__(self, lines: Lines, pieces: Callable[[bytes], list[bytes]]) -> None:
        self.lines = lines
        self.pieces = pieces
        self.due = NEVER  # when the next line that is held is passed on

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this data."""
        return self.pieces(self.lines.take(data))

    def rest(self) -> list[bytes]:
        """Return the last line."""
        return self.pieces(self.lines.rest())


def marked(lines: Lines, stream: int) -> Framer:
    """Return a framer whose pieces are `<MARK>PID.STREAM:...`, each a line that a pipe takes at
    once."""
    head = MARK + f"{os.getpid()}.{stream}:".encode()
    room = PIECE - len(head) - 1

    def pieces(lines: bytes) -> list[bytes]:
        data = coded(lines)
        return [head + data[at : at + room] + b"\n" for at in range(0, len(data), room)]

    return Framer(lines, pieces)


def for_mpirun(lines: Lines) -> Framer:
    """Return a framer for an MPI, which cuts and tags lines itself; only the first piece gets a
    mark."""
    begin = MARK

    def pieces(lines: bytes) -> list[bytes]:
        nonlocal begin
        if not lines:
            return []
        piece = begin + coded(lines)
        begin = b""
        return [piece]

    return Framer(lines, pieces)


# --------------------------------------------------------------------------------------------------
# Input from all supervisors


class Input(Framer):
    """Decoder of pieces, which joins those of each sender to lines. Other text, such as the
    launcher's, goes through `lines`; `tail` gets its last bytes."""

    def __init__(self, lines: Lines, tail: bytearray) -> None:
        super().__init__(lines, batches)
        self._tail = tail
        self.held: dict[bytes, list[bytes]] = {}  # sender -> pieces of its unfinished line
        # sender whose line was passed on without its end: a prompt, or a last line
        self._open: bytes | None = None

    def join(self, sender: bytes, piece: bytes) -> bytes:
        """Return the lines of this sender that end in this piece."""
        cut = max(piece.rfind(END), piece.rfind(b"\r"), piece.rfind(OPEN)) + 1
        held = self.held.setdefault(sender, [])
        if not cut:
            held.append(piece)
            return b""
        whole = b"".join((*held, piece[:cut]))
        self.held[sender] = [piece[cut:]]
        end = self._end_of_another(sender)
        self._open = sender if whole.endswith(OPEN) else None
        return end + decoded(whole)

    def _end_of_another(self, sender: bytes | None) -> bytes:
        """Return a line end if another sender's line was passed on without one, so that this line
        starts a new one."""
        end = b"" if self._open in (None, sender) else b"\n"
        self._open = None
        return end

    def other(self, data: bytes) -> bytes:
        """Return the lines that end in this data, which no supervisor has sent: without bytes for
        which `grep` takes a log for binary, such as Open MPI 5's NUL."""
        data = data.translate(None, _CONTROLS)
        if not data:
            return b""
        self._tail += data
        del self._tail[:-TAIL]
        lines = self.lines.take(data)
        return self._end_of_another(None) + lines if lines else b""

    def remaining(self, data: bytes) -> list[bytes]:
        """Return unfinished lines, also those of killed supervisors; `data` has no sender."""
        unfinished = [
            self._end_of_another(sender) + decoded(b"".join(held)) + b"\n"
            for sender, held in self.held.items()
            if any(held)
        ]
        other = self.other(data) + self.lines.rest()
        return [
            line for line in (*unfinished, other and self._end_of_another(None) + other) if line
        ]


class FramedInput(Input):
    """Decoder of the pieces of `marked`."""

    _piece = b""  # the unfinished piece

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this data."""
        *pieces, rest = (self._piece + data).split(b"\n")
        # no sender writes a longer piece
        self._piece = rest if MARK in rest and len(rest) <= LONGEST else b""
        out = [self._passed(piece) for piece in pieces]
        if not self._piece:
            out.append(self.other(rest))
        return batches(b"".join(out))

    def rest(self) -> list[bytes]:
        """Return the unfinished lines."""
        last = self._piece
        self._piece = b""
        return self.remaining(last)

    def _passed(self, line: bytes) -> bytes:
        before, mark, piece = line.partition(MARK)
        if not mark:
            return self.other(line + b"\n")
        sender, _, piece = piece.partition(b":")
        return self.other(before) + self.join(sender, piece)


class TaggedInput(Input):
    """Decoder of lines of `for_mpirun` that an MPI has cut and tagged. `tag` matches its tags.

    Output of ranks without a supervisor has no mark.
    """

    _LONGEST_TAG = 40  # bytes
    _TAG_BYTES = b"[],<>0123456789stdouterriag: "
    _sender = b""  # sender of the last piece
    _rest = b""  # bytes that may be the beginning of a tag

    def __init__(self, lines: Lines, tag: Pattern[bytes]) -> None:
        super().__init__(lines, bytearray())
        self._tag = tag

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this data."""
        data = self._rest + data
        cut = data.rfind(b"[", max(0, len(data) - self._LONGEST_TAG))
        if cut < 0 or data[cut:].strip(self._TAG_BYTES):
            cut = len(data)
        self._rest = data[cut:]
        data = data[:cut]
        return batches(self._passed(data))

    def _passed(self, data: bytes) -> bytes:
        first, *parts = self._tag.split(data)
        out = [self._piece(first)]
        for tag, piece in zip(parts[::2], parts[1::2], strict=True):
            self._sender = tag
            out.append(self._piece(piece))
        return b"".join(out)

    def _piece(self, piece: bytes) -> bytes:
        before, mark, after = piece.partition(MARK)
        if mark:
            return self.other(before) + self.join(self._sender, after)
        if self._sender not in self.held:
            return self.other(piece)
        if b"\n" not in piece:
            return self.join(self._sender, piece)
        # A line that has an end is mpirun's. It begins after the rank's last whole line, or after
        # an unfinished one.
        resume = piece.find(b"\n")
        end = max(piece.rfind(END, 0, resume), piece.rfind(OPEN, 0, resume)) + 1
        if not end and any(self.held[self._sender]):
            end = resume
            resume += 1
        else:
            resume = end
        return self.join(self._sender, piece[:end]) + self.other(piece[resume:])

    def rest(self) -> list[bytes]:
        """Return the unfinished lines."""
        last = self._rest
        self._rest = b""
        return [line for line in (self._passed(last), *self.remaining(b"")) if line]


# A time, and glog's thread behind it; NCCL's host:pid:thread [device]; `rank 3`, but no fraction.
VARIABLE = (
    rb"(?<![\w:])(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d?:\d\d:\d\d(?!:\d)(?:[.,]\d{1,9})?"
    rb"(?: +\d+(?= [\w./-]{1,255}:\d+\]))?|(?<![\w.-])[\w.-]{1,255}:\d+:\d+ \[[\d#]+\]"
    rb"|((?i:rank|[pt]id|process|device|[gn]pu|cuda|worker|node|host)[ :=#_[(-]*)\d+(?!\.?\d)"
)


class _Held:
    """A line that waits for the same one of other ranks. `order`: its place among the lines, and
    the bytes up to its arrival; `due`: when it is passed on, by the monotonic clock."""

    def __init__(self, order: tuple[int, int], due: float, prefix: bytes, text: bytes) -> None:
        self.order = order
        self.due = due
        self._prefix = prefix
        self._text = text
        self.ranks: list[bytes] = []  # that have printed it

    def line(self, is_json: bool) -> bytes:
        """Return it, with its ranks if there are several."""
        from entrypoint.base.text import spans  # slow to import

        if len(self.ranks) == 1:
            return self._prefix + self._text
        names = ",".join(spans(sorted(map(int, self.ranks)))).encode()
        note = b',"count":%d,"ranks":"%b"' if is_json else b" [x%d: ranks %b]"
        body = self._text.rstrip(b"}\n" if is_json else b"\r\n")
        end = self._text[len(body) :]
        return self._prefix + body + note % (len(self.ranks), names) + end


class Collapser(Framer):
    """Holds the lines of `whole` for a second: those of other ranks join them, or follow the last
    line of their rank, so that what a rank prints stays in its order."""

    def __init__(self, whole: Input, options: dict[str, str]) -> None:
        super().__init__(whole.lines, batches)
        self.held = whole.held
        self._whole = whole
        self._is_json = options["--lines"] == "json"
        self._lines: list[_Held] = []
        self._alike: dict[bytes, list[_Held]] = {}
        self._last: dict[bytes, tuple[int, int]] = {}  # rank -> order of its last line
        self._passed = (0, 0)  # order of the last line that was passed on
        self._size = 0  # bytes of all lines since none was held

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that are due."""
        now = time.monotonic()
        self._hold(self._whole.take(data), now)
        return self._pass(NEVER if self._size > 4 * LONGEST else now)

    def rest(self) -> list[bytes]:
        """Return all lines."""
        self._hold(self._whole.rest(), time.monotonic())
        return self._pass(NEVER)

    def _hold(self, pieces: list[bytes], now: float) -> None:
        import re  # slow to import, as what follows
        from bisect import bisect

        for line in b"".join(pieces).splitlines(keepends=True):
            self._size += len(line) + 200
            parts = line.split(FIELD.encode(), 2)
            prefix, rank, text = parts if len(parts) == 3 else (line, b"", b"")
            is_one = len(text) > PIECE or not rank.isdigit() or text.endswith(b"\r")
            own = b"" if is_one else text.replace(b"[%b]" % rank, b"[#]")
            alike = self._alike.setdefault(re.sub(VARIABLE, rb"\1#", own), []) if own else []
            last = max(self._last.get(rank, self._passed), self._passed)
            at = bisect(alike, last, key=lambda held: held.order)
            if at == len(alike):
                alike.append(self._insert(last if rank else None, now, prefix, text))
            self._last[rank] = alike[at].order
            alike[at].ranks.append(rank)

    def _insert(
        self, last: tuple[int, int] | None, now: float, prefix: bytes, text: bytes
    ) -> _Held:
        """Hold a line behind the last one of its rank, and at the end if that is the last of
        all."""
        from bisect import bisect

        end = self._lines[-1].order[0] if self._lines else self._passed[0]
        order = (last[0] if last and last[0] < end else end + 1, self._size)
        at = bisect(self._lines, order, key=lambda held: held.order)
        # A line is passed on before those behind it.
        due = min([now + 1, *(held.due for held in self._lines[at : at + 1])])
        held = _Held(order, due, prefix, text)
        self._lines.insert(at, held)
        return held

    def _pass(self, now: float) -> list[bytes]:
        from bisect import bisect

        due = self._lines[: bisect(self._lines, now, key=lambda held: held.due)]
        del self._lines[: len(due)]
        if due:
            self._passed = due[-1].order
        self.due = self._lines[0].due if self._lines else NEVER
        if not self._lines:
            self._alike.clear()
            self._last.clear()
            self._passed = (0, 0)
            self._size = 0
        return batches(b"".join(held.line(self._is_json) for held in due))
