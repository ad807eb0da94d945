"""Text that people read: foreign text on one line, values in words, lists, tables. Nothing in it
moves a cursor."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

Log = Callable[[str], None]  # takes a line of ours
LONGEST = 128 << 10  # characters of a message
SENTENCE = 4000  # characters of what a peer or a program said
# signal(7), as on x86 and Arm; of the real-time signals only the first and the last have names.
_NAMES = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP"
    " TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
_SIGNALS = {**dict(enumerate(_NAMES.split(), start=1)), 34: "RTMIN", 64: "RTMAX"}
_VALUE = 60  # characters of a value in a message
_COLOURS = (  # and a window's title
    r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])"
)


def escaped(text: str, most: int = LONGEST) -> str:
    """Return the text on one line, control characters escaped (`\\n`, `\\x1b`), cut to `most`
    characters."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def escaped_lines(text: str) -> str:
    """Return a text of several lines of ours, where nothing but their ends is a control
    character."""
    return "\n".join(map(escaped, text.split("\n")))


def brief(text: str) -> str:
    """Return a value as part of a message: on one line, and not long."""
    return escaped(text, _VALUE)


def quoted(text: str) -> str:
    """Return a text as a message shows it, `"a\\nb"`: on one line, and not long."""
    return f'"{brief(text)}"'


def one_line(text: str, most: int = SENTENCE) -> str:
    """Return the text as part of a line of ours: no colours, line ends and others that move a
    cursor replaced."""
    import re  # slow to import, and most starts need none

    short = text[: 4 * most]
    plain = re.sub(_COLOURS, "", short)
    shown = "".join(
        char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in plain
    )
    return shown if len(shown) <= most and len(short) == len(text) else shown[: most - 3] + "..."


def is_utf16(text: str) -> bool:
    """Return whether the text, which was read as UTF-8, is UTF-16: by its byte order mark, or by
    half of a first character being NUL."""
    start = text[:2]
    return start in ("\udcff\udcfe", "\udcfe\udcff", "\ufffd\ufffd") or (
        len(start) == 2 and start.count("\0") == 1
    )


def count(number: int, thing: str, things: str = "") -> str:
    """Return a number of things: `1 node`, `2 nodes`; `things` is the plural where it is not by
    `s`."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def spans(numbers: Iterable[int]) -> list[str]:
    """Return numbers, which are in order, as spans: `["0-3", "6"]`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [f"{first}-{last}" if last > first else str(first) for first, last in found]


def some(entries: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` entries, and how many there are beyond them: `a, b and 3 more`."""
    every = list(entries)
    more = len(every) - most
    # Behind `; ` an entry may have commas of its own.
    return separator.join(every[:most]) + (
        f"{separator.rstrip(', ')} and {more} more" if more > 0 else ""
    )


def named(missing: Mapping[str, str], most: int | None = None) -> str:
    """Nodes, `most` of them, with what is known of each: `worker-1 (no DNS), worker-2 (gpu-17, not
    reached yet)`."""
    return some(
        (
            f"{host[:-1]}, {state})" if host.endswith(")") else f"{host} ({state})"
            for host, state in missing.items()
        ),
        most or len(missing),
    )


def size(number: float) -> str:
    """Return a number of bytes: `64 KiB`, `512 MiB`, `1.5 GiB`."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if number >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{int(number) >> 10} KiB"


def figure(value: float) -> str:
    """Return a measured value with the three digits that mean something: `0.0712`, `3.41`,
    `201`."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Return a time: `12ms`, `3.45s`, `45.3s`, `1m05s`, `17h02m`."""
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return the rows as lines with aligned columns; `right`: the numbers of those that are aligned
    to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def json_document(value: Any) -> str:
    """Return the value as JSON for people and files, ended by a line end."""
    import json  # slow to import, and most starts need none

    return json.dumps(value, indent=2) + "\n"


def words_from_json(text: str) -> list[str] | None:
    """Return the words of a JSON list, such as an ENTRYPOINT; None if it is not one of texts."""
    try:
        data = from_json(text)
    except ValueError:
        return None
    return data if isinstance(data, list) and all(isinstance(word, str) for word in data) else None


def from_json(text: str | bytes) -> Any:
    """Return what a file or another process wrote as JSON. Raises ValueError, also where it is
    nested too deep or has a number that JSON has not."""
    import json

    def number(digits: str) -> float:
        if not abs(value := float(digits)) < 1e300:
            raise ValueError(f"{digits[:20]} is no number that can be counted with")
        return value

    try:
        return json.loads(text, parse_float=number, parse_constant=number)
    except RecursionError:
        raise ValueError("nested too deep") from None


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL` of 9; "" if it has none."""
    name = _SIGNALS.get(number)
    return f"SIG{name}" if name else ""


def digits(text: str) -> int | None:
    """Return the number that this text is; None if it is none, or larger than any number here."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
