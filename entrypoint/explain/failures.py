"""The judgement on the log of any job, for `entrypoint explain FILE`."""

from __future__ import annotations

import re

from entrypoint.cause import Cause
from entrypoint.causes import clean
from entrypoint.causes.phrase import phrase
from entrypoint.explain import row
from entrypoint.text import from_json, is_utf16
from entrypoint.values import replace

_ROLES = {
    "root": "these lines show the first failure",
    "cascade": "these lines show a consequence: the cause is in the output of another rank or node",
    "unclear": "these lines may show the first failure, or a consequence of it",
}
_CERTAINTIES = {"high": "sure", "low": "likely; other causes print the same"}
_TEXT_FIELDS = ("text", "log", "message", "msg")  # of a line that is a JSON object


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a log: what replaced a line in a terminal is a line of its own, and of a
    line that is a JSON object, as Docker and others write, the text."""
    text = data.decode("utf-8", "replace")
    if is_utf16(text):
        text = data.decode("utf-16", "replace")
    lines = re.split(r"\r\n|\n|\r", text)
    return [_unpacked(line) if line.startswith("{") else line for line in lines]


def _unpacked(line: str) -> str:
    if not line.rstrip().endswith("}") or len(line) > clean.LONGEST * 4:
        return line
    try:
        fields = from_json(line)
    except ValueError:
        return line
    texts = (fields.get(name) for name in _TEXT_FIELDS) if isinstance(fields, dict) else ()
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)


def text(cause: Cause, width: int) -> str:
    """Return the judgement for a terminal of `width` columns."""
    rows = [
        ("cause", phrase(cause)),
        *((("role", _ROLES[cause.role]),) if cause.lines else ()),
        ("certain", _CERTAINTIES[cause.certainty]),
        *((("shown by", cause.lines[0]),) if cause.lines else ()),
        *(("", line) for line in cause.lines[1:]),
        ("fix", cause.fix),
    ]
    return "\n".join([cause.slug, *(row(name, words, width) for name, words in rows)]) + "\n"


def with_origin(cause: Cause) -> Cause:
    """Return the cause with the rank and the node that the prefix of its first line names."""
    rank, node = clean.origin(cause.lines[0]) if cause.lines else ("", "")
    return replace(cause, rank=f"rank {rank}" if rank else "", node=node or cause.node)
