"""What nodes say to each other. One class is one message; each field says what may arrive in it.

leader -> worker   worker -> leader
Hello              NodeInfo; or Reject, Taken  the roll call: who can be of this job
Start                                        everyone answered
Ping               Pong                      still there; the answer comes after all that it knew
Stacks             Shown                     stacks of the ranks
StartDaemon        DaemonStarted, Daemon     mpirun's daemon there: its start, its end
                   RankStart, RankEnd        a rank there; Ended: a program of its own
                   Met                       its launcher is one of an elastic job's
                   Limit, Failed, ForceStop  what else happened there
Signal             Signal                    SIGUSR1 or SIGUSR2, for the ranks of every node
Probe              ProbeResult               `check --all`: what the probes of a node found
Stop, ReleaseFailedRanks  Stopped            the end of the ranks
Release            Phases, Goodbye           the job's result: leave with it, or boot again
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.phases import NAMES
from entrypoint.text import one_line
from entrypoint.values import dataclass, field

Check = Callable[[Any], Any]  # a value as it arrived -> the value; raises Invalid

TEXT, LINES, LINE = 4000, 20, 1000  # characters in a sentence; lines that a program printed last, characters in each
PHASES = 4096  # phases of one node; with LABEL characters in each they fit into the longest line
TAKEN = "another leader has it"  # why a node is busy
LABEL = 100  # characters in the name of a host, a rank or a program
COMMAND = 128 * 1024  # characters in a command: the most that one argument of a program may have (execve(2))
_RANKS = 1 << 20
_EVER = 1e9  # seconds

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,63}")


class Invalid(Exception):
    """What arrived is not a valid message; the reason may be printed."""


# ---------------------------------------------------------------------------------------------------------------
# Types and ranges


def _check(wrong: str, holds: Callable[[Any], Any], taken: Check = lambda value: value) -> Check:
    """The value as `taken` gives it, if it `holds`; else Invalid says what is wrong."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise Invalid(wrong)
        return taken(value)

    return check


def _whole(least: int, most: int) -> Check:
    return _check(f"not a whole number from {least} to {most}", lambda it: type(it) is int and least <= it <= most)


def _number(least: float, most: float) -> Check:
    wrong = f"not a number from {least:g} to {most:g}"  # as NaN is, too
    return _check(wrong, lambda it: type(it) in (int, float) and least <= it <= most, float)


def _text(most: int = TEXT) -> Check:
    return _check("not a text", lambda it: isinstance(it, str), lambda it: one_line(it, most))


def _of(*names: str) -> Check:
    return _check(f"none of {', '.join(names)}", lambda it: it in names)


def _list(of: Check, most: int) -> Check:
    wrong = f"not a list of at most {most}"
    return _check(wrong, lambda it: isinstance(it, list) and len(it) <= most, lambda it: tuple(map(of, it)))


def _row(wrong: str, *each: Check) -> Check:
    """A list of as many values as there are checks."""
    return _check(
        wrong,
        lambda it: isinstance(it, list) and len(it) == len(each),
        lambda it: tuple(check(part) for check, part in zip(each, it, strict=True)),
    )


def _or_none(words: str, *each: Check) -> Check:
    """Null, or such a list."""
    row = _row(f"neither null nor {words}", *each)
    return lambda it: None if it is None else row(it)


def _variables(value: Any) -> Mapping[str, str]:
    """What a program can be given, byte for byte."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Invalid("not names and texts")
    if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
        raise Invalid("a name or a text that no variable can have")
    return value


def _observation(value: Any) -> Mapping[str, Any]:
    """What `check` knows of a node, with types and sizes as it has them."""
    from entrypoint.check.observed import Observation, plain, read  # no other job has it

    try:
        taken: Mapping[str, Any] = plain(read(Observation, value))
    except ValueError as error:
        raise Invalid(str(error)) from None
    return taken


_truth = _check("neither true nor false", lambda it: isinstance(it, bool))
# Of a network interface, or its address or network: a word of a command line.
_name = _check("no name or address", lambda it: isinstance(it, str) and _NAME.fullmatch(it))
_command = _check("no command", lambda it: isinstance(it, str) and 0 < len(it) <= COMMAND and "\0" not in it)
_user_signal = _of("SIGUSR1", "SIGUSR2")
_time = _number(-_EVER, _EVER)  # a node may have been up for less long than its container says
_phase = _row("no name, start, end and text", _of(*NAMES), _time, _time, _text(LABEL))
_status, _failure, _tail = _whole(0, 255), _whole(1, 255), _list(_text(LINE), LINES)


def _as(check: Check) -> Any:
    """A field whose value is checked on arrival."""
    return field(metadata={"check": check})


# ---------------------------------------------------------------------------------------------------------------
# From a worker


@dataclass(frozen=True)
class NodeInfo:
    """This node's report. `not_ready`: why it cannot take part (status, reason, whether a program failed)."""

    slots: int = _as(_whole(1, _RANKS))
    mpi: str = _as(_text(100))
    toolkit: str = _as(_text(100))
    clock: float = _as(_number(-1e12, 1e12))
    attempt: int = _as(_whole(1, _RANKS))
    not_ready: tuple[int, str, bool] | None = _as(
        _or_none("a status, a reason, and true or false", _failure, _text(), _truth)
    )
    interface: tuple[str, str, str] | None = _as(_or_none("a name, an address and a network", _name, _name, _name))
    interfaces: tuple[str, ...] = _as(_list(_name, 1000))


