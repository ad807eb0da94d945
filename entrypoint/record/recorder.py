"""Records the phases of this node from its machine's events and actions; on worker-0 also reports
of others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from entrypoint.job import actions, events, messages
from entrypoint.model import Topology
from entrypoint.phases import DNS, Phase, Span
from entrypoint.record.content import PeerTimes, Recording

_MOST_PHASES = 100  # phases of the node itself that are kept
# phases of ranks that are kept: a rank may restart any number of times
_MOST = messages.PHASES // 2


class TimelineRecorder:
    """Recorder of the timeline: it gets every event and action of a node's machine with its time
    (monotonic)."""

    def __init__(self, topology: Topology, before: Iterable[Span], now: float) -> None:
        """`before`: the phases until `now`, from which the machine is recorded."""
        self._topology = topology
        self._me = topology.me
        self._before = tuple(before)
        self._begun = now
        self._attempts = 0
        self._reset(Phase.CHECKS.timeline, now)

    def _reset(self, name: str, since: float) -> None:
        self._own_phases: list[Span] = []
        self._name = name
        self._since = since
        # Phases of peers and ranks.
        self._spans: list[Span] = []
        # rank or peer -> its phase, since when
        self._open: dict[str, tuple[str, float]] = {}
        self._marks = dict.fromkeys(("answered", "started", "released"), 0.0)
        self.peers: dict[int, PeerTimes] = {}

    def enter(self, name: str, now: float) -> None:
        """Begin the next phase of the node itself."""
        if name == self._name:
            return
        if len(self._own_phases) < _MOST_PHASES:
            self._own_phases.append(Span(self._name, self._since, now))
        else:  # a leader that calls again and again
            last = self._own_phases.pop()
            self._own_phases.append(Span(last.name, last.start, now))
        self._name = name
        self._since = now

    def _turn(self, about: str, name: str, now: float) -> None:
        """Begin the next phase of a peer or a rank; "" for none."""
        before, since = self._open.pop(about, ("", now))
        if before and len(self._spans) < _MOST + 2 * len(self._topology.nodes):
            self._spans.append(Span(before, since, now, about))
        if name:
            self._open[about] = name, now

    def told(self, now: float) -> messages.Phases:
        """Return the phases as the message of a worker."""
        return messages.Phases(self.rows(now)[: messages.PHASES], **self._marks, told=now)

    def rows(self, now: float) -> tuple[tuple[str, float, float, str], ...]:
        """Return all phases until now: the node's own without a gap, then those of peers and
        ranks, in the form in which they are sent and written."""
        last = Span(self._name, self._since, now)
        opened = [Span(name, since, now, about) for about, (name, since) in self._open.items()]
        return tuple(
            (span.name, round(span.start, 4), round(span.end, 4), span.about)
            for span in (*self._before, *self._own_phases, last, *self._spans, *opened)
        )

    def recording(self, now: float, alone: bool, wall: float) -> Recording:
        """Return the recording until now; `alone`: the nodes hold no roll call; `wall`: the same
        moment in seconds since 1970."""
        peers = {str(node): peer for node, peer in self.peers.items()}
        rows = self.rows(now)
        began = round(max(0.0, wall - (now - rows[0][1])), 3)
        here = self._topology
        names = tuple(here.name(node.rank) for node in here.nodes)
        return Recording(here.job, here.hosts, here.me, alone, rows, peers, began, names)

    # -- input

    def rank(self, event: str, name: str, now: float) -> None:
        """Record that a rank or program of this node starts, prints for the first time ("output"),
        or ends."""
        if event == "start":
            self._turn(name, Phase.OUTPUT.timeline, now)
        elif event == "output" and self._open.get(name, ("",))[0] == Phase.OUTPUT.timeline:
            self._turn(name, Phase.RUNNING.timeline, now)
        elif event == "end":
            self._turn(name, "", now)

    def event(self, event: Any, now: float) -> None:
        """Record an event that the machine is about to get."""
        match event:
            case events.Started():
                self._attempts += 1
                if self._attempts > 1:
                    self._reset(Phase.EARLIER.timeline, self._begun)
            case events.Unreachable():
                self._named(event.node, event.named)
                self._peer(event.node).why = event.why
            case events.Answered():
                self._named(event.node, event.named)
                self._turn(self._topology.name(event.node), "", now)
                self._peer(event.node).answered = now
                self._peer(event.node).why = ""
            case events.SessionLost():
                if event.node and not self._peer(event.node).part:
                    self._peer(event.node).why = event.why or "its session ended"
            case events.MessageReceived():
                self._on_message(event.node, event.message, now)

    def action(self, action: Any, now: float) -> None:
        """Record an action that is about to be performed."""
        match action:
            case actions.Entered() if action.node == self._me:
                self._entered(action.phase, now)
            case actions.Call():
                self._turn(self._topology.name(action.node), DNS, now)
            case actions.Send(message=messages.Start()) if action.node != self._me:
                self._peer(action.node).started = now
            case actions.Send(message=messages.Release()):
                self._peer(action.node).released = now
            case actions.Answer(message=messages.NodeInfo()):
                self._marks["answered"] = now

    def _named(self, node: int, when: float) -> None:
        """Record when a peer's name first had an address; 0 if it has none yet."""
        peer = self._topology.name(node)
        name, since = self._open.get(peer, ("", 0.0))
        if name == DNS and when >= since:
            self._turn(peer, Phase.ROLL_CALL.timeline, when)

    def _on_message(self, node: int, message: Any, now: float) -> None:
        match message:
            case messages.Phases() if node != self._me:
                self._peer(node).part = message
                self._peer(node).told = now
            case messages.Start():
                self._marks["started"] = self._marks["started"] or now
            case messages.Release():
                self._marks["released"] = now

    def _entered(self, phase: Phase, now: float) -> None:
        ends = phase in (Phase.ENDING, Phase.RELEASED)
        # it has printed nothing, so this phase was its run
        if ends and self._name == Phase.OUTPUT.timeline:
            self._name = Phase.RUNNING.timeline
        self.enter(phase.timeline or Phase.RELEASED.timeline, now)

    def _peer(self, node: int) -> PeerTimes:
        return self.peers.setdefault(node, PeerTimes())
