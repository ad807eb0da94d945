"""The detector of stalls: finds whether the job has stalled, and which rank the others wait for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrypoint.base.errors import RetryError
from entrypoint.base.text import duration
from entrypoint.job import actions, messages
from entrypoint.job.outbox import Part, Shared
from entrypoint.job.stacks import ProcessStack
from entrypoint.job.stall.steps import StepTable

if TYPE_CHECKING:
    from entrypoint.job.stall.judge import HangReport

_SHOWN = 15.0  # seconds for every node to show its stacks
_SOON = 0.5  # minimum seconds between two checks
_WHOLE = 5  # times `stall.minutes` after which a job ends in which no rank differs from the others


class StallDetector(Part):
    """Asks its own node now and then; the others report their idle seconds with each heartbeat, and
    all of them again before anything is logged."""

    _began = 0.0  # when the programs were started
    _grew = -math.inf  # when what `restarts.progress` names last changed
    _excused = -math.inf  # until when silence does not count, before the first step
    _asks = False  # whether all nodes are asked again

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._me = self._state.me
        self._limit = 60 * self._spec.stall.minutes
        self._by_line = self._spec.stall.line is not None
        self._stops = self._spec.stall.action == "stop"
        self._idle: dict[int, float] = {}  # node -> idle seconds, as it last reported
        self._stacks: dict[int, tuple[ProcessStack, ...]] = {}
        self._shows: list[Callable[[HangReport], None]] = []  # who waits for what ranks do
        self._next = self._limit  # idle seconds after which the stacks are shown
        self.steps = StepTable()

    def begin(self) -> None:
        """Ranks run from now on."""
        self._began = self._scheduler.now
        if (longer := 60 * self._spec.stall.first - self._limit) > 0:
            self._excused = self._began + longer
        self._plan_look()

    def _plan_look(self) -> None:
        if self._limit:
            left = self._next - self._seconds()
            self._scheduler.after(min(self._limit / 4, 10.0, max(_SOON, left)), self._look)
        elif self._by_line:  # steps are wanted, nothing is done about a stall
            self._scheduler.after(10.0, self._look)

    def _look(self) -> None:
        if self._state.outcome is None:
            self._outbox.tell(self._me, messages.Ping(0))
            self._plan_look()

    def _silence(self) -> float:
        """Return for how long the job has made no progress."""
        now = self._scheduler.now
        by_line, idle = self._by_line, min(self._idle.values(), default=0.0)
        return min(self.steps.idle(now, self._began) if by_line else idle, now - self._grew)

    def _seconds(self) -> float:
        """Return how much of that counts."""
        return min(self._silence(), self._scheduler.now - self._excused)

    def grew(self) -> None:
        """A checkpoint grows: the job makes progress, though no rank prints."""
        self._grew = self._scheduler.now

    def heard(self, node: int, idle: float) -> None:
        """A node has answered a ping. Ask all once the job seems to have stalled: their last
        reports are a little old."""
        self._idle[node] = idle
        if node != self._me or not self._limit or self._state.outcome is not None:
            return
        seconds = self._seconds()
        if seconds < self._limit / 2:
            self._next = self._limit
        elif seconds >= self._next and not self._asks:
            self._asks = True
            self._outbox.ask_all_they_know(self._confirm)

    def take(self, node: int, message: Any) -> None:
        """A node reports the steps or the stacks of its ranks."""
        if isinstance(message, messages.Steps):
            self.steps.take(node, message.ranks, self._scheduler.now)
            self._excused = -math.inf if message.ranks else self._excused
        elif self._outbox.is_open(messages.RankStacks):
            self._stacks[node] = message.stacks
            self._outbox.note(node, messages.RankStacks)

    def lose(self, node: int) -> None:
        """Forget what a lost node reported last."""
        self._idle.pop(node, None)
        self.steps.take(node, (), self._scheduler.now)

    def _confirm(self) -> None:
        """All nodes have reported what they know: show the stacks if the job has stalled. Where it
        may end, show them again later; else log no stall until a rank prints."""
        self._asks = False
        if self._state.outcome is not None or self._seconds() < self._next:
            return
        self._next += self._limit if self._stops else math.inf
        reason = self._reason()
        self._scheduler.log(f"EP610 {reason}; this is what they do:")
        self.show(lambda report: self._shown(reason, report))

    def _reason(self) -> str:
        if not self._by_line:
            path = self._spec.restarts.progress
            grown = f", and {path} has not grown," if path else ""
            return f"no rank has printed anything{grown} for {duration(self._silence())}"
        host = self._topology.name
        return self.steps.words(self._scheduler.now, self._limit, self._began, host)

    def show(self, then: Callable[[HangReport], None]) -> None:
        """Have all nodes read the stacks of their ranks, and `then` called with what they say. One
        reading serves all who ask meanwhile."""
        self._shows.append(then)
        if len(self._shows) == 1:
            self._stacks = {}
            self._outbox.forget(answer=messages.RankStacks)
            self._outbox.expect(messages.RankStacks, _SHOWN, self._judge)
            self._outbox.tell_all(messages.Stacks())

    def _judge(self) -> None:
        from entrypoint.job.stall.judge import judge  # most jobs never hang

        asked = {self._me, *self._peers.alive()}
        silent = sorted(asked - self._stacks.keys())
        report = judge(self._stacks, self._topology.name, silent)
        shows = self._shows
        self._shows = []
        for then in shows:
            then(report)

    def demand(self) -> None:
        """Show what the ranks do to a user who asks for it."""
        why = "no rank runs yet" if not self._state.has_started else ""
        if self._state.outcome is not None:
            why = "the job ends"
        if why:
            self._scheduler.act(actions.ShowStacks((), why))
        else:
            self.show(lambda report: self._scheduler.act(actions.ShowStacks(report.lines)))

    def _shown(self, reason: str, report: HangReport) -> None:
        for line in report.lines:
            self._scheduler.log(line)
        seconds = self._seconds()
        if not self._stops or self._state.outcome is not None or seconds < self._limit:
            return
        nodes = report.nodes or {node for node, _ in self.steps.behind(self._limit)}
        if nodes or seconds >= _WHOLE * self._limit:
            who = f"; {report.blamed}" if report.blamed else ""
            outcome = RetryError(f"EP610 the job stalled: {reason}{who}").outcome
            if len(nodes) == 1:
                self._membership.roster.fault(min(nodes), outcome.reason)
            self._decide(outcome)
        else:
            most = duration(_WHOLE * self._limit)
            self._scheduler.log(f"the job continues, since no rank differs; it ends after {most}")
