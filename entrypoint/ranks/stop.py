"""Stops what runs on this node: SIGTERM, the grace period, SIGKILL."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from entrypoint.job import messages
from entrypoint.output.log import Callbacks
from entrypoint.ranks.node_ranks import NodeRanks
from entrypoint.ranks.stall.watch import RankWatcher
from entrypoint.system import children

if TYPE_CHECKING:
    from entrypoint.ranks.checkpoints import CheckpointWatch

_GONE = 10.0  # seconds for killed programs to be gone: the kernel needs time to free much memory
_UNREAD = 5.0  # seconds for the reader of our output to take some of the programs' last lines
# seconds to show the stacks of programs whose grace is over, before they are killed
_LAST_LOOK = 1.5


class NodeStop:
    """The stop of these ranks, and the end of all processes."""

    checkpoints: CheckpointWatch | None = None  # if the spec names them

    def __init__(self, ranks: NodeRanks, watcher: RankWatcher, callbacks: Callbacks) -> None:
        self._ranks = ranks
        self._watcher = watcher
        self._callbacks = callbacks

    def begin(self, grace: float) -> None:
        """Stop within `grace` seconds; once that has begun, 0 makes it a force stop."""
        if self._ranks.is_stopping:
            if grace == 0:
                self._ranks.force()
            return
        if self.checkpoints is not None:
            self.checkpoints.stop()
        may_save = bool(self._ranks.without_launchers.alive)
        is_awaited = self._ranks.terminate()
        self._callbacks.background(self._stop(grace, is_awaited, may_save))

    async def _stop(self, grace: float, is_awaited: bool, may_save: bool) -> None:
        """Send SIGKILL after the grace (seconds), then report what was saved, and the stop."""
        if is_awaited:
            in_time = await self._ranks.wait(self._ranks.gone(), grace)
            if grace and not in_time:
                summary = f"EP615 not all programs stopped within the grace period of {grace:g}s"
                self._callbacks.log(f"{summary}; their stacks follow, then they are killed")
                await self._watcher.show(_LAST_LOOK)
            self._ranks.kill()
        await self._ranks.settled(grace)
        saved = await self.checkpoints.end() if self.checkpoints else None
        self._watcher.tell_steps(of_all=True)
        self._callbacks.tell(messages.Stopped(saved if may_save else None))

    async def close(self, spared: Set[int]) -> None:
        """End all processes of the job on this node but the keeper and these."""
        if lost := await self._ranks.keeping.end(_UNREAD):
            self._ranks.log_lost(lost)
        if killed := self._ranks.limits.unreported_kill():
            self._callbacks.log(f"warning: EP601 {killed}")
        if remaining := await children.end_all(_GONE, {self._ranks.keeping.pid, *spared}):
            summary = f"EP616 killed programs have not ended after {_GONE:g}s, with what they hold"
            self._callbacks.log(
                f"{summary} | {'; '.join(remaining)} | find out what the kernel waits for"
            )
        self._ranks.keeping.close()
