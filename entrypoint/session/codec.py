"""The codec of messages: one JSON object a line, `kind` first. Each side validates the messages it
receives.

Kinds, types and ranges are those of job/messages.py; this module adds limits on sizes and rates.
Unknown kinds are rejected, unknown fields are ignored. The caller passes the time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from entrypoint.base.text import one_line
from entrypoint.base.values import dataclass, field
from entrypoint.base.wire import Invalid, read, to_json
from entrypoint.job.messages import FROM_LEADER, FROM_WORKER, CalledIn, CallIn, Release, kind_of

Kinds = Mapping[str, type]

TO_WORKER = 64 * 1024 * 1024  # bytes of one line, which may carry the spec's env
TO_LEADER = 1024 * 1024  # bytes of one line, which may carry the last lines of a rank
_BURST = 128 * 1024 * 1024  # bytes that a peer may send at once
# What a login runs: through sh, since a tmpfs on /tmp is usually mounted noexec. It is also sshd's
# ForceCommand, unless the job configures its own client (ssh.client).
ATTEND = 'exec sh "$ENTRYPOINT_RUN_DIR/attend"'
_RATE = 1024 * 1024  # bytes that a peer may send each second after that
# bytes that each message counts for in addition to its length, since each one costs time
_MESSAGE = 1000
_BANNER = 256 * 1024  # bytes that a login shell may print before its node's first message

BY_WORKER: Kinds = {kind_of(message): message for message in FROM_WORKER}
BY_LEADER: Kinds = {kind_of(message): message for message in FROM_LEADER}
BY_CALLER: Kinds = {kind_of(CallIn): CallIn}
TO_CALLER: Kinds = {kind_of(message): message for message in (CalledIn, Release)}
_KINDS = {**BY_WORKER, **BY_LEADER, **BY_CALLER, **TO_CALLER}
_NAMES = {message: kind for kind, message in _KINDS.items()}


class _NotAMessage(Invalid):
    """The line is no message: the output of a login shell, for example."""


def pack(message: Any) -> bytes:
    """Return a message as a line."""
    return f"{to_json({'kind': _NAMES[type(message)], **vars(message)})}\n".encode()


def digest(hosts: tuple[str, ...]) -> str:
    """Return what a question says of the hosts instead of all their names."""
    import hashlib  # only jobs of several nodes need it

    return hashlib.sha256("\0".join(hosts).encode()).hexdigest()


def unpack(line: bytes, kinds: Kinds, toolkit: str = "") -> Any:
    """Return a line as a message. Raises Invalid.

    If `toolkit` is set, a hello of another version is reduced to its version.
    """
    secret = "hello" in kinds  # a leader's message may hold secrets
    try:
        entries = json.loads(line.decode())  # which it would have to guess of bytes
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict) or "kind" not in entries:
        raise _NotAMessage(f"no message{_excerpt(line, secret)}")
    kind = entries["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise Invalid(f"no kind of message{_excerpt(line, secret)}")
    if kind == "hello" and toolkit and entries.get("toolkit") != toolkit:
        entries = {
            "hosts": [],
            "rank": 0,
            "launcher": "",
            "env": {},
            "heartbeat": 1,
            "leader": "",
            "token": "",
            "address": "",
        } | {"toolkit": entries.get("toolkit")}
    try:
        return read(kinds[kind], entries, kind)
    except Invalid as error:
        raise Invalid(f"{error}{_excerpt(json.dumps(error.value).encode(), secret)}") from None


@dataclass
class Intake:
    """Decoder of the bytes that one peer sends. Too many bytes, or too long a line, raise
    Invalid."""

    kinds: Kinds
    limit: int  # bytes of a line
    counted: float  # until when bytes were counted
    toolkit: str = ""
    _budget = float(_BURST)
    _buffer: bytearray = field(default_factory=bytearray)
    _banner: int | None = _BANNER  # bytes that remain of it; None after the first message

    def feed(self, data: bytes, now: float) -> list[Any]:
        """Return the messages that these bytes complete; they were received at `now` (seconds,
        monotonic).

        Text before the first message comes from the login shell's own files and is ignored. Raises
        Invalid.
        """
        searched = len(self._buffer)
        self._buffer += data
        messages: list[Any] = []
        if (end := self._buffer.rfind(b"\n", searched)) >= 0:
            lines = bytes(self._buffer[:end]).split(b"\n")
            del self._buffer[: end + 1]
            self.count(len(data) + _MESSAGE * len(lines), now)
            messages = [message for line in lines if (message := self._unpack(line))]
        limit = self.limit if self._banner is None else max(self.limit, _BANNER)
        if len(self._buffer) > limit:
            raise Invalid(f"a line of more than {limit} bytes")
        return messages

    def count(self, cost: int, now: float) -> None:
        """Count bytes against the rate. Raises Invalid if they exceed it."""
        self._budget = min(_BURST, self._budget + _RATE * (now - self.counted)) - cost
        self.counted = now
        if self._budget < 0:
            raise Invalid("more messages than any node has a reason to send")

    def _unpack(self, line: bytes) -> Any:
        try:
            message = unpack(line, self.kinds, self.toolkit)
        except _NotAMessage:
            if self._banner is None:
                raise
            self._banner -= len(line) + 1
            if self._banner < 0:
                raise Invalid(f"a line without an end that is no message{_excerpt(line)}") from None
            return None
        self._banner = None
        return message


def _excerpt(line: bytes, secret: bool = False) -> str:
    return "" if secret else f": {one_line(line[:400].decode(errors='replace').strip(), 80)}"
