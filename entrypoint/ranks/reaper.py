"""Looks at the children of this process when one of them has ended or was suspended (SIGCHLD).

Reaps orphans: processes that tools of this node leave behind, or a keeper that was killed, become
children of this process, and would stay as zombies.

Python reaps the children that it has started, and tini does not get those that a subreaper adopts.
Reaping one of Python's children would lose its status, so only a zombie that is present in two
scans is reaped: it is an orphan.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from entrypoint.system import proc, process

_PATIENCE = 2.0  # seconds between two scans; Python reaps its children within milliseconds


class Reaper:
    """Adopts orphans, and reaps those children of this process until it is closed. Continues the
    keeper if somebody has suspended it, which would hang the job."""

    def __init__(self, keeper: int) -> None:
        """`keeper`: the pid of a child that is waited for elsewhere."""
        process.adopt_orphans()
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._zombies: set[int] = set()
        self._planned: asyncio.TimerHandle | None = None
        # The loop's own way would import `inspect`.
        signal.signal(signal.SIGCHLD, lambda *_: self._loop.call_soon_threadsafe(self._soon))
        self._soon()  # it may have been suspended before

    def _soon(self) -> None:
        if self._planned is None:
            self._planned = self._loop.call_later(_PATIENCE, self._scan)

    def _scan(self) -> None:
        self._planned = None
        if proc.state(self._keeper)[0] == "T":
            proc.kill([self._keeper], signal.SIGCONT)
        children = {*proc.own_children()} - {self._keeper}
        zombies = {pid for pid in children if proc.state(pid)[0] == "Z"}
        for pid in zombies & self._zombies:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._zombies = zombies - self._zombies
        if self._zombies:
            self._soon()

    def close(self) -> None:
        """Reap no more."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if self._planned is not None:
            self._planned.cancel()
