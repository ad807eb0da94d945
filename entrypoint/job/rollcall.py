"""The roll call as the leader holds it: whom it calls, what it shows of those that are missing, and
calls of other leaders. Whether enough nodes are there, it asks `membership`."""

from __future__ import annotations

from collections.abc import Callable

from entrypoint.base.errors import ConfigError, RefusedError
from entrypoint.base.model import Node, NodeReport, Topology, node_name
from entrypoint.base.phases import Phase
from entrypoint.job import actions, events, messages
from entrypoint.job.failure import difference, short
from entrypoint.job.membership.quorum import Go, Refuse, Wait
from entrypoint.job.outbox import Part, Shared
from entrypoint.job.waits import KILL_MARGIN, SURE, Misdirected

_HEAR_ALL = 2.0  # seconds to wait, after one node disagrees, for others that disagree too
# Seconds more where another node of this job answers: by its own clock it believes in a mistake
# first and says which one, so that all nodes end alike.
_SURE_OURS = 5.0


class RollCall(Part):
    """Calls all peers until they have answered, or the membership knows enough."""

    _has_said_why = False  # whether it was logged that the start waits for a lost node
    _began = 0.0  # when the first was called

    def __init__(self, shared: Shared, complete: Callable[[float], None]) -> None:
        """`complete`: the attempt starts, after so many seconds."""
        super().__init__(shared)
        self._complete = complete
        self._quorum = self._membership.quorum
        self._rejected: dict[int, events.Rejected] = {}  # by nodes that cannot be of this job
        self._refused: dict[str, float] = {}  # host -> since when
        self._misdirected = Misdirected(self._topology)

    def begin(self, own: NodeReport) -> None:
        """Call all peers, until they have answered or the time is over. `own`: this node's
        report."""
        self._began = self._scheduler.now
        self._quorum.begin(own, self._began)
        for node in self._topology.peers:
            self._miss(node, "not reached yet")
            self._scheduler.act(actions.Call(node.rank))
        # mpirun's daemons connect back to this node by its name.
        self._scheduler.act(actions.Resolve((self._topology.me,)))
        self.look()

    def look(self) -> None:
        """See whether the attempt starts now, and when to look again."""
        now = self._scheduler.now
        if not self._state.is_calling:
            return
        if len(self._rejected) + len(self._peers) == len(self._topology.nodes) - 1:
            self._disagree()
        for node in self._quorum.overdue(now):
            self._show_gate(node, "")
            self._scheduler.log(
                f"warning: EP466 {self._topology.name(node)} has not reported whether it is healthy"
                f" | nothing within {self._quorum.gate_limit:.0f}s | see its log; the job starts"
                " without its result"
            )
        match self._quorum.decide(now):
            case Wait(until, why):
                if why and not self._has_said_why:
                    self._has_said_why = True
                    self._scheduler.log(why)
                self._scheduler.at(until, self.look, "roll call")
            case Go(lines):
                for line in lines:
                    self._scheduler.log(line)
                self.close()
                self._complete(now - self._began)
            case Refuse(outcome):
                self._decide(outcome)

    def _miss(self, node: Node, why: str) -> None:
        """Note why a peer is not there; "" once it is."""
        if why:
            self._quorum.unreachable(node, why)
            self._state.enter(Phase.MISSING, node.rank, why)
        else:
            self._quorum.reached(node)
            self._refused.pop(node.name, None)
        self._scheduler.act(actions.ShowWaiting(node.name, why))

    def answered(self, report: NodeReport) -> None:
        """A peer is there."""
        self._state.hear_history(report)
        self._miss(self._topology.nodes[report.rank], "")
        if report.checking:
            self._show_gate(report.rank, "it checks itself")
        self.look()

    def lost(self, node: int, why: str) -> None:
        """A peer that was there is gone: it is called again, should it come back."""
        self._miss(self._topology.nodes[node], why or "answered, then went away")
        self._scheduler.act(actions.Call(node))
        self.look()  # the others may have waited for it alone

    def unreached(self, event: events.Unreachable) -> None:
        """A login failed. Raises RefusedError once it is sure that the peer belongs to another
        job."""
        if not self._state.is_calling:
            return
        node, now = self._topology.nodes[event.node], self._scheduler.now
        host = node.name
        self._miss(node, event.why)
        since = self._refused.setdefault(host, now)
        is_sure = now - since > SURE + _SURE_OURS * event.ours
        if not event.refused:
            del self._refused[host]
        elif is_sure and self._quorum.expects(node.rank):
            # The message also names all others that are missing, and why.
            also = f"; also missing: {others}" if (others := self._quorum.words(host)) else ""
            do = "give all nodes the same secret and job name, and each its own index and address"
            raise RefusedError(
                f"EP503 {host} does not belong to this job", f"{event.why}{also}", do
            )
        self.look()

    def rejected(self, event: events.Rejected) -> None:
        """A peer has answered that it cannot be of this job."""
        node, why = self._topology.nodes[event.node], f"{event.summary}: {event.detail}"
        if not self._state.is_calling:
            words = f"{event.summary} | {event.detail} | {event.hint}"
            self._scheduler.log(f"{node.name} cannot join: {words}")
            return
        self._state.enter(Phase.MISSING, node.rank, why)
        if self._quorum.expects(node.rank):
            self._rejected[node.rank] = event
            self._scheduler.after(_HEAR_ALL, self._disagree)
            why = ""
        self._miss(node, why)
        self.look()

    def _disagree(self) -> None:
        """Raise ConfigError that names every node that disagrees. The end of their sessions tells
        the other nodes."""
        if not self._rejected or not self._state.is_calling or self._state.stop:
            return
        wrong = list(self._rejected.values())
        also = f"; also missing: {missing}" if (missing := self._quorum.words()) else ""
        seen = "; ".join(each.detail for each in wrong) + also
        raise ConfigError("; ".join(each.summary for each in wrong), seen, wrong[0].hint)

    def named(self, event: events.NameState) -> None:
        """This node's own name has an address, or still none."""
        if self._state.is_calling:
            waiting = actions.ShowWaiting(f"the name {event.host}", event.state, peers=False)
            self._scheduler.act(waiting)
        self._quorum.named(not event.state)
        self.look()

    def checking(self, node: int, message: messages.Checking) -> None:
        """Show what a node's gate waits for."""
        if self._quorum.awaits_gate(node):
            self._show_gate(node, message.why)

    def checked(self, node: int, message: messages.Checked) -> None:
        """A node's gate has ended. A node that has not passed starts nothing."""
        if self._quorum.checked(node, message.problem):
            self._show_gate(node, "")
            self.look()
        elif message.problem:
            name = self._topology.name(node)
            self._scheduler.log(
                f"EP466 {name} reported a failed health check after the start: {message.problem}"
            )
            if outcome := self._membership.participants.fail_late(node, message.problem):
                self._decide(outcome)

    def _show_gate(self, node: int, why: str) -> None:
        """Show what is waited for. A node says it of itself in its own log."""
        if node != self._state.me:
            self._scheduler.act(actions.ShowWaiting(self._topology.name(node), why))
            self._state.note(node, why)

    def called(self, event: events.LeaderCalled) -> None:
        """Another node of this job also leads: its list of hosts has another order."""
        hello = event.message
        if not isinstance(hello, messages.Hello):
            return
        why = self._misdirected.why(hello, self._scheduler.now)
        if self._state.has_started:
            why = messages.RUNS
        if why:
            self._scheduler.act(actions.Answer(messages.Taken(why)))
            return
        wrong = two_leaders(self._topology, hello.hosts)
        self._scheduler.act(actions.Answer(messages.Reject(*wrong)))
        # Later, so that the answer arrives before our sshd ends.
        self._scheduler.after(KILL_MARGIN, lambda: self._decide(ConfigError(*wrong).outcome))

    def close(self) -> None:
        """Call nobody any more."""
        self._scheduler.drop("roll call")
        if self._state.is_calling:
            self._scheduler.act(actions.StopCalling())


def two_leaders(topology: Topology, theirs: tuple[str, ...]) -> tuple[str, str, str]:
    """Return what, seen, do: another node with these hosts leads, too; both know the hosts in
    another order."""
    other = node_name(topology.this.label, theirs[0]) if theirs else "another node"
    hosts, theirs = topology.hosts, theirs or (other,)
    do = "give all nodes the same hosts, in the same order, and each its own index and address"
    same = f"both have index {topology.me} of {short(hosts)}"
    seen = same if hosts == theirs else difference(hosts, topology.this.name, theirs, other)
    return "EP504 two nodes act as worker-0", seen, do
