"""Text of users, peers, programs and files as messages and answers show it: nothing in it moves a cursor."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 128 << 10  # characters of a message
SENTENCE = 4000  # characters of what a peer or a program said
_COLOURS = r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])"  # and a window's title


def escaped(text: str, most: int = LONGEST) -> str:
    """Return the text on one line, control characters escaped (`\\n`, `\\x1b`), cut to `most` characters."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)


def escaped_lines(text: str) -> str:
    """Return a text of several lines of ours, where nothing but their ends is a control character."""
    return "\n".join(map(escaped, text.split("\n")))


def one_line(text: str, most: int = SENTENCE) -> str:
    """Return the text as part of a line of ours: no colours, no line ends, nothing that moves a terminal's cursor."""
    short = text[: 4 * most]
    plain = re.sub(_COLOURS, "", short)
    words = "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in plain)
    return words if len(words) <= most and len(short) == len(text) else words[: most - 3] + "..."


def from_json(text: str | bytes) -> Any:
    """Return what a file or another process wrote as JSON. Raises ValueError, also where it is nested
    too deep or has a number that JSON has not."""
    import json  # slow to import, and most starts read none

    def number(digits: str) -> float:
        if not abs(value := float(digits)) < 1e300:
            raise ValueError(f"{digits[:20]} is no number that can be counted with")
        return value

    try:
        return json.loads(text, parse_float=number, parse_constant=number)
    except RecursionError:
        raise ValueError("nested too deep") from None
