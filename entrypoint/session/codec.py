"""What leader and worker say to each other in their ssh session: one JSON object a line, `kind` first.

leader -> worker   hello(hosts, rank, toolkit,                  the roll call's question
                         launcher, env, lease, leader, address)
worker -> leader   facts(slots, mpi, toolkit, clock, attempt,   its answer
                         broken, interface, interfaces)
                   refuse(what, seen, do)                       or why this can't be one job
                   busy()                                       or another leader has it, and is there
leader -> worker   start(attempt)                               everyone answered
                   ping(number)  <- pong(quiet, number)         still there; seconds since a rank there printed
                                                                and all that it knew is said
                   stacks()      <- shown()                     show what your ranks are doing
worker -> leader   rank(event, rank, value, tail, why)          a rank started (pid) or ended (status) there
                   ended(status, what, reason, tail, last)      a program of its own ended; `last`: no other runs
                   daemon(name, status, why)                    mpirun's daemon there ended
                   limit(reason)                                it could not start a process
                   failed(status, reason, program, stop)        it cannot go on (sshd died; stop: it was asked to)
                   signal(name)  -> signal(name)                SIGUSR1 or SIGUSR2, for the ranks of every node
                   hurry()                                      a second signal: nobody waits for the grace to end
leader -> worker   stop(grace)   <- stopped()                   end your ranks
                   let_go()                                     your ranks that failed may leave mpirun
                   release(status, reason, program, again)      the job's result: leave with it, or boot again
                                 <- leaving()

What arrives is checked here, on both sides: kinds, types, ranges, sizes. What is not in these tables is refused or left
out, and text is one line without control characters. No clock runs here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]
Check = Callable[[Any], Any]  # a value as it arrived -> the value; raises Invalid

# Bytes in one line. To a worker, the spec's env travels in one; to the leader, the last lines of a rank do.
TO_WORKER, TO_LEADER = 64 * 1024 * 1024, 1024 * 1024
_BURST, _RATE = 128 * 1024 * 1024, 1024 * 1024  # bytes that a peer may say at once, and each second after that
_MESSAGE = 1000  # bytes that each message counts for beside its own, since each one costs time
_WORDS = 256 * 1024  # bytes that a login shell may print before its node's first message
_TEXT, _LINES, _LINE = 4000, 20, 1000  # characters in a sentence; lines a rank printed last, characters in each
_RANKS = 1 << 20
_EVER = 1e9  # seconds

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,63}")
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")  # colours, titles


class Invalid(Exception):
    """What arrived is no message; the reason may be printed."""


class _Words(Invalid):
    """It is not even meant as one."""


def one_line(text: str, most: int = _TEXT) -> str:
    """The text as part of a line of ours: no colours, no line ends, nothing that moves a terminal's cursor."""
    short = text[: 4 * most]
    words = "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in plain(short))
    return words if len(words) <= most and len(short) == len(text) else words[: most - 3] + "..."


def plain(text: str) -> str:
    """The text without a terminal's escape sequences."""
    return _ESCAPES.sub("", text)


# ---------------------------------------------------------------------------------------------------------------
# Types and ranges


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Invalid(f"not a whole number from {least} to {most}")
        return value

    return check


