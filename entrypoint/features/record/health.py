"""The health check: has this container's part of the job started? No network, no settings, no
writes.

`entrypoint run` shows its state as its process name (process.py). The kernel shows name and owner
of a process to everybody, until it ends or becomes another program, so a probe needs no settings,
and neither a program's arguments nor another user's process can mislead it.

In an image scripts/entrypoint does the same in bash, without a Python; tests/process/test_health.py
tries both.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from entrypoint.system import proc
from entrypoint.system.process import STARTED, WAITING

_YOUNG = 10.0  # seconds within which a new `entrypoint run` may not have set its name yet


def check(root: Path = Path("/proc")) -> tuple[bool, str]:
    """Return whether the container is ready, and a short reason."""
    users = [os.geteuid()]
    with contextlib.suppress(OSError):
        users.append((root / "1").stat().st_uid)
    # Those of this user; if there is none, of the owner of PID 1.
    boots = next(filter(None, (states_of(user, root) for user in users)), [])
    if not boots:
        return True, "no boot is going on here: the program runs on its own"
    if WAITING in boots:
        return False, "not ready: the job has not started on this node yet"
    return True, "ready: the job has started on this node"


def states_of(user: int, root: Path = Path("/proc")) -> list[str]:
    """Return the state of each boot of this user."""
    processes = (entry for entry in root.iterdir() if entry.name.isdigit())
    return [state for entry in processes if (state := _state(entry, user))]


def _state(process: Path, user: int) -> str:
    """Return the state of this process if it is a boot of that user; otherwise ""."""
    try:
        if process.stat().st_uid != user:
            return ""
        name, fields = proc.stat(process.name, str(process.parent))
        if fields[0] in "ZX":
            return ""
        if name in (WAITING, STARTED):
            return name
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # seconds since the machine's start
        if time.clock_gettime(time.CLOCK_BOOTTIME) - started > _YOUNG:
            return ""
        return (
            WAITING if _is_entrypoint_run((process / "cmdline").read_bytes().split(b"\0")) else ""
        )
    except (OSError, ValueError, IndexError):
        return ""  # the process has just ended


def _is_entrypoint_run(argv: list[bytes]) -> bool:
    """Return whether this is the command line of `entrypoint run`, in any of its forms."""
    first = os.path.basename(argv[0])
    names = [os.path.basename(argument) for argument in argv[1:5]]
    # For example: python3 -I .../image-entry, python3 -I .../entrypoint run, bash -p .../entrypoint
    # run
    runs = first.startswith(b"python") or first.endswith(b"sh")
    return runs and (
        b"image-entry" in names[:2] or (b"entrypoint", b"run") in itertools.pairwise(names)
    )
