"""With whom an attempt starts, and with whom it goes on. Pure: the leader asks here, and acts.

Who works
    The team: the nodes that have a place in the job. Place 0 is always the leader's, since the
    other nodes are called from there. Without spares every node has a place; an elastic job
    (`nodes: 2:4`) runs with those that are there, if they are enough. With spares the first nodes
    work at first, and the others wait.

Who decides, and when
    The leader alone, by what this module answers. Before the start it asks `decide` after each
    answer and loss, and at the time that the last answer has named:

    Refuse   after a stop, once the nodes that were there at the end of the last attempt have heard
             of it or had their time; or if the time is over and too few nodes are there.
    Wait     for a node that is missing, for the result of a gate, or for the end of what a lost
             node may still run. Gates have limits of their own, beyond that of the roll call.
    Go       if all nodes are there; or enough, and the others had their time. `choose` then fills
             the places.

    After the start it asks for each event:

                            Fixed               Spares                    Elastic
    a node is lost          End                 End; a spare replaces it  GoOn if enough are left,
                                                in the next attempt       else End
    a spare is lost, fails  -                   GoOn                      -
    a node comes late       -                   TakeIn: it waits          TakeIn: it joins
    a node is not healthy   End                 a spare works instead     End
    a node is to blame      -                   after FAULTS times it     -
                                                never works again

    If `check` or `netcheck` asks the nodes first, a loss counts for each node that is asked.

Who comes back
    A node that was replaced waits as a spare, and works again only if no other node is left. So a
    job with spares goes on wherever the same job without them would. The next attempt starts when
    nothing of an earlier one can run any more: see `earlier.py`.

Whose end counts
    That of every node that works. A node of an elastic job counts once its launcher has met the
    others; worker-0, where they meet, always does. Until enough have met, every node counts:
    whatever fails before the job runs is the job's failure. If one of these is lost, and worker-0's
    programs have ended well, nobody can be met any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from entrypoint.base.errors import UnavailableError
from entrypoint.base.model import Members, Node, NodeReport, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.text import count, named
from entrypoint.base.values import dataclass, replace
from entrypoint.job.failure import lost, not_ready, unhealthy
from entrypoint.job.membership.earlier import EarlierAttempts
from entrypoint.job.membership.team import Team
from entrypoint.job.messages import RUNS, Met
from entrypoint.job.state import JobState
from entrypoint.job.waits import rejoin

GATE_MARGIN = 10.0  # seconds after a gate's own limits until its result is not awaited any more
_LOOK_AGAIN = 2.0  # seconds for a node that is lost after the time to come back
# In these phases, all nodes that are there are needed, spares too.
_NEEDED = (Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)


@dataclass(frozen=True)
class Wait:
    """Ask again when something changes, and at this time (seconds). `why`: to be said once."""

    until: float
    why: str = ""


@dataclass(frozen=True)
class Go:
    """The attempt starts. `lines` are to be logged."""

    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Refuse:
    """Nothing starts: the attempt, or this node's part in it, ends with this outcome."""

    outcome: Outcome


@dataclass(frozen=True)
class GoOn:
    """The attempt goes on without a node, with so many."""

    left: int


@dataclass(frozen=True)
class TakeIn:
    """A node that comes late is one of the others; `words` say as what."""

    words: str


@dataclass(frozen=True)
class End:
    """The attempt ends with this outcome."""

    outcome: Outcome


