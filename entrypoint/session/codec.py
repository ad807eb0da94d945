"""Messages as bytes: one JSON object a line, `kind` first. What arrives is checked here, on both sides.

Kinds, types and ranges are those of job/messages.py; here are limits on sizes and rates. Unknown kinds are
refused, unknown fields are ignored. No clock runs here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from entrypoint.job.messages import FROM_LEADER, FROM_WORKER, kind_of
from entrypoint.text import one_line
from entrypoint.wire import Invalid, read

Kinds = Mapping[str, type]

# Bytes in one line. To a worker, the spec's env travels in one; to the leader, the last lines of a rank do.
TO_WORKER, TO_LEADER = 64 * 1024 * 1024, 1024 * 1024
_BURST, _RATE = 128 * 1024 * 1024, 1024 * 1024  # bytes that a peer may send at once, and each second after that
_MESSAGE = 1000  # bytes that each message counts for beside its own, since each one costs time
_WORDS = 256 * 1024  # bytes that a login shell may print before its node's first message

BY_WORKER: Kinds = {kind_of(each): each for each in FROM_WORKER}
BY_LEADER: Kinds = {kind_of(each): each for each in FROM_LEADER}
_NAMES = {message: kind for kind, message in {**BY_WORKER, **BY_LEADER}.items()}


class _Words(Invalid):
    """Text that is not meant as a message."""


def pack(message: Any) -> bytes:
    """One message as a line."""
    return json.dumps({"kind": _NAMES[type(message)], **vars(message)}).encode() + b"\n"


def unpack(line: bytes, kinds: Kinds, toolkit: str = "") -> Any:
    """One line as a message.

    Where `toolkit` is given, nothing else is taken from a hello of another version. Raises Invalid.
    """
    secret = "hello" in kinds  # a leader's message may hold secrets
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or "kind" not in given:
        raise _Words(f"no message{_excerpt(line, secret)}")
    kind = given["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise Invalid(f"no kind of message{_excerpt(line, secret)}")
    if kind == "hello" and toolkit and given.get("toolkit") != toolkit:
        given = {"hosts": [], "rank": 0, "launcher": "", "env": {}, "heartbeat": 1, "leader": "", "address": ""} | {
            "toolkit": given.get("toolkit")
        }
    try:
        return read(kinds[kind], given, kind)
    except Invalid as error:
        raise Invalid(f"{error}{_excerpt(json.dumps(error.value).encode(), secret)}") from None


class Intake:
    """Bytes of one peer in, checked messages out. Too many bytes, or too long a line, is Invalid."""

    def __init__(self, kinds: Kinds, limit: int, now: float, toolkit: str = "") -> None:
        self._kinds = kinds
        self._limit = limit
        self._toolkit = toolkit
        self._buffer = bytearray()
        self._left = float(_BURST)
        self._since = now
        self._words: int | None = _WORDS  # what is left of it; None once there was a message

    def feed(self, data: bytes, now: float) -> list[Any]:
        """The messages that are complete with these bytes, received at `now` (seconds, monotonic).

        Text before the first message comes from the login shell's own files and is ignored. Raises Invalid.
        """
        searched = len(self._buffer)
        self._buffer += data
        if (end := self._buffer.rfind(b"\n", searched)) < 0:
            self._check_length()
            return []
        lines = bytes(self._buffer[:end]).split(b"\n")
        del self._buffer[: end + 1]
        self.count(len(data) + _MESSAGE * len(lines), now)
        messages = [message for line in lines if (message := self._unpack(line))]
        self._check_length()
        return messages

    def _check_length(self) -> None:
        limit = self._limit if self._words is None else max(self._limit, _WORDS)
        if len(self._buffer) > limit:
            raise Invalid(f"a line of more than {limit} bytes")

    def count(self, cost: int, now: float) -> None:
        """Count so many bytes against the rate. Raises Invalid when they are too many."""
        self._left = min(_BURST, self._left + _RATE * (now - self._since)) - cost
        self._since = now
        if self._left < 0:
            raise Invalid("more messages than any node has a reason to send")

    def _unpack(self, line: bytes) -> Any:
        try:
            message = unpack(line, self._kinds, self._toolkit)
        except _Words:
            if self._words is None:
                raise
            self._words -= len(line) + 1
            if self._words < 0:
                raise Invalid(f"words without end, and no message{_excerpt(line)}") from None
            return None
        self._words = None
        return message


def _excerpt(line: bytes, secret: bool = False) -> str:
    return "" if secret else f": {one_line(line[:400].decode(errors='replace').strip(), 80)}"
