"""Words while waiting: one line when something changes, and a summary every ten seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

Say = Callable[[str], None]

_SUMMARY = 10.0
_NAMED = 8  # missing peers named in one line; the last message names all


class Waiting:
    """Who is missing and why, for people."""

    def __init__(self, say: Say, limit: float, what: str = "peers") -> None:
        self._say, self._limit, self._what = say, limit, what
        self._begun = time.monotonic()
        self._states: dict[str, str] = {}  # host -> why it is missing; "" once it is there
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SUMMARY, self._summary)

    def _summary(self) -> None:
        if self.missing():
            self._say(self.line())
        self._schedule()

    def update(self, host: str, state: str) -> None:
        """Note why a peer is missing ("" when it is there), and say so when that is news."""
        before = self._states.get(host)
        self._states[host] = state
        # The first look at a peer is no news: everyone starts at the same time.
        if before is not None and before != state and self.missing() and self.elapsed() > 1:
            self._say(self.line())

    def missing(self) -> Mapping[str, str]:
        """Host -> reason, of all that are missing."""
        return {host: state for host, state in self._states.items() if state}

    def elapsed(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._begun

    def line(self) -> str:
        """Such as `waiting for 2 of 8 peers: worker-5 (no DNS), worker-6 (refused) 12s/600s`."""
        missing = self.missing()
        named = ", ".join(f"{host} ({state})" for host, state in list(missing.items())[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        count = f"{len(missing)} of {len(self._states)} {self._what}"
        return f"waiting for {count}: {named}{more} {self.elapsed():.0f}s/{self._limit:.0f}s"

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
