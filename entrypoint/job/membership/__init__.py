"""With whom an attempt starts, and with whom it goes on. Pure: the leader asks here, and acts.

The team
    The nodes that work, by their places in the job. In a job with spares they are the first ones at
    first, and the others wait. Place 0 is always the leader's: the other nodes are called from
    there. Without spares all nodes are the team; an elastic job runs with those of them that are
    there, if these are at least `nodes.min`.

Before the start: `decide`, after every answer and loss, and at the time that it names itself
    Refuse   a stop, once those that were there when the last attempt ended have heard of it, or had
             their time; a node that cannot be of this job; too few nodes when the time is over.
    Wait     for a node that is missing, for the result of a gate, or for the end of what a lost
             node may still run. Gates have limits of their own, beyond that of the roll call.
    Go       all are there; or enough, and the others had their time. `choose` then has the team.

After the start, each policy has its own answer

                            Fixed               Spares                    Elastic
    a node is lost          End                 End; it is replaced       GoOn if enough are left,
                                                in the next attempt       else End
    a spare is lost, fails  -                   GoOn                      -
    a node comes late       -                   TakeIn: it waits          TakeIn: it joins
    a node is not healthy   End                 a spare works instead     End
    a node is to blame      nothing             after FAULTS times it     nothing
                                                never works again

    While `check` or `netcheck` asks all nodes, a node that is asked is one that works.

Who comes back
    A node that was replaced waits as a spare, and works again only if no other node is left; so a
    job with spares goes on wherever the same job without them would. A lost node's place is filled
    only when nothing of the last attempt can run there: its new answer shows that, a call that
    finds nobody there, or the time that it has to notice the loss and end its ranks.

Whose end counts
    All nodes' that work. A node of an elastic job counts once its launcher has met the others;
    worker-0, where they meet, always does. Until enough have met, every node counts: whatever fails
    before the job runs is the job's failure. If one of these is lost, and worker-0's programs have
    ended well, nobody can be met any more.
"""

from __future__ import annotations

from entrypoint.job.failure import lost, not_ready, unhealthy
from entrypoint.job.membership.common import End, Go, GoOn, Membership, Refuse, TakeIn
from entrypoint.job.membership.team import Team
from entrypoint.job.state import JobState
from entrypoint.model import Members, NodeReport, Outcome
from entrypoint.phases import Phase
from entrypoint.text import count
from entrypoint.values import replace

# In these phases, all nodes that are there are needed, spares too.
_NEEDED = (Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)


class Fixed(Membership):
    """All nodes work, and the job needs each of them."""


class Spares(Membership):
    """Some nodes wait, to take the place of one that is lost."""

    is_open = True
    unknown = "this worker-0 is new: nodes that were replaced in earlier attempts may work again"

    def _ready(self) -> set[int]:
        """Return this node and those that have answered and can take part."""
        reports = self._state.peers.reports().items()
        ready = {node for node, report in reports if not report.not_ready}
        return {self._state.me, *ready} - self._unhealthy.keys()

    def is_expected(self, node: int) -> bool:
        """One that was lost in an earlier attempt, and has been replaced, may be another job's by
        now."""
        return self.team.expected is None or node in self.team.expected

    def _has_enough(self) -> bool:
        return 1 + len(self._state.peers) >= self._topology.working

    def _is_enough(self) -> bool:
        # Who is ready is found only once they are many enough.
        return self._has_enough() and self.team.is_enough(self._ready())

    def _awaits_others(self) -> bool:
        return self.team.awaits(self._topology, self.here, self._ready())

    def _awaits_gates(self) -> bool:
        """Of the nodes that are to work, as far as is known."""
        able = list(filter(self.team.can_work, self._ready())) if self._gates else []
        if len(able) < len(self.team.nodes):
            return bool(self._gates)
        return not self._gates.keys().isdisjoint(self.team.best(able))

    def _out_of_time(self) -> Go | Refuse:
        # So many are there, and some of them cannot work: that is why the job does not start.
        return Go() if self.has_name and self._has_enough() else super()._out_of_time()

    def choose(self, members: Members) -> Go | Refuse:
        """Have spares work instead of nodes that cannot."""
        topology, before = self._topology, self.team
        unfit = [it for it in members.reports if it.not_ready and it.rank in self.here]
        unready = {it.rank: it.not_ready.reason for it in unfit if it.not_ready}
        ready = self.here - unready.keys()
        if unfit and not before.is_enough(ready):  # their reasons are the job's
            refusal = not_ready(topology, Members(tuple(unfit)))
            assert refusal
            return Refuse(refusal)
        self._set_team(team := before.choose(topology, ready, unready))
        lines = [
            f"EP623 {topology.name(new)} takes the place of {topology.name(old)}:"
            f" {team.reasons[old]}"
            for old, new in zip(before.nodes, team.nodes, strict=True)
            if old != new
        ]
        others = sorted(unready.keys() - team.reasons.keys())
        return Go([*lines, *(f"{topology.name(it)} cannot work: {unready[it]}" for it in others)])

    def needs(self, node: int) -> bool:
        """A spare of a job that starts or runs may go."""
        state = self._state
        is_needed = state.phase in _NEEDED or state.outcome is not None
        is_asked = state.phase is Phase.INQUIRY and node in self.asked
        return is_needed or is_asked or self.works(node)

    def can_turn_away(self, node: int, is_stop: bool) -> bool:
        return not self.needs(node)

    def arrive(self, node: int, report: NodeReport) -> TakeIn | None:
        if self.needs(node) and not self._state.has_started:
            return None
        not_ready = report.not_ready
        waits = f"cannot work: {not_ready.reason}" if not_ready else "waits as a spare"
        return TakeIn(f"is here, and {waits}", self._state.has_started)

    def fails_late(self, node: int, problem: str) -> End | None:
        """A spare may take its place in the next attempt."""
        has_next = self._state.history.attempt <= self._state.spec.restarts.most
        if not has_next or node == self._state.me or self._state.outcome:
            return None
        reason = unhealthy(problem).reason
        self.replace_next(node, reason)
        return End(replace(lost(self._topology.name(node), reason), cause=None))

    def replace_next(self, node: int, why: str) -> None:
        self._set_team(self.team.lose(node, why))

    def fault(self, node: int, why: str) -> None:
        self._set_team(self.team.fault(node, why))

    def conclude(self, outcome: Outcome) -> Outcome:
        self._set_team(self.team.blame(self._topology, outcome))
        return replace(outcome, excluded=self.team.excluded(self._topology))


