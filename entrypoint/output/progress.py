"""Messages while waiting: one line when something changes, and a summary every ten seconds."""

from __future__ import annotations

import asyncio
import time

from entrypoint.base.text import Log, named
from entrypoint.base.values import dataclass

_SUMMARY = 10.0  # seconds between two summaries
_DELAY = 1.0  # seconds for which changes are collected
_LIVE = 1.0  # seconds between two updates of the live line
_NAMED = 8  # missing ones named in one line; the last message names all


@dataclass
class Waiting:
    """Logs what is missing and why; peers among it are counted.

    One per node, since a terminal has one live line.
    """

    log: Log
    limit: float  # seconds
    live: Log | None = None  # shows a text as a terminal's last line, instead of summaries (log.py)
    _closed = False
    _pending: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._states: dict[str, str] = {}  # what -> why it is missing; "" once it is there
        self._peers: set[str] = set()  # those of them that are peers
        self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            _LIVE if self.live else _SUMMARY, self._summary
        )

    def _summary(self) -> None:
        """Show a line such as `6 of 8 nodes are here, 12s of 600s | waiting for worker-5 (no DNS)`;
        without a live line, log one."""
        if self.live:
            missing, peers = self._missing()
            nodes = len(self._peers) + 1
            here = f"{nodes - peers} of {nodes} nodes are here, " if self._peers else ""
            times = f"{self.elapsed():.0f}s of {self.limit:.0f}s"
            self.live(f"{here}{times} | waiting for {named(missing)}" if missing else "")
        else:
            self._tell()
        self._wait()

    def _missing(self) -> tuple[dict[str, str], int]:
        """Return what is missing and why, peers first, and how many of it are peers."""
        missing = [(what, why) for what, why in self._states.items() if why]
        missing.sort(key=lambda item: item[0] not in self._peers)
        return dict(missing), sum(what in self._peers for what, _ in missing)

    def _tell(self) -> None:
        """Log a line such as `waiting for 2 of 8 peers: worker-5 (no DNS), worker-6 (refused)
        12s/600s`."""
        self._pending = None
        missing, peers = self._missing()
        if missing:
            count = f"{peers} of {len(self._peers)} peers: " if peers else ""
            times = f"{self.elapsed():.0f}s/{self.limit:.0f}s"
            self.log(f"waiting for {count}{named(missing, _NAMED)} {times}")

    def update(self, what: str, state: str, is_peer: bool = False) -> None:
        """Note why it is missing ("" once it is there); all changes within a second make one
        line."""
        if self._states.get(what) != state and self._pending is None and not self._closed:
            self._pending = asyncio.get_running_loop().call_later(_DELAY, self._tell)
        self._states[what] = state
        if is_peer:
            self._peers.add(what)

    def elapsed(self) -> float:
        """Return the seconds since the wait began."""
        return time.monotonic() - self._begun

    def close(self) -> None:
        self._closed = True
        if self.live:
            self.live("")
        self._timer.cancel()
        if self._pending is not None:
            self._pending.cancel()