@dataclass(frozen=True)
class Taken:
    """This call is not for this node, or not now; the leader calls again."""

    why: str = _as(_text())


@dataclass(frozen=True)
class Reject:
    """This node cannot take part in the leader's job, and why."""

    summary: str = _as(_text())
    detail: str = _as(_text())
    hint: str = _as(_text())


@dataclass(frozen=True)
class Pong:
    """The answer to ping `number`, sent after all that was known then; `idle` seconds since a rank here printed."""

    idle: float = _as(_number(-_EVER, _EVER))
    number: int = _as(_whole(0, 1 << 31))


@dataclass(frozen=True)
class StacksShown:
    """The stacks were printed."""


@dataclass(frozen=True)
class RankStart:
    """A rank started on this node, under the supervisor `pid`."""

    rank: int = _as(_whole(0, _RANKS))
    pid: int = _as(_whole(0, 1 << 31))


@dataclass(frozen=True)
class RankEnd:
    """A rank of this node ended; where it failed, what it printed last, and why, where that is known."""

    rank: int = _as(_whole(0, _RANKS))
    status: int = _as(_status)
    tail: tuple[str, ...] = _as(_tail)
    why: str = _as(_text())


@dataclass(frozen=True)
class Ended:
    """A program of this node's own ended; `last`: no other runs."""

    status: int = _as(_status)
    what: str = _as(_text())
    reason: str = _as(_text())
    tail: tuple[str, ...] = _as(_tail)
    last: bool = _as(_truth)


@dataclass(frozen=True)
class Met:
    """The launcher of this node has met those of the other nodes, and started its first rank."""


@dataclass(frozen=True)
class DaemonStarted:
    """The command of StartDaemon has ended: with 0 if mpirun's daemon now runs in the background."""

    status: int = _as(_status)


@dataclass(frozen=True)
class Daemon:
    """mpirun's daemon on this node ended."""

    name: str = _as(_text(100))
    status: int = _as(_status)
    why: str = _as(_text())


@dataclass(frozen=True)
class Limit:
    """This node could not start a process."""

    reason: str = _as(_text())


@dataclass(frozen=True)
class Failed:
    """This node cannot go on; `stop`: it was asked to stop."""

    status: int = _as(_failure)
    reason: str = _as(_text())
    program: bool = _as(_truth)
    stop: bool = _as(_truth)


@dataclass(frozen=True)
class ForceStop:
    """A second signal came here: force stop, nobody waits for the grace."""


@dataclass(frozen=True)
class Stopped:
    """Nothing of the job runs on this node any more."""


@dataclass(frozen=True)
class ProbeResult:
    """What this node sees of itself: an Observation of check/observed.py, as names and plain values."""

    seen: Mapping[str, Any] = _as(_observation)


@dataclass(frozen=True)
class Phases:
    """How long each phase of this node took: name, start, end, peer or rank, by its own monotonic clock. The others are
    times of that clock: when it answered the roll call, heard Start, heard Release, sent this; 0 where it did not."""

    phases: tuple[tuple[str, float, float, str], ...] = _as(_list(_phase, PHASES))
    answered: float = _as(_time)
    started: float = _as(_time)
    released: float = _as(_time)
    told: float = _as(_time)


@dataclass(frozen=True)
class Goodbye:
    """The node has got the outcome, and sends nothing more. It stays until the leader has ended the session."""


