"""The observer of a node's events and actions: derives each node's phase, ranks and last heartbeat,
and how long each phase took. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from entrypoint import __version__
from entrypoint.base.model import Plan
from entrypoint.base.phases import DNS, UNRESOLVED, Phase, Span
from entrypoint.base.values import dataclass, replace
from entrypoint.extensions import LoopView
from entrypoint.features.record.content import (
    VERSION,
    JobStatus,
    KnownOutcome,
    NodeStatus,
    PeerTimes,
    Recording,
)
from entrypoint.features.record.ettr import Ledger, account
from entrypoint.job import actions, events, messages

_MOST_PHASES = 100  # phases of the node itself that are kept
# phases of ranks that are kept: a rank may restart any number of times
_MOST = messages.PHASES // 2
_OF_RANK = {"start": Phase.OUTPUT.timeline, "output": Phase.RUNNING.timeline, "end": ""}
# A node that sends one of these is there.
_HEARD = (events.MessageReceived, events.Answered, events.Alive)


@dataclass
class NodeState:
    """The state of one node. Times are seconds of the caller's clock; None if unknown."""

    phase: Phase
    since: float
    detail: str = ""
    heard: float | None = None  # when it last sent something
    printed: float | None = None  # when one of its ranks last printed something
    started: int | None = None  # ranks, or programs of a launcher that starts them itself
    ended: int = 0  # of those


