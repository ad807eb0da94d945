"""Stops the programs and ranks of this node: SIGTERM, the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from entrypoint.job import messages
from entrypoint.output.log import Callbacks
from entrypoint.ranks.below import terminate_tree
from entrypoint.ranks.program_reports import ProgramReports
from entrypoint.ranks.stall.watch import RankWatcher
from entrypoint.system import children, proc

if TYPE_CHECKING:
    from entrypoint.ranks.checkpoints import CheckpointWatch

_GONE = 10.0  # seconds for killed programs to be gone: the kernel needs time to free much memory
_UNREAD = 5.0  # seconds for the reader of our output to take some of the programs' last lines
# seconds to show the stacks of programs whose grace is over, before they are killed
_LAST_LOOK = 1.5


class ProgramStop:
    """The stop of what `reports` knows to run, and the end of all processes. `grace`: seconds that
    ranks get if their launcher ends them."""

    def __init__(
        self, reports: ProgramReports, watcher: RankWatcher, grace: float, callbacks: Callbacks
    ) -> None:
        self._reports = reports
        self._keeping = reports.keeping
        self._ranks = reports.ranks
        self._programs = reports.programs
        self._watcher = watcher
        self._grace = grace
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._force = asyncio.Event()  # force stop: skip the rest of the grace
        self.checkpoints: CheckpointWatch | None = None  # if the spec names them
        reports.launcher_ends = lambda launcher: self._background(self._outlast_ranks(launcher))

    def begin(self, grace: float) -> None:
        """Stop within `grace` seconds; once that has begun, 0 makes it a force stop."""
        if not self._reports.is_stopping:
            for end in self._reports.held_ends or ():
                self._tell(end)
            self._reports.is_stopping = True
            self._background(self._stop(grace))
        elif grace == 0:
            self._force.set()

    async def _stop(self, grace: float) -> None:
        """Send SIGTERM to every program of this node and SIGKILL after the grace (seconds), then
        report the stop.

        If ranks report by themselves, the launcher gets no signal: it would kill them before the
        grace ends.
        """
        gone: Coroutine[Any, Any, None] | None = None
        if self.checkpoints is not None:
            self.checkpoints.stop()
        if self._reports.by_ranks:
            spawned = []
            if self._reports.held_ends is None:  # otherwise all were signalled
                spawned = self._keeping.spawned()
                self._ranks.signal(signal.SIGTERM)
                for pid in spawned:
                    terminate_tree(pid)
            gone = self._ranks_gone(spawned)
        elif self._programs.alive:
            self._programs.signal(signal.SIGTERM)
            gone = self._all_gone()
        if gone:
            in_time = await self._wait_unless_forced(gone, grace)
            if grace and not in_time:
                summary = f"EP615 not all programs stopped within the grace period of {grace:g}s"
                self._log(f"{summary}; their stacks follow, then they are killed")
                await self._watcher.show(_LAST_LOOK)
            self._ranks.kill()
            if not self._reports.by_ranks:  # an MPI still passes on what its ranks printed
                self._programs.kill()
        diagnostician = self._reports.diagnostician
        if diagnostician is not None and grace and not self._force.is_set():
            await diagnostician.settled(grace)
        if self.checkpoints is not None:
            await self.checkpoints.end()
        self._watcher.tell_steps(of_all=True)
        self._tell(messages.Stopped())

    async def _outlast_ranks(self, launcher: int) -> None:
        """Give ranks their grace when the launcher itself ends the job, which would exit a second
        later.

        MPI ends ranks whose daemon is gone, so the daemon is suspended until they have saved. It
        reports its status, which tells the cause, after that.
        """
        if not proc.is_below(launcher, os.getpid()):
            return
        proc.kill([launcher], signal.SIGSTOP)
        try:
            if not self._reports.is_stopping:
                self._ranks.signal(signal.SIGTERM)
            await self._wait_unless_forced(self._ranks.ended(), self._grace)
        finally:
            proc.kill([launcher], signal.SIGCONT)

    async def _wait_unless_forced(self, end: Coroutine[Any, Any, None], limit: float) -> bool:
        """Wait for this end; return whether it, or a force stop, came within `limit` seconds."""
        tasks = {asyncio.ensure_future(end), asyncio.ensure_future(self._force.wait())}
        done, waiting = await asyncio.wait(
            tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED
        )
        for task in waiting:
            task.cancel()
        return bool(done)

    async def _ranks_gone(self, spawned: list[int]) -> None:
        await self._ranks.gone()
        # one may be a rank's placeholder that has just started
        left = self._keeping.spawned()
        await children.gone({*spawned} & {*left})

    async def _all_gone(self) -> None:
        """Return when the programs and all that they started are gone: both may need the grace
        period."""
        await self._programs.gone()
        await self._ranks.gone()

    async def close(self) -> None:
        """End all processes of the job on this node."""
        if lost := await self._keeping.end(_UNREAD):
            self._reports.log_lost(lost)
        if killed := self._reports.limits.unreported_kill():
            self._log(f"warning: EP601 {killed}")
        if remaining := await children.end_all(_GONE, self._keeping.pid):
            hint = "find out what the kernel waits for"
            summary = f"EP616 killed programs have not ended after {_GONE:g}s, with what they hold"
            self._log(f"{summary} | {'; '.join(remaining)} | {hint}")
        self._keeping.close()