# ---------------------------------------------------------------------------------------------------------------
# From the leader, or from both


@dataclass(frozen=True)
class Hello:
    """The roll call's question. From another version of the toolkit, only `toolkit` is read: the rest may differ."""

    toolkit: str = _as(_text(100))
    hosts: tuple[str, ...] = _as(_list(_text(300), _RANKS))
    rank: int = _as(_whole(0, _RANKS))
    launcher: str = _as(_text(100))
    env: Mapping[str, str] = _as(_variables)
    heartbeat: float = _as(_number(1, _EVER))
    leader: str = _as(_text(100))  # which leader asks: a second leader with the same keys has another name
    address: str = _as(_text(100))  # at which it reached this node


@dataclass(frozen=True)
class Start:
    """Everyone answered."""

    attempt: int = _as(_whole(1, _RANKS))


@dataclass(frozen=True)
class StartDaemon:
    """Start mpirun's daemon by this command of a shell, as mpirun's agent was given it."""

    command: str = _as(_command)


@dataclass(frozen=True)
class Ping:
    """Still there. With a number above 0: report all that you know, then answer with that number."""

    number: int = _as(_whole(0, 1 << 31))


@dataclass(frozen=True)
class Stacks:
    """Show what your ranks are doing."""


@dataclass(frozen=True)
class Signal:
    """A signal for the ranks."""

    name: str = _as(_user_signal)


@dataclass(frozen=True)
class Stop:
    """End your ranks, within `grace` seconds."""

    grace: float = _as(_number(0, _EVER))


@dataclass(frozen=True)
class Probe:
    """Run your probes, and send their results."""


@dataclass(frozen=True)
class ReleaseFailedRanks:
    """Ranks that failed may leave mpirun."""


@dataclass(frozen=True)
class Release:
    """The job's outcome: leave with it, or start the next attempt (`again`)."""

    status: int = _as(_status)
    reason: str = _as(_text())
    program: bool = _as(_truth)
    again: bool = _as(_truth)


# ---------------------------------------------------------------------------------------------------------------
# Who may say what: a node is believed about itself, its own ranks and its own programs, and about nothing else

# Conditions of a message, as they are said of one that does not meet them.
CALL = "outside the roll call"
CALLED = "before the roll call"
STARTED = "before the start"
RANKS = "in a job whose launcher starts no ranks on all nodes"
OWN_RANK = "of a rank that does not run there"
OWN_PROGRAM = "of the leader's launcher"
ELASTIC = "in a job that is not elastic"
CHECK = "in a job that is no check"
SUCCESS = "of a success before the start"

# Every message that a worker may send, and every one that the leader may, with what must hold for it. Any node may
# stop the job, or have its ranks get a user signal: it may be the only one that was told to.
WORKER_SAYS: Mapping[type, tuple[str, ...]] = {
    **dict.fromkeys((NodeInfo, Taken, Reject), (CALL,)),
    **dict.fromkeys((Pong, StacksShown, Stopped, Phases, Goodbye, Failed, ForceStop, Signal), ()),
    **dict.fromkeys((RankStart, RankEnd), (STARTED, RANKS, OWN_RANK)),
    Ended: (STARTED, OWN_PROGRAM),
    Met: (STARTED, ELASTIC),
    DaemonStarted: (STARTED, RANKS),
    Daemon: (RANKS,),
    Limit: (STARTED, RANKS),
    ProbeResult: (CHECK,),
}
LEADER_SAYS: Mapping[type, tuple[str, ...]] = {
    Hello: (CALL,),
    **dict.fromkeys((Start, Ping, Stacks, Signal, Stop, ReleaseFailedRanks), (CALLED,)),
    StartDaemon: (CALLED, STARTED, RANKS),
    Probe: (CALLED, CHECK),
    Release: (CALLED, SUCCESS),
}
FROM_WORKER, FROM_LEADER = tuple(WORKER_SAYS), tuple(LEADER_SAYS)


def wrong(message: Any, says: Mapping[type, tuple[str, ...]], holds: Mapping[str, bool]) -> str:
    """Why who sent this message may not say it: `rank_end of a rank that does not run there`; "" where it may."""
    return next((f"{kind_of(type(message))} {each}" for each in says[type(message)] if not holds[each]), "")


def kind_of(message: type) -> str:
    """What a message is called on the network, such as `rank_end`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()