class Membership:
    """The nodes of one attempt, as its leader knows them, and what the three policies share."""

    # What a leader that has replaced a lost one does not know of earlier attempts.
    unknown = ""
    # Whether this node's own name has an address.
    has_name = False
    # When (seconds) the roll call began, is over, and starts without those that are missing.
    _began = math.inf
    _limit = math.inf
    _goes_at = math.inf
    # Nodes that are asked before the start.
    asked: frozenset[int] = frozenset()
    # Whether a program has failed.
    has_failed = False

    def __init__(self, state: JobState, team: Team | None = None) -> None:
        self._state = state
        self._topology = state.topology
        self.team = team or Team.planned(state.topology)
        state.stop = self.team.stop
        self._works = frozenset(self.team.nodes)
        self.earlier = EarlierAttempts(state, self.team.may_run)
        # This node's report.
        self.own = state.plan.members.reports[state.me]
        # Peers that are not there, and why; "" once they are.
        self.missing: dict[str, str] = {}
        # Seconds for which the result of a gate is awaited.
        self.gate_limit = state.spec.gate.limit + GATE_MARGIN
        # Nodes whose gate has not ended, and until when (seconds) its result is awaited, the oldest
        # first.
        self.gates: dict[int, float] = {}
        # Nodes whose end is awaited.
        self.awaited: set[int] = set()
        # Nodes that were lost after the roll call, and why; and who was there when the outcome was
        # known.
        self.losses: dict[int, str] = {}
        self._present: set[int] = set()

    def works(self, node: int) -> bool:
        """Whether this node works, and is no spare."""
        return node in self._works

    @property
    def here(self) -> set[int]:
        """This node and those that have answered."""
        return {self._state.me, *self._state.peers}

    @property
    def working(self) -> list[int]:
        """The nodes that are there and work, by their places."""
        here = self.here
        return [node for node in self.team.nodes if node in here]

    def absent(self) -> set[int]:
        """The nodes that may come later than the start."""
        all_nodes = range(len(self._topology.nodes) if self._state.plan.admits_late else 0)
        return set(all_nodes) - self.here

    def reports(self) -> dict[int, NodeReport]:
        """Return what the nodes that are there have answered."""
        return {self._state.me: self.own} | self._state.peers.reports()

    def members(self) -> Members:
        """Return what is known of all nodes."""
        reports = {it.rank: it for it in self._state.plan.members.reports} | self.reports()
        return Members(tuple(report for _, report in sorted(reports.items())))

    # -- before the start

    def begin(self, own: NodeReport, now: float) -> None:
        """The roll call begins. `own`: this node's report."""
        self.own = own
        self._began = self.earlier.gone = now
        self._limit = now + self._state.spec.timeouts.peers
        self.answer(own, now)

    def answer(self, report: NodeReport, now: float) -> None:
        """A node has answered, this one included; what it said before is void."""
        self.losses.pop(report.rank, None)
        self.gates.pop(report.rank, None)
        if report.attempt > 1:
            self.earlier.hear(self.earlier.clock(now - report.leader_lost))
        if report.checking and self._state.is_calling:
            self.gates[report.rank] = now + self.gate_limit

    def miss(self, node: Node, why: str) -> None:
        """Note why a peer is not there; "" once it is."""
        self.missing[node.name] = why
        if why:
            self.gates.pop(node.rank, None)
        if why == RUNS:
            self.earlier.hear()

    def is_expected(self, node: int) -> bool:
        """Whether the job needs this node as far as is known."""
        return True

    def checked(self, node: int, problem: str) -> bool:
        """A node's gate has ended. Return whether its result was awaited."""
        peer = self._state.peers.get(node)
        report = replace(peer.report if peer else self.own, checking=False)
        if problem:
            report = replace(report, not_ready=unhealthy(problem))
        if peer:
            peer.report = report
        else:
            self.own = report
        return self.gates.pop(node, None) is not None

    def overdue(self, now: float) -> list[int]:
        """Await the gates no longer whose time is over. Return their nodes."""
        nodes = list(takewhile(lambda node: self.gates[node] <= now, self.gates))
        for node in nodes:
            del self.gates[node]
        return nodes

    def decide(self, now: float) -> Wait | Go | Refuse:
        """Return whether the attempt starts now."""
        nodes, stop, expected = len(self._topology.nodes), self._state.stop, self.team.expected
        if stop:
            until = self._began + rejoin(nodes)
            are_here = self.here.issuperset(range(nodes) if expected is None else expected)
            return Refuse(stop) if are_here or now >= until else Wait(until)
        if now >= self._limit:  # nobody has more time to join
            self._goes_at = min(self._goes_at, now)
        begins = self._begins(nodes - 1 - len(self._state.peers), now)
        gate = next(iter(self.gates.values()), math.inf)
        if now < min(begins, self._limit):
            return Wait(min(begins, self._limit, gate))
        if begins == math.inf:
            return self._out_of_time()
        until, why = self.earlier.runs_until(now)
        if until > now or self._awaits_gates():
            if now >= self._limit:  # these have limits of their own
                self._limit = now + _LOOK_AGAIN
            return Wait(min(until if until > now else math.inf, self._limit, gate), why)
        if RUNS in self.missing.values():  # past that time: under another leader, which lives
            return Wait(self._limit) if now < self._limit else Membership._out_of_time(self)
        if begins != self._goes_at:
            return Go()
        return Go((f"EP507 the job starts without {self.words()}; each may join later",))

    def _begins(self, absent: int, now: float) -> float:
        """Return when the attempt starts; infinity: not with those that are there."""
        if not self.has_name or (absent and not self._is_enough()):
            return math.inf
        if not absent or not self._awaits_others():
            return 0.0
        self._goes_at = min(self._goes_at, now + self._state.spec.timeouts.join)
        return self._goes_at

    def _is_enough(self) -> bool:
        """Whether the job can start without those that have not answered."""
        return False

    def _awaits_others(self) -> bool:
        """Whether those that are missing have time to join, if the others are enough."""
        return True

    def _awaits_gates(self) -> bool:
        """Whether the result of a gate is awaited before the start."""
        return bool(self.gates)

    def words(self, but: str = "") -> str:
        """All that are missing, and why."""
        return named({host: why for host, why in self.missing.items() if why and host != but})

    def _out_of_time(self) -> Go | Refuse:
        """Return what follows if the roll call has not found enough nodes in time."""
        spec = self._state.spec
        limit = f"{spec.timeouts.peers:.0f}s"
        if not self.has_name:
            host = self._topology.this.host
            what = f"EP502 this node's own name has no address after {limit}"
            return Refuse(UnavailableError(what, host, "make sure that DNS knows it").outcome)
        number = sum(bool(why) for why in self.missing.values())
        what = f"EP500 {number} of {len(self._topology.peers)} peers did not answer within {limit}"
        do = (
            f"make sure that they run, or wait longer: {spec.setting('timeouts.peers')}, in seconds"
        )
        # Those that are there and cannot take part would end the job, too.
        unfit = not_ready(self._topology, self.members())
        also = f"; {unfit.reason}" if unfit else ""
        return Refuse(UnavailableError(what, f"{self.words()}{also}", do).outcome)

    def choose(self, members: Members) -> Go | Refuse:
        """Choose the team, once enough nodes have answered. `members`: what they report.

        Raises OsError if too few nodes can work.
        """
        refusal = not_ready(self._topology, members)
        return Refuse(refusal) if refusal else Go()

    def ask(self, members: Members, all_nodes: bool) -> dict[int, NodeReport]:
        """Return the reports of the nodes that a feature asks: all, or those that work."""
        reports = {self._state.me: members.reports[self._state.me]} | self._state.peers.reports()
        reports = {it: reports[it] for it in reports if all_nodes or self.works(it)}
        self.asked = frozenset(reports)
        return reports

    def start(self, places: Sequence[int] | None) -> None:
        """Programs start. `places`: those whose end is the job's; None: all that are there."""
        nodes = self.team.nodes
        awaited = self.working if places is None else [nodes[place] for place in places]
        # Without a roll call, other nodes do not report.
        self.awaited = set(awaited) if self._state.peers else {self._state.me}

    # -- losses, late comers, failures

    def needs(self, node: int) -> bool:
        """Whether the job needs this node now."""
        return True

    def meet(self, node: int, message: Met) -> None:
        """The launcher of this node has met the others."""

    def is_short(self) -> bool:
        """Whether fewer nodes have met than the job needs."""
        return False

    def counts(self, node: int) -> bool:
        """Whether this node's end is a part of the job's."""
        return True

    def ends_with(self, node: int) -> bool:
        """Whether a success is none if this node is lost before it is told."""
        return self.works(node)

    def late(self) -> set[int]:
        """The nodes that still run and do not count: the others may have ended before they could
        meet them."""
        return {node for node in self.awaited if not self.counts(node)}

    def lose(self, node: int, outcome: Outcome, is_own: bool, now: float) -> GoOn | End:
        """A node is lost after the roll call, which would end the attempt with this outcome.
        `is_own`: this node was suspended, which is not held against the other."""
        state = self._state
        if state.has_started and self.works(node):
            self.earlier.lose(node, now)
        if not is_own:
            self.losses[node] = outcome.reason
            if state.outcome is None and self.works(node):
                self.replace_next(node, outcome.reason)
        return self.leave(node) if self._can_do_without(node) else End(outcome)

    def _can_do_without(self, node: int) -> bool:
        """Whether the others go on if this node is lost."""
        return not self.needs(node)

    def leave(self, node: int) -> GoOn:
        """A node is gone, and the others go on."""
        self.awaited.discard(node)
        del self._state.peers[node]
        return GoOn(self._topology.working)

    def can_turn_away(self, node: int, is_stop: bool) -> bool:
        """Whether the others go on if this node has failed, or was told to stop."""
        return not self.needs(node)

    def arrive(self, node: int, report: NodeReport) -> TakeIn | Refuse | None:
        """A node answers after the roll call."""
        return None

    def fails_late(self, node: int, problem: str) -> End | None:
        """A node that works has not passed its gate, and starts nothing: its failure follows."""
        return None

    def replace_next(self, node: int, why: str) -> None:
        """The next attempt is to do without this node, if others wait."""
        self.team = self.team.lose(node, why)

    def fault(self, node: int, why: str) -> None:
        """A node is to blame for a failure of the job."""
        self.team = self.team.fault(node, why)

    def note_present(self) -> None:
        """The outcome is known: those that are there now are expected in the next attempt."""
        self._present = self.here - self.losses.keys()

    def conclude(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the attempt with the nodes that were replaced."""
        return outcome

    def next_team(self) -> Team:
        """Return the team as this attempt leaves it, for the next one."""
        team = self.team.without(self.losses, self._present - self.losses.keys())
        team = replace(team, may_run=self.earlier.may_run)
        if stop := self._state.stop:  # all that come in time are to hear of it
            return replace(team, stop=stop, expected=None)
        return team


class Fixed(Membership):
    """All nodes work, and the job needs each of them."""


class Spares(Membership):
    """Some nodes wait, to take the place of one that is lost."""

    unknown = "this worker-0 is new: nodes that were replaced in earlier attempts may work again"

    def _ready(self) -> set[int]:
        """Return this node, whose place no other can take, and the others that can take part."""
        reports = self._state.peers.reports().items()
        return {self._state.me} | {node for node, report in reports if not report.not_ready}

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
        able = list(filter(self.team.can_work, self._ready())) if self.gates else []
        has_choice = len(able) >= len(self.team.nodes)
        awaited = self.team.best(able) if has_choice else self.gates
        return not self.gates.keys().isdisjoint(awaited)

    def _out_of_time(self) -> Go | Refuse:
        # So many are there, and some of them cannot work: that is why the job does not start.
        return Go() if self.has_name and self._has_enough() else super()._out_of_time()

    def choose(self, members: Members) -> Go | Refuse:
        """Have spares work instead of nodes that cannot."""
        topology, before = self._topology, self.team
        here = self.here
        unfit = [it for it in members.reports if it.not_ready and it.rank in here]
        unready = {it.rank: it.not_ready.reason for it in unfit if it.not_ready}
        ready = here - unready.keys()
        if unfit and not before.is_enough(ready):  # their reasons are the job's
            return super().choose(Members(tuple(unfit)))
        self.team = team = before.choose(topology, ready, unready)
        self._works = frozenset(team.nodes)
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

    def arrive(self, node: int, report: NodeReport) -> TakeIn | None:
        if self.needs(node) and not self._state.has_started:
            return None
        not_ready = report.not_ready
        waits = f"cannot work: {not_ready.reason}" if not_ready else "waits as a spare"
        return TakeIn(f"is here, and {waits}")

    def fails_late(self, node: int, problem: str) -> End | None:
        """A spare may take its place in the next attempt."""
        has_next = self._state.history.attempt <= self._state.spec.restarts.most
        if not has_next or node == self._state.me or self._state.outcome:
            return None
        reason = unhealthy(problem).reason
        self.replace_next(node, reason)
        return End(replace(lost(self._topology.name(node), reason), cause=None))

    def conclude(self, outcome: Outcome) -> Outcome:
        self.team = self.team.blame(self._topology, outcome)
        return replace(outcome, excluded=self.team.excluded(self._topology))


class Elastic(Membership):
    """The job starts and goes on with enough nodes; others come and go."""

    def __init__(self, state: JobState, team: Team | None = None) -> None:
        super().__init__(state, team)
        self._least = state.plan.launch.min_nodes or 0
        # Nodes whose launchers have met.
        self._met: set[int] = set()
        # Whether enough had met before one of them was gone.
        self._has_run = False

    def _is_enough(self) -> bool:
        return 1 + len(self._state.peers) >= self._least

    def meet(self, node: int, message: Met) -> None:
        self._met.add(node)

    def counts(self, node: int) -> bool:
        if not node or node in self._met:
            return True
        can_be_met = not self._has_run or 0 in self.awaited or self.has_failed
        return self.is_short() and can_be_met

    def ends_with(self, node: int) -> bool:
        return False

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
        self._forget(node)
        self.awaited.add(node)
        joins = f"joins: {count(len(self.awaited), 'node')}"
        return TakeIn(joins if has_started else "is here, too, and starts with the others")


def of_job(state: JobState, team: Team | None = None) -> Membership:
    """Return the membership of an attempt of this job. `team`: as the last attempt left it."""
    if state.topology.spares:
        return Spares(state, team)
    return (Fixed if state.plan.launch.min_nodes is None else Elastic)(state, team)
