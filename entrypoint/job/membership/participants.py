"""The nodes of an attempt that has started: whose end is awaited, whose end counts, who may go and
who may come."""

from __future__ import annotations

import math
from collections.abc import Sequence

from entrypoint.base.model import NodeReport, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.text import count
from entrypoint.base.values import frozen, replace
from entrypoint.job.failure import TERMINATED, left, lost, unhealthy
from entrypoint.job.membership.quorum import Refuse
from entrypoint.job.membership.roster import Roster
from entrypoint.job.messages import Met
from entrypoint.job.state import JobState

# Seconds of an attempt: a node that leaves in them again and again has failed.
_EARLY = 60.0
# In these phases, all nodes that are there are needed, spares too.
_NEEDED = (Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)


@frozen
class GoOn:
    """The attempt goes on without a node, with so many."""

    left: int


@frozen
class TakeIn:
    """A node that comes late is one of the others; `words` say as what."""

    words: str


class Participants:
    """The nodes that take part: every node of the job, none of which may be lost."""

    # Whether their launchers meet.
    meets = False
    # Whether a program has failed.
    _has_failed = False
    # When (seconds) programs started.
    _began = -math.inf

    def __init__(self, state: JobState, roster: Roster) -> None:
        self._state = state
        self._roster = roster
        # Nodes whose end is awaited.
        self.awaited: set[int] = set()
        self._least = state.plan.launch.min_nodes or 0
        # Nodes whose launchers have met.
        self._met: set[int] = set()

    # -- what happens

    def start(self, places: Sequence[int] | None, now: float) -> None:
        """Programs start at `now` (seconds). `places`: those whose end is the job's; None: all that
        are there."""
        self._began = now
        roster = self._roster
        nodes = roster.working if places is None else [roster.team.nodes[it] for it in places]
        # Without a roll call, other nodes do not report.
        self.awaited = set(nodes) if self._state.peers else {self._state.me}

    def meet(self, node: int, message: Met) -> None:
        """The launcher of this node has met the others."""
        self._met.add(node)

    def ended(self, node: int) -> None:
        """The programs of this node have ended."""
        self.awaited.discard(node)

    def failed(self) -> None:
        """A program has failed."""
        self._has_failed = True

    def lose(self, node: int, outcome: Outcome, is_own: bool, now: float) -> GoOn | Outcome:
        """A node is lost after the roll call. Return the outcome if the attempt ends by that.
        `is_own`: this node was suspended, which is not held against the other."""
        self._roster.lose(node, "" if is_own else outcome.reason, now)
        return self.leave(node) if self._can_do_without(node) else outcome

    def leave(self, node: int) -> GoOn:
        """A node is gone, and the others go on."""
        self.ended(node)
        del self._state.peers[node]
        return GoOn(self._state.topology.working)

    def depart(self, node: int, now: float) -> Outcome:
        """A node leaves. Return the attempt's outcome: a failure if the node leaves one attempt
        after the other, each soon after the start."""
        roster, name = self._roster, self._state.topology.name(node)
        is_early, again = now - self._began < _EARLY, roster.team.left.get(node, False)
        why = "it was told to stop soon after the start, again"
        outcome = lost(name, why) if is_early and again else left(name)
        roster.depart(node, outcome.reason, is_early)
        return outcome

    def arrive(self, node: int, report: NodeReport) -> TakeIn | Refuse | None:
        """A node answers after the roll call."""
        return None

    def fail_late(self, node: int, problem: str) -> Outcome | None:
        """A node has not passed its gate, which was not awaited, and starts nothing."""
        return None

    def conclude(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the attempt with the nodes that were replaced."""
        return outcome

    # -- what follows

    def needs(self, node: int) -> bool:
        """Return whether the job needs this node now."""
        return True

    def may_leave(self, status: int) -> bool:
        """Return whether the job goes on in another attempt without a node that was told to stop by
        the signal of this status."""
        state, restarts = self._state, self._state.spec.restarts
        is_followed = (restarts.most or self._least) and state.history.leaves < restarts.leaves
        return bool(is_followed) and status == TERMINATED and not state.stop

    def is_short(self) -> bool:
        """Return whether fewer nodes have met than the job needs."""
        return len(self._met) < self._least

    def counts(self, node: int) -> bool:
        """Return whether this node's end is a part of the job's."""
        return True

    def ends_with(self, node: int) -> bool:
        """Return whether a success is none if this node is lost before it is told."""
        return not self.meets and self._roster.works(node)

    def late(self) -> set[int]:
        """The nodes that still run and do not count: the others may have ended before they could
        meet them."""
        return {node for node in self.awaited if not self.counts(node)}

    def is_over(self) -> bool:
        """Return whether all that count have ended."""
        return not any(map(self.counts, self.awaited))

    def _can_do_without(self, node: int) -> bool:
        """Return whether the others go on if this node is lost."""
        return not self.needs(node)

    def can_turn_away(self, node: int) -> bool:
        """Return whether the others go on if this node has failed, or was told to stop."""
        return not self.needs(node)


class SpareParticipants(Participants):
    """The job goes on without a spare, and has one for each node of its team."""

    def needs(self, node: int) -> bool:
        """A spare of a job that starts or runs may go."""
        state = self._state
        is_needed = state.phase in _NEEDED or state.outcome is not None
        is_asked = state.phase is Phase.INQUIRY and node in self._roster.asked
        return is_needed or is_asked or self._roster.works(node)

    def arrive(self, node: int, report: NodeReport) -> TakeIn | None:
        if self.needs(node) and not self._state.has_started:
            return None
        not_ready = report.not_ready
        waits = f"cannot work: {not_ready.reason}" if not_ready else "waits as a spare"
        return TakeIn(f"is here, and {waits}")

    def fail_late(self, node: int, problem: str) -> Outcome | None:
        """If it works, a spare may take its place in the next attempt."""
        state, roster = self._state, self._roster
        is_last = state.history.attempt >= state.history.attempts(state.spec.restarts.most)
        is_now = not state.is_calling and state.outcome is None
        if is_last or not is_now or node == state.me or not roster.works(node):
            return None
        reason = unhealthy(problem).reason
        roster.replace_next(node, reason)
        return replace(lost(state.topology.name(node), reason), cause=None)

    def conclude(self, outcome: Outcome) -> Outcome:
        topology, roster = self._state.topology, self._roster
        roster.seat(roster.team.blame(topology, outcome))
        return replace(outcome, excluded=roster.team.excluded(topology))


class ElasticParticipants(Participants):
    """The nodes whose launchers have met, and those that may yet meet them."""

    meets = True
    # Whether enough had met before one of them was gone.
    _has_run = False

    def counts(self, node: int) -> bool:
        if not node or node in self._met:
            return True
        can_be_met = not self._has_run or 0 in self.awaited or self._has_failed
        return self.is_short() and can_be_met

    def _forget(self, node: int) -> None:
        self._has_run |= not self.is_short()
        self._met.discard(node)

    def leave(self, node: int) -> GoOn:
        self._forget(node)
        super().leave(node)
        has_started = self._state.has_started
        return GoOn(len(self.awaited) if has_started else 1 + len(self._state.peers))

    def _can_do_without(self, node: int) -> bool:
        """Return whether enough nodes are left that run, or are asked."""
        state = self._state
        if state.outcome is not None:
            return False
        if state.has_started:
            return not self.counts(node) or len(self.awaited - {node}) >= self._least
        inquiry = state.plan.inquiry
        is_asked_first = state.phase is Phase.INQUIRY and inquiry and not inquiry.instead
        return bool(is_asked_first) and len(self._roster.here - {node}) >= self._least

    def can_turn_away(self, node: int) -> bool:
        """Return whether it has not met the others, and they go on."""
        is_running = self._state.has_started and self._state.outcome is None
        return is_running and not self.counts(node)

    def arrive(self, node: int, report: NodeReport) -> TakeIn | Refuse | None:
        has_started = self._state.has_started
        if not has_started and not self._can_do_without(node):
            return None
        if report.not_ready:
            return Refuse(report.not_ready)
        self._forget(node)
        self.awaited.add(node)
        joins = f"joins: {count(len(self.awaited), 'node')}"
        return TakeIn(joins if has_started else "is here, too, and starts with the others")
