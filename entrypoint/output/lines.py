"""Output as whole lines: unchanged, or in the form of the spec's `logs`: with time and prefix, or
as JSON.

The keeper of a node's ranks does this for all of them: keep it fast.
"""

from __future__ import annotations

import time

from entrypoint.base.kept import RANK

LONGEST = 2 << 20  # bytes of a line without an end; the bytes after them are a line of their own
# bytes that a pipe takes in one piece, without blocking once poll says that it has room (PIPE_BUF)
PIECE = 4096
NEVER = float("inf")
END = b"\x1f"  # the end of a line in a piece (framing.py)
OPEN = b"\x1d"  # the end of a piece whose line has none
FIELD = "\x1c"  # before and after the rank, behind a line's prefix (`collapse`)

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable, Mapping
    from typing import Any

    from entrypoint.base.kept import OutputForm

    Shape = Callable[[list[bytes]], bytes]


def stamp(now: float) -> str:
    """Return seconds since 1970 in the form of RFC 3339 in UTC: `2026-11-22T16:15:00.123456Z`."""
    whole = int(now)
    return (
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((now - whole) * 1e6):06d}Z"
    )


class Lines:
    """Splits data into lines. Those that a carriage return ends, as a progress bar's, count as
    lines."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._held: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # bytes of them

    @property
    def open(self) -> int:
        """Return the bytes of an unfinished line that may be passed on without its end."""
        return self._size if self._shape is as_it_is else 0

    def take(self, data: bytes) -> bytes:
        """Return the lines that end in this data."""
        if b"\n" not in data and b"\r" not in data and self._size + len(data) <= LONGEST:
            self._held.append(data)
            self._size += len(data)
            return b""
        data = b"".join((*self._held, data))
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - cut > LONGEST:
            cut = len(data)
        self._held = [data[cut:]]
        self._size = len(data) - cut
        whole = data[:cut]
        return (
            self._shape([whole] if self._shape is as_it_is else whole.splitlines(keepends=True))
            if whole
            else b""
        )

    def rest(self) -> bytes:
        """Return the last line, which has no end."""
        last = b"".join(self._held)
        self._held = []
        self._size = 0
        return self._shape([last]) if last else b""


as_it_is: Shape = b"".join  # the lines, byte for byte


def text(prefix: bytes, timestamps: bool) -> Shape:
    """Return the shape of lines that begin with the time, if `timestamps`, and the prefix.

    A line without an end gets one; otherwise the next line would continue it.
    """
    returned = False  # whether the last line ended with a carriage return alone

    def shape(lines: list[bytes]) -> bytes:
        nonlocal returned
        begin = f"{stamp(time.time())} ".encode() + prefix if timestamps else prefix
        ended = returned and lines[0] == b"\n"  # the second half of a `\r\n`
        returned = lines[-1].endswith(b"\r")
        if not lines[-1].endswith((b"\n", b"\r")):
            lines[-1] += b"\n"
        return (b"" if ended else begin) + begin.join(lines)

    return shape


def origin(job: str, node: str, host: str, number: int) -> str:
    """Return the fields of a JSON object that say whose line it is: job, node and its host name,
    each "" while unknown, and the attempt's number."""
    from _json import encode_basestring as quote

    names = (("job", job), ("node", node), ("host", host))
    named = (f'"{name}":{quote(value) if value else "null"}' for name, value in names)
    return f'{",".join(named)},"attempt":{number}'


def json(whose: str, rank: str, stream: str, field: str = "") -> Shape:
    """Return the shape of JSON lines: time, what `origin` gives (job, node, host, attempt), rank (a
    number or null), stream, `field`, text; at need:

    base64   the bytes of a line that is not UTF-8, whose text has U+FFFD for invalid bytes
    partial  true if no `\\n` ended the line: a progress bar's, one cut at LONGEST, and the last

    So the bytes of a stream are those of its lines, each followed by `\\n` unless it is partial.
    """
    # The module `json` is slower.
    from _json import encode_basestring as quote

    head = f'{whose},"rank":{rank or "null"},"stream":{quote(stream)},"text":{field}'

    def shape(lines: list[bytes]) -> bytes:
        begin = f'{{"time":"{stamp(time.time())}",{head}'
        out = []
        for line in lines:
            more = "" if line.endswith(b"\n") else ',"partial":true'
            body = line if more else line[:-1]
            try:
                content = body.decode()
            except UnicodeDecodeError:
                from binascii import b2a_base64

                content = body.decode("utf-8", "replace")
                encoded = b2a_base64(body, newline=False).decode()
                more = f',"base64":"{encoded}"{more}'
            out.append(f"{begin}{quote(content)}{more}}}\n")
        return "".join(out).encode()

    return shape


def level_and_id(text: str) -> tuple[str, str]:
    """Return `info`, `warning` or `error` for one of our messages, and its id such as `EP600`, ""
    for none. An error has an id."""
    import re  # the keeper needs none of it

    warning, id = re.findall(r"^(warning: )?(EP\d{3})?", text)[0]
    return "warning" if warning else "error" if id else "info", id


def json_message(text: str, whose: str, fields: Mapping[str, Any]) -> str:
    """Return one of our messages as `json` does, with its level, its id and further fields."""
    from _json import encode_basestring as quote

    level, id = level_and_id(text)
    head = f'"time":"{stamp(time.time())}","level":"{level}","id":{quote(id) if id else "null"}'
    tail = f'"rank":null,"stream":"entrypoint","text":{quote(text)}'
    if fields:
        from entrypoint.base.wire import to_json

        tail += f",{to_json(fields)[1:-1]}"
    return f"{{{head},{whose},{tail}}}"


def shape(form: OutputForm, stream: str) -> Shape:
    """Return the shape that this form asks for, of the lines of a stream, `stdout` or `stderr`."""
    if form.lines == "whole":
        return as_it_is
    field = f"{FIELD}{form.rank}{FIELD}" if form.collapse else ""
    if form.lines == "json":
        whose = origin(form.job, form.node, form.host, form.attempt)
        return json(whose, form.rank, stream, field)
    prefix = form.prefix or form.label
    for name, value in ((RANK, form.rank or "-"), ("{stream}", stream)):
        prefix = prefix.replace(name, value)
    return text(f"{prefix}{field}".encode("utf-8", "surrogateescape"), form.timestamps)
