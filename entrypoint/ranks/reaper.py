"""Reaps orphans: processes that programs leave behind become our children, and would stay as zombies.

Python reaps the children that it started, and tini does not see what we adopted as a subreaper. A zombie that is there
at two looks is not one of Python's own; reaping those would lose their status.
A daemon of mpirun's is never Python's own: its end is reported at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from entrypoint.launchers._daemons import DAEMONS
from entrypoint.system import proc

_PATIENCE = 2.0  # seconds between two looks; Python reaps its own within milliseconds


class Reaper:
    """Looks after the children of this process from now on."""

    def __init__(self, daemon_ended: Callable[[str, int], None]) -> None:
        """`daemon_ended` gets the name and the wait status of each of mpirun's daemons."""
        self._daemon_ended = daemon_ended
        self._loop = asyncio.get_running_loop()
        self._seen: set[int] = set()
        self._planned: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGCHLD, self._soon)

    def _soon(self) -> None:
        for pid, name in _zombies().items():
            if name in DAEMONS:
                with contextlib.suppress(ChildProcessError):
                    self._daemon_ended(name, os.waitpid(pid, os.WNOHANG)[1])
        if self._planned is None:
            self._planned = self._loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        self._planned = None
        zombies = set(_zombies())
        for pid in zombies & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = zombies - self._seen
        if self._seen:
            self._soon()

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._planned is not None:
            self._planned.cancel()


def _zombies() -> dict[int, str]:
    """Children of this process that have ended and were not waited for: pid -> name."""
    own = str(os.getpid())
    return {pid: name for pid, name, (state, parent, *_) in proc.processes() if (state, parent) == ("Z", own)}
