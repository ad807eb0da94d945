"""The ranks of earlier attempts that may still run when the next one is to start.

Ranks of two attempts never run at the same time. A lost node may run its ranks until it says that
it does not, or by its own clock has noticed the loss and killed them. A call that finds nobody
there shows nothing: its sshd may be gone, or its network cut.

it answers the roll call    It runs nothing: a node ends an attempt before it boots the next. So
                            does a container that was started in its place; but not if the node was
                            lost in silence: the old one may only be cut off.
it says RUNS                It is awaited, whoever has started that.
anything else, or nothing   Its clock counts: from its loss, or, if another leader has started the
                            attempt, from the start of this one, when that was gone.

A leader learns from the first node that says RUNS, or knows of earlier attempts, that it has
replaced another one. If a node has lost that one in silence, it may only be cut off, and run its
own ranks: its clock counts from then. Without any such answer the attempt is the first, and waits
for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base import heartbeat
from entrypoint.base.text import some
from entrypoint.job.state import JobState
from entrypoint.job.waits import KILL_MARGIN

_SHORT = 2.0  # seconds for which nobody is told that the start waits
_NAMED = 8  # nodes named in one line


class EarlierAttempts:
    """The nodes that may run something of an earlier attempt.

    may_run: Until when (seconds) by the clock of each, and whether it was silent when it was lost.
    """

    def __init__(self, state: JobState, may_run: Mapping[int, tuple[float, bool]]) -> None:
        self._state = state
        self.may_run = dict(may_run)

    @property
    def has_run(self) -> bool:
        """Return whether an attempt has started, as far as the nodes know that are there."""
        state = self._state
        return state.has_started or state.history.attempt > 1 or bool(self.may_run)

    def clock(self, now: float) -> float:
        """Return when a node whose leader is gone `now` has killed its ranks."""
        limits = self._state.spec.timeouts
        patience = heartbeat.patience(limits.heartbeat, len(self._state.topology.nodes))
        return now + patience + limits.grace + KILL_MARGIN

    def lose(self, node: int, now: float) -> None:
        """A node that works is lost."""
        state = self._state
        is_silent = now - state.peers[node].heard > state.spec.timeouts.heartbeat
        self.may_run[node] = self.clock(now), is_silent

    def hear(self, gone: float, old: float = 0.0) -> None:
        """A node knows of an attempt before this one: if this leader has not led it, another has,
        which was gone by then. `old`: until when it may run ranks itself, if it is only cut off."""
        state, may_run = self._state, self.may_run
        if not state.is_calling or state.history.attempt > 1:
            return
        if not may_run:
            until = self.clock(gone)
            may_run |= dict.fromkeys(range(len(state.topology.nodes)), (until, False))
            may_run[state.me] = 0.0, False
        may_run[state.me] = max(may_run[state.me], (old, False))

    def runs_until(self, now: float) -> tuple[float, str]:
        """Return until when nodes may run something; and that in words, if it is long."""
        ends = {
            node: until
            for node, (until, is_silent) in self.may_run.items()
            if until > now and not self._has_ended(node, is_silent)
        }
        until = max(ends.values(), default=now)
        if until - now <= _SHORT:
            return until, ""
        names = some([self._state.topology.name(node) for node in ends], _NAMED)
        return until, (
            f"the start waits for {until - now:.0f}s at most: ranks of the last attempt may run on"
            f" {names} until then"
        )

    def _has_ended(self, node: int, is_silent: bool) -> bool:
        """Return whether a node has answered that nothing runs there. A new container in the place
        of one that was silent knows nothing of that."""
        said = self._state.reported.get(node)
        return said is not None and (not is_silent or said.attempt >= self._state.history.attempt)
