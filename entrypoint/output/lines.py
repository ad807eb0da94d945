"""Output as whole lines: unchanged, or in the form of the spec's `logs`: with time and prefix, or
as JSON.

The supervisor of each rank whose lines could mix with others' imports this: keep it fast.
"""

from __future__ import annotations

import time

LONGEST = 2 << 20  # bytes of a line without an end; the bytes after them are a line of their own

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

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


def json(node: str, rank: str, stream: str) -> Shape:
    """Return the shape of JSON lines: time, node, rank (a number or null), stream, text; at need:

    base64   the bytes of a line that is not UTF-8, whose text has U+FFFD for invalid bytes
    partial  true if no `\\n` ended the line: a progress bar's, one cut at LONGEST, and the last

    So the bytes of a stream are those of its lines, each followed by `\\n` unless it is partial.
    """
    # The module `json` takes longer to import than a supervisor takes to start.
    from _json import encode_basestring as quote

    head = f'"node":{quote(node)},"rank":{rank or "null"},"stream":{quote(stream)},"text":'

    def shape(lines: list[bytes]) -> bytes:
        begin = f'{{"time":"{stamp(time.time())}",{head}'
        out = []
        for line in lines:
            more = "" if line.endswith(b"\n") else ',"partial":true'
            body = line if more else line[:-1]
            try:
                content = body.decode()
            except UnicodeDecodeError:
                content = body.decode("utf-8", "replace")
                more = f',"base64":"{_base64(body)}"{more}'
            out.append(f"{begin}{quote(content)}{more}}}\n")
        return "".join(out).encode()

    return shape


def _base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()


def message(form: str) -> Callable[[str, str, str], bytes]:
    """Return the function that formats our messages (text, prefix, node): as `json`, or as text
    with the time."""
    from _json import encode_basestring as quote

    def as_json(text: str, prefix: str, node: str) -> bytes:
        parts = (stamp(time.time()), node or None, None, "entrypoint", text)
        values = ("null" if part is None else quote(part) for part in parts)
        names = ("time", "node", "rank", "stream", "text")
        pairs = ",".join(f'"{name}":{value}' for name, value in zip(names, values, strict=True))
        return f"{{{pairs}}}\n".encode("utf-8", "backslashreplace")

    def as_text(text: str, prefix: str, node: str) -> bytes:
        return f"{stamp(time.time())} {prefix} {text}\n".encode("utf-8", "backslashreplace")

    return as_json if form == "json" else as_text


def shape(options: dict[str, str], stream: str) -> Shape:
    """Return the shape for a supervisor's --lines, --node, --rank, --prefix and --timestamps, and
    for this stream."""
    if options["--lines"] == "whole":
        return as_it_is
    rank = options.get("--rank", "")
    if options["--lines"] == "json":
        return json(options.get("--node", ""), rank, stream)
    prefix = options.get("--prefix") or options.get("--label", "")
    for name, value in (("{rank}", rank or "-"), ("{stream}", stream)):
        prefix = prefix.replace(name, value)
    return text(prefix.encode("utf-8", "surrogateescape"), "--timestamps" in options)