def _number(least: float, most: float) -> Check:
    def check(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:  # which NaN is not, either
            raise Invalid(f"not a number from {least:g} to {most:g}")
        return float(value)

    return check


def _text(most: int = _TEXT) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Invalid("not a text")
        return one_line(value, most)

    return check


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid("neither true nor false")
    return value


def _of(*names: str) -> Check:
    def check(value: Any) -> str:
        if value not in names:
            raise Invalid(f"none of {', '.join(names)}")
        return str(value)

    return check


def _list(of: Check, most: int) -> Check:
    def check(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise Invalid(f"not a list of at most {most}")
        return [of(each) for each in value]

    return check


def _reason(value: Any) -> list[Any] | None:
    """None, or a failure's status and reason, and whether a program failed."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise Invalid("neither null nor a status, a reason, and true or false")
    return [_failure(value[0]), _text()(value[1]), _truth(value[2])]


def _name(value: Any) -> str:
    """Of a network interface, or its address or network: a word of a command line."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid("no name or address")
    return value


def _interface(value: Any) -> list[Any] | None:
    """None, or a network interface's name, address and network."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise Invalid("neither null nor a name, an address and a network")
    return [_name(each) for each in value]


def _variables(value: Any) -> dict[str, str]:
    """What a program can be given, byte for byte."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Invalid("not names and texts")
    if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
        raise Invalid("a name or a text that no variable can have")
    return value


_user_signal = _of("SIGUSR1", "SIGUSR2")
_status, _failure, _tail = _whole(0, 255), _whole(1, 255), _list(_text(_LINE), _LINES)

FROM_WORKER: Mapping[str, Mapping[str, Check]] = {
    "facts": {
        "slots": _whole(1, _RANKS),
        "mpi": _text(100),
        "toolkit": _text(100),
        "clock": _number(-1e12, 1e12),
        "attempt": _whole(1, _RANKS),
        "broken": _reason,
        "interface": _interface,
        "interfaces": _list(_name, 1000),
    },
    "busy": {},
    "refuse": {"what": _text(), "seen": _text(), "do": _text()},
    "pong": {"quiet": _number(-_EVER, _EVER), "number": _whole(0, 1 << 31)},
    "shown": {},
    "rank": {
        "event": _of("start", "end"),
        "rank": _whole(0, _RANKS),
        "value": _whole(0, 1 << 31),  # of an end, 0 to 255
        "tail": _tail,
        "why": _text(),
    },
    "ended": {"status": _status, "what": _text(), "reason": _text(), "tail": _tail, "last": _truth},
    "daemon": {"name": _text(100), "status": _status, "why": _text()},
    "limit": {"reason": _text()},
    "failed": {"status": _failure, "reason": _text(), "program": _truth, "stop": _truth},
    "hurry": {},
    "signal": {"name": _user_signal},
    "stopped": {},
    "leaving": {},
}
FROM_LEADER: Mapping[str, Mapping[str, Check]] = {
    "hello": {
        "toolkit": _text(100),
        "hosts": _list(_text(300), _RANKS),
        "rank": _whole(0, _RANKS),
        "launcher": _text(100),
        "env": _variables,
        "lease": _number(1, _EVER),
        "leader": _text(100),
        "address": _text(100),
    },
    "start": {"attempt": _whole(1, _RANKS)},
    "ping": {"number": _whole(0, 1 << 31)},
    "stacks": {},
    "signal": {"name": _user_signal},
    "stop": {"grace": _number(0, _EVER)},
    "let_go": {},
    "release": {"status": _status, "reason": _text(), "program": _truth, "again": _truth},
}


# ---------------------------------------------------------------------------------------------------------------
# Lines


def pack(kind: str, **fields: Any) -> bytes:
    """One message as a line."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def unpack(line: bytes, kinds: Mapping[str, Mapping[str, Check]], toolkit: str = "") -> Message:
    """One line as a message with the fields of its kind.

    Where `toolkit` is given, a hello of another version has no other field: it may have changed. Raises Invalid.
    """
    shown = _not_shown if "hello" in kinds else _quoted  # a leader's words may hold secrets
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _Words(f"no message{shown(line)}") from None
    if not isinstance(message, dict) or "kind" not in message:
        raise _Words(f"no message{shown(line)}")
    kind = message["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise Invalid(f"no kind of message{shown(line)}")
    checked: Message = {"kind": kind}
    for name, check in kinds[kind].items():
        if name not in message:
            raise Invalid(f"{kind} without {name}")
        ended = kind == "rank" and name == "value" and checked["event"] == "end"
        try:
            checked[name] = (_status if ended else check)(message[name])
        except Invalid as error:
            raise Invalid(f"{kind}, {name}: {error}{shown(json.dumps(message[name]).encode())}") from None
        if kind == "hello" and name == "toolkit" and toolkit and checked[name] != toolkit:
            return checked
    return checked


class Intake:
    """Bytes of one peer in, checked messages out; it may neither say too much nor never end a line."""

    def __init__(self, kinds: Mapping[str, Mapping[str, Check]], limit: int, now: float, toolkit: str = "") -> None:
        self._kinds, self._limit, self._toolkit = kinds, limit, toolkit
        self._buffer = bytearray()
        self._left, self._since = float(_BURST), now
        self._words: int | None = _WORDS  # what is left of it; None once there was a message

    def feed(self, data: bytes, now: float) -> list[Message]:
        """The messages that these bytes, heard at `now` (seconds, on a clock that is not set), complete.

        Words before the first message are of the login shell's own files, and left out. Raises Invalid.
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
        """Have so many bytes count, too. Raises Invalid when they are too many."""
        self._left = min(_BURST, self._left + _RATE * (now - self._since)) - cost
        self._since = now
        if self._left < 0:
            raise Invalid("more messages than any node has a reason to send")

    def _unpack(self, line: bytes) -> Message | None:
        try:
            message = unpack(line, self._kinds, self._toolkit)
        except _Words:
            if self._words is None:
                raise
            self._words -= len(line) + 1
            if self._words < 0:
                raise Invalid(f"words without end, and no message{_quoted(line)}") from None
            return None
        self._words = None
        return message


def _quoted(line: bytes) -> str:
    return f": {one_line(line[:400].decode(errors='replace').strip(), 80)}"


def _not_shown(line: bytes) -> str:
    return ""
