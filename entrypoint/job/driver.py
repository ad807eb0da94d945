"""Drives a node's machine: whoever has an event tells it here, and nothing stands between."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from entrypoint.base.errors import internal
from entrypoint.base.values import dataclass
from entrypoint.job import events

if TYPE_CHECKING:
    from entrypoint.job.leader import Leader
    from entrypoint.job.worker import Worker

_TIMER = events.TimerFired()


class Clock(Protocol):
    """The part of an event loop that a driver needs. Times are monotonic seconds."""

    def time(self) -> float:
        """Return the time."""

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Any:
        """Call this at that time, unless the returned handle is cancelled before."""

    def create_future(self) -> Any:
        """Return a future."""


@dataclass
class Driver:
    """Gives the machine one event after the other and has its actions performed, until `over`, a
    future of the outcome, is done.

    `saw` gets each event with its time, `failed` an error of the machine or of `perform`.
    """

    _machine: Leader | Worker
    _saw: Callable[[Any, float], None]
    _perform: Callable[[Any], None]
    _failed: Callable[[Exception], None]
    _clock: Clock
    _alarm: Any = None  # of the machine's next deadline
    _is_busy = False

    def __post_init__(self) -> None:
        self.over = self._clock.create_future()
        self._queue: list[Any] = []  # events that were told while another was handled

    def here(self, message: Any) -> None:
        """Tell a message of this node's own programs."""
        self.tell(events.MessageReceived(self._machine.state.me, message))

    def signalled(self, signum: int, again: bool) -> None:
        """Tell a signal that asks this node to stop."""
        self.tell(events.Signalled(signum, again))

    def tell(self, event: Any) -> None:
        """Give the machine an event and have its actions performed; one event after the other."""
        self._queue.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._queue and not self.over.done():
                self._step(self._queue.pop(0))
        finally:
            self._is_busy = False
        wake = math.inf if self.over.done() else self._machine.wake
        if self._alarm is not None and (event is _TIMER or self._alarm.when() != wake):
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None and wake < math.inf:
            self._alarm = self._clock.call_at(wake, self.tell, _TIMER)

    def _step(self, event: Any) -> None:
        now = self._clock.time()
        self._saw(event, now)
        try:
            wanted = self._machine.handle(event, now)
        except Exception as error:
            if self._machine.outcome is None:
                self._failed(error)
            elif not self.over.done():
                # A machine that has decided handles no failure: this node ends, and the others
                # see it as lost.
                self.over.set_result(internal(error))
            return
        for action in wanted:
            try:
                self._perform(action)
            except Exception as error:
                self._failed(error)
