"""Whether the job has stalled: no rank of any node has printed anything for a long time."""

from __future__ import annotations

from collections.abc import Callable

from entrypoint.errors import RetryError
from entrypoint.job import messages
from entrypoint.job.outbox import Outbox
from entrypoint.job.state import JobState
from entrypoint.model import Outcome
from entrypoint.text import duration

_SHOWN = 15.0  # seconds for every node to show its stacks


class StallDetector:
    """Asks its own node now and then; the others report their idle seconds with each heartbeat."""

    def __init__(self, state: JobState, outbox: Outbox, decide: Callable[[Outcome], None]) -> None:
        self._state = state
        self._machine = state.scheduler
        self._me = state.me
        self._talk = outbox
        self._decide = decide
        self._limit = 60 * state.spec.stall.minutes
        self._stops = state.spec.stall.action == "stop"
        self._idle: dict[int, float] = {}  # node -> idle seconds, as it last reported
        self._warned = False

    def begin(self) -> None:
        """Ranks run from now on."""
        if self._limit:
            self._machine.after(min(self._limit / 4, 10.0), self._look)

    def _look(self) -> None:
        if self._state.outcome is None:
            self._talk.tell(self._me, messages.Ping(0))
            self.begin()

    def heard(self, node: int, idle: float) -> None:
        """Show every rank's stack once none has printed for the limit; say no more until one
        does."""
        self._idle[node] = idle
        if node != self._me or not self._limit or self._state.outcome is not None:
            return
        idle = min(self._idle.values())
        if idle < self._limit / 2:  # half: reports of nodes are a little old
            self._warned = False
        elif idle >= self._limit and not self._warned:
            self._warned = True
            reason = f"no rank has printed anything for {duration(idle)}"
            self._machine.log(f"EP610 {reason}; this is what they do:")
            self._talk.forget(answer=messages.StacksShown)
            self._talk.tell_all(messages.Stacks())
            self._talk.expect(messages.StacksShown, _SHOWN, lambda: self._shown(reason))

    def lose(self, node: int) -> None:
        """What it reported last counts no longer."""
        self._idle.pop(node, None)

    def _shown(self, reason: str) -> None:
        if self._stops:
            self._decide(RetryError(f"EP610 the job stalled: {reason}").outcome)
