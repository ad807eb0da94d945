"""Framing of output lines that an MPI passes on.

Open MPI and Hydra cut their ranks' output anywhere and forward it as it arrives; on request each
piece begins with a tag, `[1,RANK]<stdout>:`. So the keeper of a rank encodes its lines, and that of
the launcher joins them again, whether a prefix is configured or not.
"""

from __future__ import annotations

from entrypoint.output.lines import END, OPEN, Lines

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


class Framer:
    """Encoder of a program's output, by `coded`, whose last line may have no end."""

    is_launcher_s_own = False  # whether no rank has printed what came

    def __init__(self, lines: Lines, coded: Callable[[bytes], bytes] = bytes) -> None:
        self.lines = lines
        self.coded = coded

    def take(self, data: bytes) -> bytes:
        """Return the lines that end in this data."""
        return self.coded(self.lines.take(data))

    def rest(self) -> bytes:
        """Return the last line."""
        return self.coded(self.lines.rest())


def for_mpirun(lines: Lines) -> Framer:
    """Return a framer for an MPI, which cuts and tags lines itself; only the first piece gets a
    mark."""
    begin = MARK

    def marked(lines: bytes) -> bytes:
        nonlocal begin
        if not lines:
            return b""
        piece = begin + coded(lines)
        begin = b""
        return piece

    return Framer(lines, marked)


class TaggedInput(Framer):
    """Decoder of the lines of `for_mpirun` that an MPI has cut and tagged, which joins those of
    each rank. `tag` matches its tags. Other text, such as the launcher's, goes through `lines`.
    """

    _LONGEST_TAG = 40  # bytes
    _TAG_BYTES = b"[],<>0123456789stdouterriag: "
    _sender = b""  # sender of the last piece
    _rest = b""  # bytes that may be the beginning of a tag
    # sender whose line was passed on without its end: a prompt, or a last line
    _open: bytes | None = None

    def __init__(self, lines: Lines, tag: Pattern[bytes]) -> None:
        super().__init__(lines)
        self._tag = tag
        self.is_launcher_s_own = True
        self.held: dict[bytes, list[bytes]] = {}  # sender -> pieces of its unfinished line

    def take(self, data: bytes) -> bytes:
        """Return the lines that end in this data."""
        data = self._rest + data
        cut = data.rfind(b"[", max(0, len(data) - self._LONGEST_TAG))
        if cut < 0 or data[cut:].strip(self._TAG_BYTES):
            cut = len(data)
        self._rest = data[cut:]
        return self._passed(data[:cut])

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

    def rest(self) -> bytes:
        """Return the unfinished lines."""
        last = self._rest
        self._rest = b""
        passed = self._passed(last)
        unfinished = [
            self._end_of_another(sender) + decoded(b"".join(held)) + b"\n"
            for sender, held in self.held.items()
            if any(held)
        ]
        other = self.lines.rest()
        end = other and self._end_of_another(None)
        return b"".join((passed, *unfinished, end, other))

    def join(self, sender: bytes, piece: bytes) -> bytes:
        """Return the lines of this sender that end in this piece."""
        cut = max(piece.rfind(END), piece.rfind(b"\r"), piece.rfind(OPEN)) + 1
        held = self.held.setdefault(sender, [])
        self.is_launcher_s_own = False
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
        """Return the lines that end in this data, which no rank has sent: without bytes for
        which `grep` takes a log for binary, such as Open MPI 5's NUL."""
        data = data.translate(None, _CONTROLS)
        if not data:
            return b""
        lines = self.lines.take(data)
        return self._end_of_another(None) + lines if lines else b""


def tag(tags: str) -> Pattern[bytes]:
    """Return the pattern of an MPI's tags: those of Open MPI 4 with --tag-output and of Hydra as
    hydra.py starts it ("tags"), or those of Open MPI 5 with --output tag ("spaced-tags")."""
    import re  # slow to import, and only needed with an MPI

    end = {"tags": b"", "spaced-tags": b" "}[tags]
    return re.compile(rb"(\[\d+,\d+\]<std(?:out|err|diag)>:%s)" % end)