class JobObserver:
    """Observes all attempts of this node. On worker-0 it knows all nodes, on a worker this node and
    the leader."""

    def __init__(self, before: Iterable[Span], now: float) -> None:
        """`before`: this node's phases until `now`, when its start hooks begin."""
        # Phases of this node that are over, and the present one of this node (""), a peer or a
        # rank, since when.
        self._own = [*before]
        self._open = {"": (Phase.HOOKS.timeline, now)}
        # When the first attempt began; 0 until then.
        self._first = 0.0
        # On worker-0, where the time of all attempts went.
        self._ledger: Ledger | None = None

    def begin(self, plan: Plan, now: float) -> None:
        """Begin an attempt with this plan."""
        if self._first:
            self._own = [span for span in self._own if span.end <= self._first]
            self._open = {"": (Phase.EARLIER.timeline, self._first)}
        else:
            self._first = now
            self._turn("", Phase.CHECKS.timeline, now)
        self._plan = plan
        self._topology = plan.topology
        self.me = plan.topology.me
        self._begun = now
        if plan.leads:
            self._ledger = self._ledger or Ledger(plan.topology, self._own[0].start)
            self._ledger.begin(plan.topology, now)
        # Seconds until this node's ranks ran.
        self._boot: float | None = None
        # host -> why its name has no address
        self._names: dict[str, str] = {}
        self.nodes = {
            rank: NodeState(Phase.CHECKS if rank == self.me else Phase.MISSING, now)
            for rank in plan.known_nodes
        }
        # Whether something other than a time has changed; whoever looks sets it back.
        self.is_new = True
        # Phases of peers and ranks that are over.
        self._others: list[Span] = []
        # On worker-0, what it knows of the others; of this node, its own times.
        self.peers: defaultdict[int, PeerTimes] = defaultdict(PeerTimes)

    # -- input

    def saw(self, what: Any, now: float) -> None:
        """See an event or an action, as extensions.Observer does."""
        node = getattr(what, "node", self.me)
        peer = self.peers[node]
        if self._ledger:
            self._ledger.saw(what, now, self.nodes[node].heard)
        if isinstance(what, _HEARD) and node != self.me:
            self.nodes[node].heard = now
        match what:
            case actions.Entered():
                self._entered(what, now)
            case events.MessageReceived():
                self._on_message(node, what.message, now)
            case events.Answered():
                self._named(node, what.named)
                self._turn(self._topology.name(node), "", now)
                peer.answered = now
                peer.why = ""
            case events.Unreachable():
                self._named(node, what.named)
                peer.why = what.why
            case events.SessionLost() if not peer.part:
                peer.why = what.why or "its session ended"
            case events.NameState():
                self._names[what.host] = what.state
                self.is_new = True
            case events.RankChanged() if what.change == "start" or what.name in self._open:
                self._turn(what.name, _OF_RANK[what.change], now)
            case actions.Call():
                self._turn(self._topology.name(node), DNS, now)
            case actions.Answer(message=messages.NodeInfo()):
                peer.answered = now
            case actions.Send(message=messages.Start()):
                peer.started = now
            case actions.Send(message=messages.Release()):
                peer.released = now

    def _entered(self, action: actions.Entered, now: float) -> None:
        state, phase = self.nodes[action.node], action.phase
        self.is_new = True
        if phase is Phase.LAUNCHING is not state.phase:
            launch = self._plan.launch
            state.started = 0 if launch.ranks.kind.report_ends else len(launch.programs)
        if state.phase.status != phase.status:
            state.since = now
        if action.node == self.me:
            if phase.status == Phase.RUNNING.status and self._boot is None:
                self._boot = round(now - self._begun, 3)
            if state.phase is Phase.OUTPUT and phase in (Phase.ENDING, Phase.RELEASED):
                # it has printed nothing, so this phase was its run
                self._open[""] = Phase.RUNNING.timeline, self._open[""][1]
            self._turn("", phase.timeline or Phase.RELEASED.timeline, now)
        state.phase = phase
        state.detail = action.detail

    def _on_message(self, node: int, message: Any, now: float) -> None:
        state, own = self.nodes[node], self.peers[self.me]
        match message:
            case messages.Pong():
                state.printed = now - max(0.0, message.idle)
            case messages.RankStart():
                state.started = (state.started or 0) + 1
                self.is_new = True
            case messages.Ended() if self._plan.launch.ranks.kind.report_ends:
                pass
            case messages.RankEnd() | messages.Ended():
                state.ended += 1
                self.is_new = True
            case messages.Phases():
                self.peers[node].part = message
                self.peers[node].reported = now
            case messages.Start():
                own.started = own.started or now
            case messages.Release():
                own.released = now

    def _named(self, node: int, when: float) -> None:
        """See when a peer's name first had an address; 0 if it has none yet."""
        peer = self._topology.name(node)
        name, since = self._open.get(peer, ("", 0.0))
        if name == DNS and when >= since:
            self._turn(peer, Phase.ROLL_CALL.timeline, when)

    def _turn(self, about: str, name: str, now: float) -> None:
        """Begin the next phase of this node (""), a peer or a rank; "" for none."""
        before, since = self._open.pop(about, ("", now))
        if name:
            self._open[about] = name, since if name == before else now
        if name == before or not before:
            return
        spans, most = self._own, _MOST_PHASES
        if about:
            spans, most = self._others, _MOST + 2 * len(self._topology.nodes)
        if len(spans) < most:
            spans.append(Span(before, since, now, about))
        elif not about:  # a leader that calls again and again
            spans[-1] = replace(spans[-1], end=now)

    # -- output

    def phases(self, now: float) -> messages.Phases:
        """Return the phases as the message of a worker."""
        own = self.peers[self.me]
        rows = self.rows(now)[: messages.PHASES]
        return messages.Phases(rows, own.answered, own.started, own.released, reported=now)

    def rows(self, now: float) -> tuple[tuple[str, float, float, str], ...]:
        """Return all phases until now: the node's own without a gap, then those of peers and
        ranks, in the form in which they are sent and written."""
        last = [Span(name, since, now, about) for about, (name, since) in self._open.items()]
        spans = sorted((*self._own, *self._others, *last), key=lambda span: span.about != "")
        return tuple(
            (span.name, round(span.start, 4), round(span.end, 4), span.about) for span in spans
        )

    def recording(self, now: float, wall: float) -> Recording:
        """Return the timeline until now; `wall`: the same moment in seconds since 1970."""
        rows, here = self.rows(now), self._topology
        return Recording(
            job=here.job,
            names=tuple(map(here.name, range(len(here.nodes)))),
            me=self.me,
            alone=self._plan.roll_call == "none",
            phases=rows,
            peers={str(node): peer for node, peer in self.peers.items()},
            began=round(wall - (now - rows[0][1]), 3),
        )

    def status(self, now: float, view: LoopView) -> JobStatus:
        """Return the state of all nodes."""
        this, end = self._topology.this, view.outcome
        nodes = tuple(self._node(rank, now, view.idle) for rank in sorted(self.nodes))
        return JobStatus(
            version=VERSION,
            toolkit=__version__,
            job=self._topology.job,
            node=this.label,
            host=this.host,
            launcher=self._plan.launcher,
            attempt=view.attempt,
            phase=next(node.phase for node in nodes if node.node == this.label),
            up_seconds=round(now - self._begun, 3),
            boot_seconds=self._boot,
            job_nodes=len(self._topology.nodes),
            roll_call=self._plan.roll_call,
            outcome=KnownOutcome(end.status, end.reason) if end else None,
            nodes=nodes,
            spent=account(self._ledger.attempts, now) if self._ledger else None,
        )

    def _node(self, rank: int, now: float, idle: float) -> NodeStatus:
        """Return the state of a node; `idle`: seconds without output of this one."""
        node, state = self._topology.nodes[rank], self.nodes[rank]
        phase, detail = state.phase.status, state.detail
        printed = now - idle if rank == self.me else state.printed
        if rank == self.me and state.phase is Phase.ROLL_CALL:
            unresolved = [f"{host}: {why}" for host, why in self._names.items() if why]
            if unresolved:
                phase, detail = UNRESOLVED, "; ".join(unresolved)
        return NodeStatus(
            node=node.label,
            host=node.host,
            phase=phase,
            since_seconds=round(now - state.since, 3),
            heartbeat_seconds=_age(now, state.heard),
            ranks=state.started,
            ranks_ended=state.ended,
            idle_seconds=_age(now, printed if phase == Phase.RUNNING.status else None),
            detail=detail,
        )


def _age(now: float, since: float | None) -> float | None:
    return None if since is None else round(now - since, 3)
