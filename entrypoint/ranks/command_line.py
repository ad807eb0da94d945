"""A launcher's own command line, which its script builds: how it is recorded and shown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from entrypoint.base.model import Launch, Plan
from entrypoint.base.secret import masked_words
from entrypoint.base.text import count

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


def _shell_quoted(argument: str) -> str:
    """Return an argument quoted for bash on one line: that of `python -c` may have many lines."""
    if argument.isprintable():
        return shlex.quote(argument)
    escaped = (_ESCAPES.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in argument)
    return f"$'{''.join(escaped)}'"
