"""What the three policies of membership share, and the answers that all of them give."""

from __future__ import annotations

import math
from collections.abc import Sequence

from entrypoint import heartbeat
from entrypoint.errors import ConfigError, UnavailableError
from entrypoint.job.events import Rejected
from entrypoint.job.failure import named, not_ready, unhealthy
from entrypoint.job.membership.team import Team
from entrypoint.job.messages import TAKEN
from entrypoint.job.state import JobState
from entrypoint.job.waits import KILL_MARGIN, rejoin
from entrypoint.model import Members, NodeReport, Outcome
from entrypoint.text import some
from entrypoint.values import dataclass, replace

NOT_REACHED = "not reached yet"
GATE_MARGIN = 10.0  # seconds after a gate's own limits until its result is not awaited any more
_HEAR_ALL = 2.0  # seconds to wait, after one node disagrees, for others that disagree too
_ASKED = 2.0  # seconds for the first call to a node that may have been killed
_NAMED = 8  # nodes named in one line


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
    """A node that comes late is one of the others; `words` say as what. `starts`: now."""

    words: str
    starts: bool


@dataclass(frozen=True)
class End:
    """The attempt ends with this outcome."""

    outcome: Outcome


class Membership:
    """The nodes of one attempt, as its leader knows them, and what the three policies share."""

    # Whether nodes may come later than the start.
    is_open = False
    # What a leader that has replaced a lost one does not know of earlier attempts.
    unknown = ""

    def __init__(self, state: JobState, team: Team | None = None) -> None:
        self._state = state
        self._topology = state.topology
        self._set_team(team or Team.planned(state.topology))
        # This node's report.
        self.own = state.plan.members.reports[state.me]
        # Whether this node's own name has an address.
        self.has_name = False
        # Peers that are not there, and why; "" once they are.
        self.missing: dict[str, str] = {}
        # Nodes that cannot be of this job, with what they have answered.
        self._rejected: dict[int, Rejected] = {}
        # Nodes with a gate whose end they have announced and not reported; and until when
        # (seconds) it is awaited, the oldest first.
        self._announced: set[int] = set()
        self._gates: dict[int, float] = {}
        # Nodes that have not passed their gate.
        self._unhealthy: dict[int, Outcome] = {}
        # When (seconds) the roll call began, is over, judges nodes that disagree, and starts
        # without those that are missing.
        self._began = math.inf
        self._limit = math.inf
        self._judges_at = math.inf
        self._goes_at = math.inf
        # Nodes that are asked before the start, and nodes whose end is awaited.
        self.asked: frozenset[int] = frozenset()
        self.awaited: set[int] = set()
        # Who was there when the outcome was known.
        self._present: frozenset[int] = frozenset()
        # Whether a program has failed.
        self.has_failed = False

    # -- who is there

    def _set_team(self, team: Team) -> None:
        self.team = team
        self._working = frozenset(team.nodes)

    def works(self, node: int) -> bool:
        """Whether this node works, and is no spare."""
        return node in self._working

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
        return set(range(len(self._topology.nodes))) - self.here if self.is_open else set()

    def reports(self) -> dict[int, NodeReport]:
        """Return what the nodes that are there have answered."""
        return {self._state.me: self.own} | self._state.peers.reports()

    def members(self) -> Members:
        """Return what is known of all nodes, of which those are not ready that have not passed."""
        reports = {report.rank: report for report in self._state.plan.members.reports}
        reports |= self.reports()
        for node, outcome in self._unhealthy.items():
            reports[node] = replace(reports[node], not_ready=outcome)
        return Members(tuple(report for _, report in sorted(reports.items())))

    # -- before the start

    def begin(self, own: NodeReport, now: float) -> None:
        """The roll call begins. `own`: this node's report."""
        self.own = own
        self._began = now
        self._limit = now + self._state.spec.timeouts.peers
        self.answer(own, now)

    def answer(self, report: NodeReport, now: float) -> None:
        """A node has answered, this one included; what it said before is void."""
        self.miss(report.rank)
        if report.checking:
            self._announced.add(report.rank)
            if self._state.is_calling:
                self._gates[report.rank] = now + self._state.spec.gate.limit + GATE_MARGIN

    def miss(self, node: int) -> None:
        """Forget what a node has said: it answers again if it comes back."""
        self._unhealthy.pop(node, None)
        self._gates.pop(node, None)
        self._announced.discard(node)

    def reject(self, node: int, event: Rejected, now: float) -> bool:
        """A node has answered that it cannot be of this job. Return whether that matters."""
        if is_expected := self.is_expected(node):
            self._rejected[node] = event
            self._judges_at = min(self._judges_at, now + _HEAR_ALL)
        return is_expected

    def is_expected(self, node: int) -> bool:
        """Whether the job needs this node as far as is known."""
        return True

    def is_checking(self, node: int) -> bool:
        """Whether the result of this node's gate is awaited."""
        return node in self._gates

    def has_announced(self, node: int) -> bool:
        """Whether a node has announced a result of its gate that it has not reported yet."""
        return node in self._announced

    def checked(self, node: int, problem: str) -> bool:
        """A node's gate has ended. Return whether its result was awaited."""
        self._announced.discard(node)
        is_awaited = self._gates.pop(node, None) is not None
        if is_awaited and problem:
            self._unhealthy[node] = unhealthy(problem)
        return is_awaited

    def overdue(self, now: float) -> list[int]:
        """Await the gates no longer whose time is over. Return their nodes."""
        nodes = [node for node, until in self._gates.items() if until <= now]
        for node in nodes:
            del self._gates[node]
        return nodes

    def decide(self, now: float) -> Wait | Go | Refuse:
        """Return whether the attempt starts now."""
        stop, absent = self._state.stop, len(self._topology.nodes) - 1 - len(self._state.peers)
        if stop:
            until = self._began + rejoin(len(self._topology.nodes))
            return Wait(until) if self._expects_others() and now < until else Refuse(stop)
        if self._rejected and (len(self._rejected) == absent or now >= self._judges_at):
            return Refuse(self._disagreement())
        if now >= self._limit:  # nobody has more time to join
            self._goes_at = min(self._goes_at, now)
        begins = self._begins(absent, now)
        times = (self._judges_at, next(iter(self._gates.values()), math.inf))
        if now < min(begins, self._limit):
            return Wait(min(begins, self._limit, *times))
        if begins == math.inf:
            return self._out_of_time()
        until, why = self._runs_until(now)
        if until > now or self._awaits_gates():
            if now >= self._limit:  # these have limits of their own
                self._limit = now + _HEAR_ALL
            return Wait(min(until if until > now else math.inf, self._limit, *times), why)
        if begins != self._goes_at:
            return Go()
        return Go((f"EP507 the job starts without {self.words()}; each may join later",))

    def _begins(self, absent: int, now: float) -> float:
        """Return when the attempt starts with those that are there; infinity if they are too
        few."""
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

    def _expects_others(self) -> bool:
        """Whether a node is missing that was there when the last attempt ended."""
        expected = self.team.expected
        nodes = range(len(self._topology.nodes)) if expected is None else expected
        return not self.here.issuperset(nodes)

    def _awaits_gates(self) -> bool:
        """Whether the result of a gate is awaited before the start."""
        return bool(self._gates)

    def _runs_until(self, now: float) -> tuple[float, str]:
        """Return until when lost nodes may run what an earlier attempt has started there; and that
        in words, if it is long."""
        ends = {node: self._node_runs_until(node) for node in self.team.may_run}
        ends = {node: until for node, until in ends.items() if until > now}
        until = max(ends.values(), default=now)
        if until - now <= _ASKED:
            return until, ""
        names = some([self._topology.name(node) for node in ends], _NAMED)
        return until, (
            f"the start waits for {until - now:.0f}s at most: ranks of the last attempt may run on"
            f" {names} until then"
        )

    def _node_runs_until(self, node: int) -> float:
        """Return until when a lost node may run something. One that has ended the attempt tells so
        by its answer; a new container in its place knows nothing of the old one. Of one whose
        session has ended, nothing runs once a call finds nobody there."""
        until, is_silent = self.team.may_run[node]
        peer = self._state.peers.get(node)
        if peer and peer.report.attempt >= self._state.history.attempt:
            return 0.0
        why = self.missing.get(self._topology.name(node))
        if is_silent or why == TAKEN:
            return until
        return min(until, self._began + _ASKED) if why == NOT_REACHED else 0.0

    def words(self, but: str = "") -> str:
        """All that are missing, and why."""
        return named({host: why for host, why in self.missing.items() if why and host != but})

    def _disagreement(self) -> Outcome:
        """Return the outcome that names every node that disagrees."""
        wrong = list(self._rejected.values())
        also = f"; also missing: {missing}" if (missing := self.words()) else ""
        seen = "; ".join(each.detail for each in wrong) + also
        return ConfigError("; ".join(each.summary for each in wrong), seen, wrong[0].hint).outcome

    def _out_of_time(self) -> Go | Refuse:
        """Return what follows if the roll call has not found enough nodes in time."""
        spec = self._state.spec
        limit = f"{spec.timeouts.peers:.0f}s"
        if not self.has_name:
            host = self._topology.this.host
            what = f"EP502 this node's own name has no address after {limit}"
            return Refuse(UnavailableError(what, host, "see that DNS knows it").outcome)
        number = sum(bool(why) for why in self.missing.values())
        what = f"EP500 {number} of {len(self._topology.peers)} peers did not answer within {limit}"
        do = f"see that they run, or wait longer: {spec.setting('timeouts.peers')}, in seconds"
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

    # -- before the start, after the roll call

    def ask(self, members: Members, all_nodes: bool) -> dict[int, NodeReport]:
        """Return the reports of the nodes that a feature asks: all that are there, or those of them
        that work."""
        reports = {self._state.me: members.reports[self._state.me]} | self._state.peers.reports()
        reports = {it: reports[it] for it in reports if all_nodes or self.works(it)}
        self.asked = frozenset(reports)
        return reports

    def start(self, places: Sequence[int] | None) -> None:
        """Programs start. `places`: those whose end is the job's; None: all that are there."""
        nodes = self.team.nodes
        awaited = self.working if places is None else [nodes[place] for place in places]
        # other nodes do not report
        self.awaited = set(awaited) if self._state.peers else {self._state.me}

    # -- losses, late comers, failures

    def needs(self, node: int) -> bool:
        """Whether the job needs this node now."""
        return True

    def meet(self, node: int) -> None:
        """The launcher of this node has met the others."""

    def is_short(self) -> bool:
        """Whether fewer nodes have met than the job needs."""
        return False

    def counts(self, node: int) -> bool:
        """Whether this node's end is a part of the job's."""
        return True

    def late(self) -> set[int]:
        """The nodes that still run and do not count: the others may have ended before they could
        meet them."""
        return {node for node in self.awaited if not self.counts(node)}

    def lose(self, node: int, outcome: Outcome, now: float) -> GoOn | End:
        """A node is lost after the roll call, which would end the attempt with this outcome."""
        if self._state.has_started and self.works(node):
            self._note_what_runs(node, now)
        if self._state.outcome is None and self.works(node) and node not in self._state.missed:
            self._set_team(self.team.lose(node, outcome.reason))
        return self.leave(node) if self._can_do_without(node) else End(outcome)

    def _note_what_runs(self, node: int, now: float) -> None:
        """The ranks of a lost node have its grace from when it knows that: at once, unless its
        network is cut."""
        limits = self._state.spec.timeouts
        is_silent = now - self._state.peers[node].heard > limits.heartbeat
        patience = heartbeat.patience(limits.heartbeat, len(self._topology.nodes))
        until = now + (patience if is_silent else 0) + limits.grace + KILL_MARGIN
        may_run = {**self.team.may_run, node: (until, is_silent)}
        self._set_team(replace(self.team, may_run=may_run))

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
        return False

    def arrive(self, node: int, report: NodeReport) -> TakeIn | Refuse | None:
        """A node answers after the roll call."""
        return None

    def fails_late(self, node: int, problem: str) -> End | None:
        """A node that works has not passed its gate, and the roll call has ended without that. Its
        own failure follows, and is the job's."""
        return None

    def replace_next(self, node: int, why: str) -> None:
        """The next attempt is to do without this node."""

    def fault(self, node: int, why: str) -> None:
        """A node is to blame for a failure of the job."""

    # -- the end

    def note_present(self) -> None:
        """The outcome is known: those that are there now are expected in the next attempt."""
        self._present = frozenset(self.here - self._state.lost().keys())

    def conclude(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the attempt with the nodes that were replaced."""
        return outcome

    def next_team(self) -> Team:
        """Return the team as this attempt leaves it, for the next one."""
        lost = self._state.lost()
        return self.team.without(lost, self._present - lost.keys())
