"""The roll call as the leader knows it: who is missing and why, who refuses, and whether all are
there."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from entrypoint.errors import ConfigError, RefusedError, UnavailableError
from entrypoint.job import actions, events, messages
from entrypoint.job.failure import difference, named, not_ready, short
from entrypoint.job.gate import Gates
from entrypoint.job.state import JobState
from entrypoint.job.waits import KILL_MARGIN, SURE, Misdirected, rejoin
from entrypoint.model import Members, Node, NodeReport, Outcome, Topology, node_name
from entrypoint.phases import Phase
from entrypoint.text import count, some

_HEAR_ALL = 2.0  # seconds to wait, after one node disagrees, for others that disagree too
# Seconds more where another node of this job answers: by its own clock it believes in a mistake
# first and says which one, so that all nodes end alike.
_SURE_OURS = 5.0
_NAMED = 8  # nodes named in one line
_NOT_REACHED = "not reached yet"
_ASKED = 2.0  # seconds for the first call to a node that may have been killed


class RollCall:
    """What is known of the peers before all have answered."""

    def __init__(self, state: JobState, look: Callable[[], None]) -> None:
        """`look`: asks again whether all are there."""
        self._state = state
        self._machine = state.scheduler
        self._topology = state.topology
        self._limit = state.spec.timeouts.peers
        self._join = state.spec.timeouts.join
        self._least = state.plan.launch.start.min_nodes  # nodes that are enough for an elastic job
        self._look = look
        self._goes_at: float | None = None  # when an elastic job starts with those that are there
        self._has_said_held = False  # whether it was said that the start waits for a lost node
        self._is_over = False  # whether the time is over, and those that are there decide
        self._missing: dict[str, str] = {}  # host -> why, in words; "" once it is there
        self._disagreed: dict[str, events.Rejected] = {}
        self._own = state.plan.members.reports[state.me]
        self._refused: dict[str, float] = {}  # host -> since when
        self._began = math.inf  # when the first was called
        self._misdirected = Misdirected(state.topology)
        self.own_name = False  # whether this node's own name has an address
        self.gates = Gates(state, look)

    def begin(self, own: NodeReport) -> None:
        """Call all peers, until they have answered or the time is over. `own`: this node's
        report."""
        self._own = own
        self.gates.answered(own)
        for node in self._topology.peers:
            self.miss(node, _NOT_REACHED)
            self._machine.act(actions.Call(node.rank))
        # mpirun's daemons connect back to this node by its name.
        self._machine.act(actions.Resolve((self._topology.me,)))
        self._began = self._machine.now
        self._machine.after(self._limit, self._out_of_time, "roll call")
        if self._state.stop:
            self.stop()

    def stop(self) -> None:
        """Go on, so that those that are between two attempts hear of the stop. Whoever does not
        come soon is gone."""
        if self._began < math.inf:
            self._machine.at(max(self._machine.now, self._stops_at()), self._look, "roll call")

    def _stops_at(self) -> float:
        return self._began + rejoin(len(self._topology.nodes))

    def miss(self, node: Node, why: str) -> None:
        """Note why a peer is not there; "" once it is."""
        self._missing[node.name] = why
        if why:
            self.gates.forget(node.rank)
            self._state.enter(Phase.MISSING, node.rank, why)
        else:
            self._refused.pop(node.name, None)
        self._machine.act(actions.ShowWaiting(node.name, why))

    def answered(self, report: NodeReport) -> None:
        """A peer is there."""
        self._state.hear_history(report)
        self.miss(self._topology.nodes[report.rank], "")
        self.gates.answered(report)

    def _words(self, but: str = "") -> str:
        """All that are missing, and why."""
        return named({host: why for host, why in self._missing.items() if why and host != but})

    def unreached(self, node: Node, event: events.Unreachable, now: float) -> None:
        """A login failed. Raises RefusedError once it is sure that the peer belongs to another
        job."""
        host = node.name
        self.miss(node, event.why)
        if node.rank in self._state.team.may_run:
            self._look()
        since = self._refused.setdefault(host, now)
        if not event.refused:
            del self._refused[host]
        elif self._is_expected(node) and now - since > SURE + _SURE_OURS * event.ours:
            # The message also names all others that are missing, and why.
            also = f"; also missing: {others}" if (others := self._words(but=host)) else ""
            do = "give all nodes the same secret and job name, and each its own index and address"
            raise RefusedError(
                f"EP503 {host} does not belong to this job", f"{event.why}{also}", do
            )

    def disagreed(self, node: Node, event: events.Rejected) -> None:
        """A peer has answered that it cannot be of this job."""
        if not self._is_expected(node):
            self.miss(node, f"{event.summary}: {event.detail}")
            return
        self._disagreed[node.name] = event
        self._state.enter(Phase.MISSING, node.rank, f"{event.summary}: {event.detail}")
        self.miss(node, "")
        self._machine.after(_HEAR_ALL, self._disagree)

    def _is_expected(self, node: Node) -> bool:
        """Whether the job needs this node as far as is known. One that was lost in an earlier
        attempt, and has been replaced, may be another job's by now."""
        expected = self._state.team.expected
        return not self._topology.spares or expected is None or node.rank in expected

    def summary(self, members: Members, here: Collection[int]) -> str:
        """Return how many nodes and slots are here, and how long that took."""
        nodes = len(self._topology.nodes)
        which = f"all {nodes}" if len(here) == nodes else f"{len(here)} of {nodes}"
        working = [node for node in here if self._state.works(node)]
        slots = sum(members.reports[node].slots for node in working)
        spares = len(here) - len(working)
        which += (
            f" nodes are here, {count(spares, 'spare')} among them" if spares else " nodes are here"
        )
        seconds = self._machine.now - self._began
        return f"{which}, {slots} slots, after {seconds:.1f}s"

    def is_complete(self, answered: int) -> bool:
        """Whether all are there; or enough for an elastic job, and the others had their time.

        A job that is stopped waits for those that were there when the last attempt ended, and for
        nobody who does not come soon. Raises ConfigError where all have answered, and some refuse.
        """
        peers = len(self._topology.nodes) - 1
        if self._state.stop:
            expected = self._state.team.expected
            here = {self._topology.me, *self._state.peers}
            are_here = answered == peers if expected is None else here.issuperset(expected)
            return are_here or self._machine.now >= self._stops_at()
        if self._disagreed and answered + len(self._disagreed) == peers:
            self._disagree()
        if answered == peers or not self.own_name:
            return self.own_name and not self._is_held()
        if not self._is_enough(answered):
            return self._is_over
        here = {self._topology.me, *self._state.peers}
        if self._topology.spares and not self._state.team.awaits(
            self._topology, here, self._ready()
        ):
            return not self._is_held()
        if self._goes_at is None:
            self._goes_at = self._machine.now + self._join
            self._machine.after(self._join, self._look)
        if self._machine.now < self._goes_at or self._is_held():
            return False
        self._machine.log(f"EP507 the job starts without {self._words()}; each may join later")
        return True

    def _is_enough(self, answered: int) -> bool:
        """Whether the job can start without those that have not answered."""
        if self._topology.spares:
            # Who is ready is found only once they are many enough.
            enough = 1 + answered >= self._topology.working
            return enough and self._state.team.is_enough(self._ready())
        return self._least is not None and 1 + answered >= self._least

    def _is_held(self) -> bool:
        """Whether the start waits for a gate, or for the end of what a lost node may still run."""
        return self._awaits_end() or self._awaits_gates()

    def _awaits_end(self) -> bool:
        """Whether a lost node may still run what an earlier attempt has started there."""
        ends = {node: self._runs_until(node) for node in self._state.team.may_run}
        ends = {node: until for node, until in ends.items() if until > self._machine.now}
        if not ends:
            return False
        self._machine.at(max(ends.values()), self._look, "lost nodes")
        seconds = max(ends.values()) - self._machine.now
        if not self._has_said_held and seconds > _ASKED:
            self._has_said_held = True
            names = some([self._topology.name(node) for node in ends], _NAMED)
            self._machine.log(
                f"the start waits for {seconds:.0f}s at most: ranks of the last attempt may run on"
                f" {names} until then"
            )
        return True

    def _runs_until(self, node: int) -> float:
        """Return until when a lost node may run something. One that has ended the attempt tells so
        by its answer; a new container in its place knows nothing of the old one. Of one whose
        session has ended, nothing runs once a call finds nobody there."""
        until, is_silent = self._state.team.may_run[node]
        peer = self._state.peers.get(node)
        if peer and peer.report.attempt >= self._state.history.attempt:
            return 0.0
        why = self._missing.get(self._topology.name(node))
        if is_silent or why == messages.TAKEN:
            return until
        return min(until, self._began + _ASKED) if why == _NOT_REACHED else 0.0

    def _awaits_gates(self) -> bool:
        """Whether the result of a gate is awaited: of a job with spares, that of a node which is to
        work, as far as is known."""
        if not self._topology.spares or not self.gates.is_open():
            return self.gates.is_open()
        team = self._state.team
        able = list(filter(team.can_work, self._ready()))
        has_choice = len(able) >= len(team.nodes)
        return self.gates.is_open(team.best(able) if has_choice else None)

    def _ready(self) -> set[int]:
        """Return this node and those that have answered and can take part."""
        reports = self._state.peers.reports().items()
        ready = {node for node, report in reports if not report.not_ready}
        return {self._topology.me, *ready} - self.gates.failed

    def _disagree(self) -> None:
        """Raise ConfigError that names every node that disagrees. The end of their sessions tells
        the other nodes."""
        if not self._state.is_calling:
            return
        wrong = list(self._disagreed.values())
        also = f"; also missing: {missing}" if (missing := self._words()) else ""
        seen = "; ".join(each.detail for each in wrong) + also
        raise ConfigError("; ".join(each.summary for each in wrong), seen, wrong[0].hint)

    def _out_of_time(self) -> None:
        if not self.own_name:
            what = f"EP502 this node's own name has no address after {self._limit:.0f}s"
            raise UnavailableError(what, self._topology.this.host, "make sure that DNS knows it")
        if self._goes_at is not None and self._machine.now < self._goes_at:
            self._goes_at = self._machine.now
            self._look()
            if not self._state.is_calling:
                return
        answered = len(self._state.peers)
        is_enough = not any(self._missing.values()) or self._is_enough(answered)
        if is_enough and self._is_held():  # these have limits of their own
            self._machine.after(_HEAR_ALL, self._out_of_time, "roll call")
            return
        # So many are there, and some of them cannot work: that is why the job does not start.
        self._is_over = bool(self._topology.spares) and 1 + answered >= self._topology.working
        if self._is_over:
            self._look()
            return
        number = sum(bool(why) for why in self._missing.values())
        what = (
            f"EP500 {number} of {len(self._topology.peers)} peers did not answer within"
            f" {self._limit:.0f}s"
        )
        setting = self._state.spec.setting("timeouts.peers")
        do = f"make sure that they run, or wait longer: {setting}, in seconds"
        # Those that are there and cannot take part would end the job, too.
        unfit = not_ready(self._topology, self.gates.members(self._own))
        also = f"; {unfit.reason}" if unfit else ""
        raise UnavailableError(what, f"{self._words()}{also}", do)

    def called(self, hello: messages.Hello, decide: Callable[[Outcome], None]) -> None:
        """Another node of this job also leads: its list of hosts has another order."""
        if self._state.has_started:
            self._machine.act(actions.Answer(messages.Taken(messages.TAKEN)))
            return
        if self._misdirected.is_other_job(hello):
            self._machine.act(actions.Answer(messages.Taken(messages.OTHER_JOB)))
            return
        if self._misdirected.takes(hello, self._machine.now):
            self._machine.act(actions.Answer(messages.Taken(self._misdirected.words)))
            return
        wrong = two_leaders(self._topology, hello.hosts)
        self._machine.act(actions.Answer(messages.Reject(*wrong)))
        # Later, so that the answer arrives before our sshd ends.
        self._machine.after(KILL_MARGIN, lambda: decide(ConfigError(*wrong).outcome))

    def close(self) -> None:
        """Call nobody any more."""
        self._machine.drop("roll call")
        if self._state.is_calling:
            self._machine.act(actions.StopCalling())


def two_leaders(topology: Topology, theirs: tuple[str, ...]) -> tuple[str, str, str]:
    """What, seen, do: another node with these hosts leads, too; both know the hosts in another
    order."""
    other = node_name(topology.this.label, theirs[0]) if theirs else "another node"
    hosts, theirs = topology.hosts, theirs or (other,)
    do = "give all nodes the same hosts, in the same order, and each its own index and address"
    same = f"both have index {topology.me} of {short(hosts)}"
    seen = same if hosts == theirs else difference(hosts, topology.this.name, theirs, other)
    return "EP504 two nodes act as worker-0", seen, do