class Elastic(Membership):
    """The job starts and goes on with enough nodes; others come and go."""

    is_open = True

    def __init__(self, state: JobState, team: Team | None = None) -> None:
        super().__init__(state, team)
        self._least = state.plan.launch.start.min_nodes or 0
        # Nodes whose launchers have met.
        self._met: set[int] = set()
        # Whether enough had met before one of them was gone.
        self._has_run = False

    def _is_enough(self) -> bool:
        return 1 + len(self._state.peers) >= self._least

    def meet(self, node: int) -> None:
        self._met.add(node)

    def counts(self, node: int) -> bool:
        if not node or node in self._met:
            return True
        can_be_met = not self._has_run or 0 in self.awaited or self.has_failed
        return self.is_short() and can_be_met

    def is_short(self) -> bool:
        return len(self._met) < self._least

    def _forget(self, node: int) -> None:
        self._has_run |= not self.is_short()
        self._met.discard(node)

    def leave(self, node: int) -> GoOn:
        self._forget(node)
        super().leave(node)
        has_started = self._state.has_started
        return GoOn(len(self.awaited) if has_started else 1 + len(self._state.peers))

    def _can_do_without(self, node: int) -> bool:
        """Whether enough nodes are left that run, or are asked."""
        state = self._state
        if state.outcome is not None:
            return False
        if state.has_started:
            return not self.counts(node) or len(self.awaited - {node}) >= self._least
        inquiry = state.plan.inquiry
        is_asked_first = state.phase is Phase.INQUIRY and inquiry and not inquiry.instead
        return bool(is_asked_first) and len(self.here - {node}) >= self._least

    def can_turn_away(self, node: int, is_stop: bool) -> bool:
        """Whether it has not met the others, and they go on."""
        is_running = self._state.has_started and self._state.outcome is None
        return not is_stop and is_running and not self.counts(node)

    def arrive(self, node: int, report: NodeReport) -> TakeIn | Refuse | None:
        has_started = self._state.has_started
        if not has_started and not self._can_do_without(node):
            return None
        if report.not_ready:
            return Refuse(report.not_ready)
        if not has_started:
            return TakeIn("is here, too, and starts with the others", False)
        self._forget(node)
        self.awaited.add(node)
        return TakeIn(f"joins: {count(len(self.awaited), 'node')}", True)


def of_job(state: JobState, team: Team | None = None) -> Membership:
    """Return the membership of an attempt of this job. `team`: as the last attempt left it."""
    if state.topology.spares:
        return Spares(state, team)
    return (Fixed if state.plan.launch.start.min_nodes is None else Elastic)(state, team)
