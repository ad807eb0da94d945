"""Whether this container's part of the job has started, told by its processes: no network, no settings, no writes.

A booting entrypoint holds the lock of its run directory and writes into it when the job starts here. It is found by its
process, so that nobody has to tell a probe where that directory is.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from entrypoint.run.files import READY

_PROC = Path("/proc")


def check(proc: Path = _PROC) -> tuple[bool, str]:
    """Whether it is ready, and why, in a few words."""
    booting = list(_booting(proc))
    if not booting:
        return True, "no boot of ours is going on here: the program runs by itself"
    for pid in booting:
        try:
            texts = [(proc / pid / "fd" / fd).read_bytes() for fd in _locks(proc / pid / "fd")]
        except FileNotFoundError:
            continue  # it has just ended, or become the program
        except PermissionError:
            return False, f"process {pid} cannot be looked at | it is another user's | probe as the container's user"
        if READY not in texts:
            return False, "not ready: the job has not started on this node yet"
    return True, "ready: the job has started on this node"


def _booting(proc: Path) -> Iterator[str]:
    """Process ids of `entrypoint run`, however it was called."""
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        first, names = os.path.basename(words[0]), [os.path.basename(word) for word in words[1:5]]
        # Such as: python3 -I /usr/local/bin/entrypoint run
        boots = first.startswith(b"python") and (b"entrypoint", b"run") in itertools.pairwise(names)
        if boots or (first.endswith(b"sh") and names[:1] == [b"image-entry"]):
            yield entry.name


def _locks(folder: Path) -> Iterator[str]:
    for entry in os.listdir(folder):
        if os.readlink(folder / entry).endswith("/lock"):
            yield entry
