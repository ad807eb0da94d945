"""A worker's contact with its leader. Pure: the caller gives every time, in seconds.

A leader gives up a success that it has told only while no worker has acknowledged it: it was
suspended itself, or it has heard nothing of a worker for the heartbeat timeout. A worker answers
each ping at once. So one whose goodbye comes too late for its leader has heard nothing for as long,
but for the time that messages are on their way, and believes no success before the leader has
confirmed it (`was_silent`). Only a connection that breaks between the two cannot be known of.
"""

from __future__ import annotations

from entrypoint.base import heartbeat
from entrypoint.base.values import dataclass

# Of the heartbeat timeout: the leader may have waited for a little longer than its worker.
_NEARLY = 0.8


@dataclass
class Contact:
    """The leader's presence. It speaks in every interval; `limit` is the heartbeat timeout."""

    limit: float
    _nodes: int
    is_connected = False
    heard = 0.0  # when it last sent something
    # Whether it may have lost this node: for nearly as long as it waits, neither heard of the other
    # or this node was suspended. What then lies in the session may be out of date.
    was_silent = False
    _due = 0.0  # when this node meant to look whether the leader is silent

    @property
    def patience(self) -> float:
        """Seconds of silence until the leader is lost."""
        return heartbeat.patience(self.limit, self._nodes)

    def hear(self, now: float) -> None:
        """Something has come from the leader."""
        self._silence(now)
        self.heard = now
        self.is_connected = True

    def is_there(self, now: float) -> bool:
        """Return whether the leader is connected, and not silent for too long."""
        return self.is_connected and now - self.heard <= self.patience

    def look(self, now: float) -> tuple[float, float]:
        """Return for how many seconds it is silent, without those for which this node itself was
        suspended, and when to look again. It is first called when something has come."""
        self._silence(now)
        self.heard = heartbeat.forgiven(self.heard, self._due, now)
        interval = heartbeat.interval(self.limit, self._nodes)
        # Most looks find a leader that has spoken since the last one: the next is due when it has
        # been silent for the timeout, and then once in an interval.
        late = max(now + interval, self.heard + self.limit)
        self._due = max(now + 0.1, min(late, self.heard + self.patience))
        return now - self.heard, self._due

    def _silence(self, now: float) -> None:
        self.was_silent |= self.is_connected and now - self.heard > _NEARLY * self.limit
