"""The decision on whether enough nodes are there to start an attempt: who is unreachable, whose
gate has not ended, and until when any of them is awaited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from entrypoint.base.errors import UnavailableError
from entrypoint.base.model import Members, Node, NodeReport, Outcome
from entrypoint.base.text import named
from entrypoint.base.values import frozen
from entrypoint.job.failure import not_ready
from entrypoint.job.membership.roster import Roster
from entrypoint.job.messages import RUNS
from entrypoint.job.state import JobState
from entrypoint.job.waits import rejoin

GATE_MARGIN = 10.0  # seconds after a gate's own limits until its result is not awaited any more
_LOOK_AGAIN = 2.0  # seconds for a node that is lost after the time to come back


@frozen
class Wait:
    """Ask again when something changes, and at this time (seconds). `why`: to be logged once."""

    until: float
    why: str = ""


@frozen
class Go:
    """The attempt starts. `lines` are to be logged."""

    lines: Sequence[str] = ()


@frozen
class Refuse:
    """Nothing starts: the attempt, or this node's part in it, ends with this outcome."""

    outcome: Outcome


class Quorum:
    """The nodes that an attempt starts with: all of the job, or the minimum number of them."""

    # What a leader that has replaced a lost one does not know of earlier attempts.
    unknown = ""
    # Whether this node's own name has an address.
    _has_name = False
    # When (seconds) the roll call began, is over, and starts without those that are missing.
    _began = math.inf
    _limit = math.inf
    _goes_at = math.inf

    def __init__(self, state: JobState, roster: Roster) -> None:
        self._state = state
        self._topology = state.topology
        self._roster = roster
        # Peers that are not there, and why; "" once they are.
        self._missing: dict[str, str] = {}
        # Seconds for which the result of a gate is awaited.
        self.gate_limit = state.spec.gate.limit + GATE_MARGIN
        # Nodes whose gate has not ended, and until when (seconds) its result is awaited, the oldest
        # first.
        self._gates: dict[int, float] = {}

    # -- what happens

    def begin(self, own: NodeReport, now: float) -> None:
        """The roll call begins. `own`: this node's report."""
        self._began = now
        self._limit = now + self._state.spec.timeouts.peers
        self.answer(own, now)

    def named(self, has_name: bool) -> None:
        """This node's own name has an address, or still none."""
        self._has_name |= has_name

    def answer(self, report: NodeReport, now: float) -> None:
        """A node has answered, this one included; what it said before is void."""
        self._roster.report(report)
        self._gates.pop(report.rank, None)
        if report.history.attempt > 1:
            earlier = self._roster.earlier
            earlier.hear(self._began, earlier.clock(now - report.leader_lost))
        if report.checking and self._state.is_calling:
            self._gates[report.rank] = now + self.gate_limit

    def unreachable(self, node: Node, why: str) -> None:
        """A peer is not there."""
        self._missing[node.name] = why
        self._gates.pop(node.rank, None)
        if why == RUNS:
            self._roster.earlier.hear(self._began)

    def reached(self, node: Node) -> None:
        """A peer is there, or is not awaited any more."""
        self._missing[node.name] = ""

    def checked(self, node: int, problem: str) -> bool:
        """A node's gate has ended. Return whether its result was awaited."""
        self._roster.check(node, problem)
        return self._gates.pop(node, None) is not None

    def overdue(self, now: float) -> list[int]:
        """Await the gates no longer whose time is over. Return their nodes."""
        nodes = list(takewhile(lambda node: self._gates[node] <= now, self._gates))
        for node in nodes:
            del self._gates[node]
        return nodes

    # -- what follows

    def expects(self, node: int) -> bool:
        """Return whether the job needs this node as far as is known."""
        return True

    def awaits_gate(self, node: int) -> bool:
        """Return whether the gate of this node has not ended."""
        return node in self._gates

    def decide(self, now: float) -> Wait | Go | Refuse:
        """Return whether the attempt starts now."""
        nodes, stop, team = len(self._topology.nodes), self._state.stop, self._roster.team
        if stop:
            until = self._began + rejoin(nodes)
            are_here = self._roster.here.issuperset(team.expected)
            return Refuse(stop) if are_here or now >= until else Wait(until)
        if now >= self._limit:  # nobody has more time to join
            self._goes_at = min(self._goes_at, now)
        begins = self._begins(nodes - 1 - len(self._state.peers), now)
        gate = next(iter(self._gates.values()), math.inf)
        if now < min(begins, self._limit):
            return Wait(min(begins, self._limit, gate))
        if begins == math.inf:
            return self._out_of_time()
        until, why = self._roster.earlier.runs_until(now)
        if until > now or self._awaits_gates():
            if now >= self._limit:  # these have limits of their own
                self._limit = now + _LOOK_AGAIN
            return Wait(min(until if until > now else math.inf, self._limit, gate), why)
        if RUNS in self._missing.values():  # past that time: under another leader, which lives
            return Wait(self._limit) if now < self._limit else Quorum._out_of_time(self)
        if begins != self._goes_at:
            return Go()
        return Go((f"EP507 the job starts without {self.words()}; each may join later",))

    def _begins(self, absent: int, now: float) -> float:
        """Return when the attempt starts; infinity: not with those that are there."""
        if not self._has_name or (absent and not self._is_enough()):
            return math.inf
        if not absent or not self._awaits_others():
            return 0.0
        self._goes_at = min(self._goes_at, now + self._state.spec.timeouts.join)
        return self._goes_at

    def _is_enough(self) -> bool:
        """Return whether the job can start without those that have not answered."""
        least = self._state.plan.launch.min_nodes
        return least is not None and 1 + len(self._state.peers) >= least

    def _awaits_others(self) -> bool:
        """Return whether those that are missing have time to join, if the others are enough."""
        return not self._roster.absent().issubset(self._roster.team.left)

    def _awaits_gates(self) -> bool:
        """Return whether the result of a gate is awaited before the start."""
        return bool(self._gates)

    def words(self, but: str = "") -> str:
        """All that are missing, and why."""
        return named({host: why for host, why in self._missing.items() if why and host != but})

    def _out_of_time(self) -> Go | Refuse:
        """Return what follows if the roll call has not found enough nodes in time."""
        spec = self._state.spec
        limit = f"{spec.timeouts.peers:.0f}s"
        if not self._has_name:
            host = self._topology.this.host
            what = f"EP502 this node's own name has no address after {limit}"
            return Refuse(UnavailableError(what, host, "make sure that DNS knows it").outcome)
        number = sum(bool(why) for why in self._missing.values())
        what = f"EP500 {number} of {len(self._topology.peers)} peers did not answer within {limit}"
        do = (
            f"make sure that they run, or wait longer: {spec.setting('timeouts.peers')}, in seconds"
        )
        # Those that are there and cannot take part would end the job, too.
        unfit = not_ready(self._topology, self._roster.members())
        also = f"; {unfit.reason}" if unfit else ""
        return Refuse(UnavailableError(what, f"{self.words()}{also}", do).outcome)

    def choose(self, members: Members) -> Go | Refuse:
        """Choose the team, once enough nodes have answered. `members`: what they report.

        Raises HostError if too few nodes can work.
        """
        refusal = not_ready(self._topology, members)
        return Refuse(refusal) if refusal else Go()


