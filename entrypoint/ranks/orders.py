"""The messages between the entrypoint and the keeper of its ranks, through one socket pair.

Both are one program, forked: a message is written by `marshal` and read as the same class.
"""

from __future__ import annotations

import marshal
import struct

from entrypoint.base.kept import KeptForm, OutputForm, RanksForm
from entrypoint.base.values import frozen

if False:  # only for type checkers: importing it is slow
    from collections.abc import Iterator
    from typing import Any

# Kinds of what is kept: a program of the plan, a rank that a launcher starts, and what starts a
# daemon of an MPI, or such a daemon itself.
PROGRAM = "program"
RANK = "rank"
DAEMON = "daemon"


# -- orders


@frozen
class Begin:
    """Begin an attempt: ranks may start. `run_dir` has the pipe at which launchers ask for them;
    `ranks` is how, None if none does; `collapse` and `is_json` are those of all output."""

    run_dir: str
    ranks: RanksForm | None
    collapse: bool = False
    is_json: bool = False


@frozen
class StartProgram:
    """Start a program, or with the kind DAEMON what starts one."""

    kind: str
    number: int
    argv: tuple[str, ...]
    env: tuple[bytes, ...]
    cwd: str
    form: KeptForm


@frozen
class SignalAll:
    """Send a signal to all of this kind that run; SIGKILL also to what others have left. `number`:
    to this one alone."""

    kind: str
    signum: int
    number: int = -1


@frozen
class ReleaseRanks:
    """The ranks have ended: launchers may hear of those that failed."""


@frozen
class EndAttempt:
    """End the attempt: kill all, and pass on what a reader takes within `patience` seconds without
    a pause."""

    patience: float


# -- reports


@frozen
class Report:
    """An event of a program or rank:

    start        its process, whose pid that is
    placeholder  the pid of the process that its launcher takes for it
    output       it has printed for the first time
    end          its status, as in a shell
    launcher     the pid of the launcher that begins to end it
    done         its output is passed on, and no process that it started runs
    log, copy    its log could not be opened; could not be written any more: the error (errno(3))
    lost, late   bytes of its output that nobody read; that an MPI may not have passed on
    """

    kind: str
    number: int
    event: str
    value: int


@frozen
class Tail:
    """The last bytes that one printed that has failed."""

    kind: str
    number: int
    output: bytes


@frozen
class StartedAs:
    """The start of a rank, for `entrypoint rerun`: its words, and NAME=VALUE of variables."""

    kind: str
    number: int
    words: tuple[bytes, ...]
    env: tuple[bytes, ...]


@frozen
class DaemonEnded:
    """A daemon of an MPI has ended, by its name and with the status that a shell would give."""

    name: str
    status: int


@frozen
class AttemptEnded:
    """The attempt is over here; so many bytes of output were lost at the end."""

    lost: int


_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (
        Begin,
        StartProgram,
        SignalAll,
        ReleaseRanks,
        EndAttempt,
        KeptForm,
        OutputForm,
        RanksForm,
        Report,
        Tail,
        StartedAs,
        DaemonEnded,
        AttemptEnded,
    )
}
_LENGTH = struct.Struct("=I")


def encoded(message: Any) -> bytes:
    """Return the bytes of a message."""
    data = marshal.dumps(_plain(message))
    return _LENGTH.pack(len(data)) + data


def decoded(buffer: bytearray) -> Iterator[Any]:
    """Take the whole messages from the beginning of a buffer."""
    while len(buffer) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
        if len(buffer) < end:
            return
        data = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        yield _value(marshal.loads(data))


def _plain(value: Any) -> Any:
    if (name := type(value).__name__) in _CLASSES:
        return {name: [_plain(field) for field in vars(value).values()]}
    return int(value) if isinstance(value, int) else value  # a signal's number is a class


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        ((name, fields),) = plain.items()
        return _CLASSES[name](*map(_value, fields))
    return plain
