"""Command lines of a launcher, which its script builds, and of ranks: how they are recorded."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.base.kept import MARK, VERDICT
from entrypoint.base.model import Launch, Plan, Topology
from entrypoint.base.secret import HIDDEN, hides, masked_words, scrubbed
from entrypoint.base.text import count
from entrypoint.base.values import frozen
from entrypoint.ranks.orders import StartedAs
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import MAX_BYTES, is_private, put, ranks_of
from entrypoint.system.process import environment

RECORD = "line"  # file in the run directory with the argv, as mpirun's script writes it
TEXT = "started.txt"  # file in the run directory with the command line for people
STAGE = "plan"  # of ENTRYPOINT_STAGE: a script writes its argv to stdout, and starts nothing
_LOGGED = 1000  # characters of it in the log
_SHOWN = 32 << 10  # bytes of it that are shown
_ESCAPES = {"\n": "\\n", "\t": "\\t", "'": "\\'", "\\": "\\\\"}  # in bash's $'...'


def shown(line: bytes) -> str:
    """Return a launcher's command line without secrets, from its argv, each argument ended by NUL;
    "" if there is none yet.

    A very long one is cut: the event loop waits meanwhile, and a reader needs no megabytes.
    """
    first = line[:_SHOWN].rpartition(b"\0")[0]
    argv = masked_words(first.decode(errors="replace").split("\0")) if first else []
    rest = len(line) - len(first) - 1
    return " ".join(map(_shell_quoted, argv)) + (f" and {rest} bytes more" if argv and rest else "")


def started(plan: Plan, line: str, folder: str) -> str:
    """Return what is logged once `line` was started; of a script's line, where in `folder` it
    is."""
    nodes = plan.topology.working
    where = f" on {count(nodes, 'node')}" if nodes > 1 else ""
    ranks = f"{plan.launch.ranks.name or plan.launcher} with {count(plan.ranks, 'rank')}{where}"
    place = f"whole line: {folder}/{TEXT}, or `entrypoint plan`"
    return f"started: {ranks} | {place if folder else line[:_LOGGED]}"


def of(launch: Launch, command: Sequence[str]) -> str:
    """Return the command line that this node starts, without secrets; the job's `command` if
    another node starts the launcher, or a script builds its line."""
    started = next((each.argv for each in launch.programs if not each.script), tuple(command))
    return shown("".join(f"{word}\0" for word in started).encode(errors="replace"))


@frozen
class StoredRank:
    """The start of a rank, as stored; HIDDEN is in each text that had a secret."""

    job: str
    attempt: str
    cwd: str
    command: Sequence[str]
    env: Mapping[str, str]


def _program(words: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return command and environment of a report: the command's size, its words, NAME=VALUE."""
    end = 1 + int(words[0])
    return words[1:end], dict(word.split("=", 1) for word in words[end:])


def stored(file: Path) -> StoredRank:
    """Return what `store` has written. Raises OSError if it cannot be read."""
    job, attempt, cwd, *words = os.fsdecode(read_regular(file, MAX_BYTES)).split("\0")
    return StoredRank(job, attempt, cwd, *_program(words))


def store(topology: Topology, launch: Launch, number: int, started: StartedAs) -> None:
    """Store a rank's program without secrets, as the keeper has reported it; a node's program that
    is no rank by the node's number. If there is no room for it, the job continues.

    Of its environment, what the container was given is stored by name alone.
    """
    if not launch.ranks.kind.by_launcher:
        rank = launch.programs[number].rank
        number = topology.me if rank is None else rank
    argv = tuple(map(os.fsdecode, started.words))
    env = dict(os.fsdecode(entry).split("=", 1) for entry in started.env)
    del env[MARK]
    env.pop(VERDICT, None)
    safe = [topology.job, str(topology.history.number), topology.workdir, str(len(argv))]
    safe += masked_words(argv)
    given = environment()
    for name, value in env.items():  # Open MPI has the whole command in one variable
        words = [*value.split(), value]
        is_safe = not hides(name, value) and masked_words(words) == words
        safe.append(f"{name}={value if is_safe and given.get(name) != value else HIDDEN}")
    place = ranks_of(topology.run_dir)
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        if is_private(place):
            put(place / str(number), os.fsencode(scrubbed("\0".join(safe), env)), 0o600)


def _shell_quoted(argument: str) -> str:
    """Return an argument quoted for bash on one line: that of `python -c` may have many lines."""
    if argument.isprintable():
        return shlex.quote(argument)
    escaped = (_ESCAPES.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in argument)
    return f"$'{''.join(escaped)}'"