class SpareQuorum(Quorum):
    """As many nodes as work, and can."""

    unknown = "this worker-0 is new: nodes that were replaced in earlier attempts may work again"

    def _ready(self) -> set[int]:
        """Return this node, whose place no other can take, and the others that can take part."""
        reports = self._state.peers.reports().items()
        return {self._state.me} | {node for node, report in reports if not report.not_ready}

    def expects(self, node: int) -> bool:
        """One that was lost in an earlier attempt, and has been replaced, may be another job's by
        now."""
        return node in self._roster.team.expected

    def _has_enough(self) -> bool:
        return 1 + len(self._state.peers) >= self._topology.working

    def _is_enough(self) -> bool:
        # Who is ready is found only once they are many enough.
        return self._has_enough() and self._roster.team.is_enough(self._ready())

    def _awaits_others(self) -> bool:
        return self._roster.team.awaits(self._topology, self._roster.here, self._ready())

    def _awaits_gates(self) -> bool:
        """Of the nodes that are to work, as far as is known."""
        team = self._roster.team
        able = list(filter(team.can_work, self._ready())) if self._gates else []
        awaited = team.best(able) if len(able) >= len(team.nodes) else self._gates
        return not self._gates.keys().isdisjoint(awaited)

    def _out_of_time(self) -> Go | Refuse:
        # So many are there, and some of them cannot work: that is why the job does not start.
        return Go() if self._has_name and self._has_enough() else super()._out_of_time()

    def choose(self, members: Members) -> Go | Refuse:
        """Have spares work instead of nodes that cannot."""
        name, before, here = self._topology.name, self._roster.team, self._roster.here
        unfit = [it for it in members.reports if it.not_ready and it.rank in here]
        unready = {it.rank: it.not_ready.reason for it in unfit if it.not_ready}
        ready = here - unready.keys()
        if unfit and not before.is_enough(ready):  # their reasons are the job's
            return super().choose(Members(tuple(unfit)))
        team = before.choose(self._topology, ready, unready)
        self._roster.seat(team)
        lines = [
            f"EP623 {name(new)} takes the place of {name(old)}: {team.reasons[old]}"
            for old, new in zip(before.nodes, team.nodes, strict=True)
            if old != new
        ]
        others = sorted(unready.keys() - team.reasons.keys())
        return Go([*lines, *(f"{name(it)} cannot work: {unready[it]}" for it in others)])
