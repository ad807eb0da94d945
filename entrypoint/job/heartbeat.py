"""The leader's half of the heartbeat: it pings every worker, and one that is silent is lost."""

from __future__ import annotations

from collections.abc import Callable

from entrypoint.base import heartbeat
from entrypoint.job.messages import Ping
from entrypoint.job.outbox import Part, Shared


class Heartbeat(Part):
    """Pings the workers that are there. `lose` gets each that has been silent for too long."""

    def __init__(self, shared: Shared, lose: Callable[[int, str], None]) -> None:
        super().__init__(shared)
        self._nodes = len(self._topology.nodes)
        self._lose = lose

    def begin(self) -> None:
        """The roll call begins."""
        self._beat()
        self._look()

    def _beat(self, part: int = 0) -> None:
        """Ping a part of the workers: each once in an interval. One that was suspended and is lost
        gets the outcome yet, if it does not miss us meanwhile."""
        parts = heartbeat.parts(self._nodes)
        for node in filter(self._peers.__contains__, range(part, self._nodes, parts)):
            self._outbox.tell(node, Ping(0))
        pause = self._peers.interval / parts
        self._scheduler.after(pause, lambda: self._beat((part + 1) % parts))

    def _look(self) -> None:
        for node in self._peers.look(self._scheduler.now):
            self._lose(node, "")
        self._scheduler.at(self._peers.next_look(self._scheduler.now), self._look)
