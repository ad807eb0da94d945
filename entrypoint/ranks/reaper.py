"""Reaps orphans: processes that programs leave behind become children of this process, and would
stay as zombies.

Python reaps the children that it has started, and tini does not get those that a subreaper adopts.
Reaping one of Python's children would lose its status, so only a zombie that is present in two
scans is reaped: it is an orphan. mpirun's daemon is never a child that Python has started: its end
is reported at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from entrypoint.launchers._daemons import DAEMONS
from entrypoint.system import proc, process

_PATIENCE = 2.0  # seconds between two scans; Python reaps its children within milliseconds


class Reaper:
    """Adopts orphans, and reaps those children of this process until it is closed."""

    def __init__(self, daemon_ended: Callable[[str, int], None]) -> None:
        """`daemon_ended` gets the name and the wait status of each of mpirun's daemons."""
        process.adopt_orphans()
        self._daemon_ended = daemon_ended
        self._loop = asyncio.get_running_loop()
        self._zombies: set[int] = set()
        self._planned: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGCHLD, self._soon)

    def _soon(self) -> None:
        self._report_daemons()
        if self._planned is None:
            self._planned = self._loop.call_later(_PATIENCE, self._scan)

    def _report_daemons(self) -> set[int]:
        """Report daemons that have ended, and return the other zombies."""
        zombies = _zombie_names()
        for pid, name in zombies.items():
            if name in DAEMONS:
                with contextlib.suppress(ChildProcessError):
                    self._daemon_ended(name, os.waitpid(pid, os.WNOHANG)[1])
        return {pid for pid, name in zombies.items() if name not in DAEMONS}

    def _scan(self) -> None:
        self._planned = None
        zombies = self._report_daemons()
        for pid in zombies & self._zombies:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._zombies = zombies - self._zombies
        if self._zombies:
            self._soon()

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._planned is not None:
            self._planned.cancel()


def _zombie_names() -> dict[int, str]:
    """Return the children of this process that have ended and were not waited for: pid -> name."""
    me = os.getpid()
    try:
        children = proc.children(me)
    except OSError:  # the kernel does not list them
        children = [pid for pid, _, (_, parent, *_) in proc.processes() if int(parent) == me]
    zombies = {}
    for pid in children:
        with contextlib.suppress(OSError):  # it has just been waited for
            name, (state, *_) = proc.stat(pid)
            if state == "Z":
                zombies[pid] = name
    return zombies
