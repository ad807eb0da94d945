"""The leader's heartbeat: a word to every worker each fifth of the limit, and who says nothing itself is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from entrypoint import heartbeat
from entrypoint.session.session import Session


class Pulse:
    """Keeps the sessions that it is given at each look, and knows when this node itself stood still."""

    def __init__(self, limit: float, sessions: Callable[[], Mapping[int, Session]]) -> None:
        self._limit, self._sessions = limit, sessions
        self._due = self._stood_until = time.monotonic()  # when we mean to wake; the end of a stand-still of our own
        self._stood = 0.0  # seconds that it took

    async def beat(self) -> None:
        """Go on until cancelled. Whoever is lost has a session that ended."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        next_ping = time.monotonic() + heartbeat.interval(self._limit)
        while True:
            # Not only at the next ping: who is silent is lost when our patience ends.
            alive = [each for each in self._sessions().values() if not each.lost.is_set()]
            ends = [each.heard + heartbeat.patience(self._limit) for each in alive]
            now = time.monotonic()
            self._due = max(now + 0.05, min([next_ping, *ends]))
            await asyncio.wait({never}, timeout=self._due - now)
            now = time.monotonic()
            self._look_back(now)
            for session in [each for each in self._sessions().values() if not each.lost.is_set()]:
                if now >= next_ping:
                    session.send("ping", number=0)
                if now - session.heard > heartbeat.patience(self._limit):
                    session.give_up()
            if now >= next_ping:
                next_ping = now + heartbeat.interval(self._limit)

    def _look_back(self, now: float) -> None:
        """Whether this node itself stood still, frozen or without a core: nobody was silent for that time."""
        if now - self._due > heartbeat.interval(self._limit):
            self._stood, self._stood_until = now - self._due, now
        for session in self._sessions().values():
            session.heard = heartbeat.forgiven(session.heard, self._due, now)
        self._due = max(now, self._due)

    def stood_still(self) -> float:
        """Seconds for which this node itself did nothing, where its peers do not wait so long and it was just now."""
        now = time.monotonic()
        self._look_back(now)
        return self._stood if self._stood > self._limit and now - self._stood_until <= self._limit else 0.0
