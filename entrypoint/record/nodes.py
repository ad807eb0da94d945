"""The state of a boot while it runs: each node's phase, ranks and last heartbeat. Pure.

The loop passes every step of the machine to a NodeTable. On worker-0 it has all nodes, on a worker
this node and the leader. recorder.py records how long each phase took.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from entrypoint import __version__
from entrypoint.job import actions, events, messages
from entrypoint.model import Outcome, Plan
from entrypoint.phases import UNRESOLVED, Phase
from entrypoint.record.content import VERSION, JobStatus, KnownOutcome, NodeStatus
from entrypoint.values import dataclass


@dataclass
class NodeState:
    """The state of one node. Times are seconds of the caller's clock; None if unknown."""

    phase: Phase
    since: float
    detail: str = ""
    last_message: float | None = None  # when it last sent something
    started: int | None = None  # ranks, or programs of a launcher that starts them itself
    ended: int = 0  # of those
    idle: tuple[float, float] | None = None  # seconds without output, and when it reported them


class NodeTable:
    """The states of the nodes."""

    def __init__(self, draft: Plan, now: float) -> None:
        self._draft = draft
        self._topology = draft.topology
        self.me = draft.topology.me
        self._begun = now
        # Seconds until this node's ranks ran, 0 until then.
        self._boot = 0.0
        # host -> why its name has no address
        self._names: dict[str, str] = {}
        # Whether something other than a time has changed since the last snapshot.
        self.is_new = True
        self.nodes = {
            rank: NodeState(Phase.CHECKS if rank == self.me else Phase.MISSING, now)
            for rank in draft.known_nodes
        }
        self._now = now

    # -- input

    def saw(self, event: Any, done: Iterable[Any], now: float) -> None:
        """Update the table by an event of the machine, and the actions that the machine returned
        for it."""
        self._now = now
        match event:
            case events.NameState():
                self.is_new = True
                self._names[event.host] = event.state
            case events.Answered() | events.Alive():
                self._note_heartbeat(event.node)
            case events.MessageReceived():
                self._note_heartbeat(event.node)
                if state := self.nodes.get(event.node):
                    self._on_message(state, event.message)
        for action in done:
            if isinstance(action, actions.Entered) and action.node in self.nodes:
                self._entered(action.node, action.phase, action.detail)

    def _entered(self, rank: int, phase: Phase, detail: str) -> None:
        state = self.nodes[rank]
        self.is_new = True
        if phase is Phase.LAUNCHING and state.phase is not phase:
            if self._draft.launch.ranks.reports == "ranks":
                state.started = state.ended = 0
            else:  # the number of programs of another node is unknown here
                state.started = len(self._draft.launch.programs)
        if state.phase.status != phase.status:
            state.since = self._now
        state.phase = phase
        state.detail = detail
        if phase.status == Phase.RUNNING.status and rank == self.me and not self._boot:
            self._boot = self._now - self._begun

    def _note_heartbeat(self, rank: int) -> None:
        if rank != self.me and (state := self.nodes.get(rank)):
            state.last_message = self._now

    def _on_message(self, state: NodeState, message: Any) -> None:
        match message:
            case messages.Pong(idle):
                state.idle = (max(0.0, idle), self._now)
            case messages.RankStart():
                state.started = (state.started or 0) + 1
                self.is_new = True
            case messages.RankEnd():
                state.ended += 1
                self.is_new = True
            case messages.Ended() if self._draft.launch.ranks.reports != "ranks":
                state.ended += 1
                self.is_new = True

    # -- output

    def snapshot(
        self, now: float, attempt: int, outcome: Outcome | None, idle: float | None = None
    ) -> JobStatus:
        """Return the state of all nodes. `idle`: seconds without output of this node."""
        self.is_new = False
        this = self._topology.this
        return JobStatus(
            version=VERSION,
            toolkit=__version__,
            job=self._topology.job,
            node=this.label,
            host=this.host,
            launcher=self._draft.launcher,
            attempt=attempt,
            phase=self._shown(self.nodes[self.me])[0],
            up_seconds=_seconds(now - self._begun),
            boot_seconds=_seconds(self._boot) if self._boot else None,
            job_nodes=len(self._topology.nodes),
            roll_call=self._draft.roll_call,
            outcome=KnownOutcome(outcome.status, outcome.reason) if outcome else None,
            nodes=tuple(self._node(rank, now, idle) for rank in sorted(self.nodes)),
        )

    def _node(self, rank: int, now: float, idle: float | None) -> NodeStatus:
        node = self._topology.nodes[rank]
        state = self.nodes[rank]
        runs = state.phase.status == Phase.RUNNING.status
        phase, detail = self._shown(state)
        if rank != self.me:
            idle = state.idle[0] + now - state.idle[1] if state.idle else None
        return NodeStatus(
            node=node.label,
            host=node.host,
            phase=phase,
            since_seconds=_seconds(now - state.since),
            heartbeat_seconds=None
            if state.last_message is None
            else _seconds(now - state.last_message),
            ranks=state.started,
            ranks_ended=state.ended,
            idle_seconds=_seconds(idle) if runs and idle is not None else None,
            detail=detail,
        )

    def _shown(self, state: NodeState) -> tuple[str, str]:
        """Return status and detail of a node: this node's detail, in the roll call, is the names
        without an address."""
        if state is self.nodes[self.me] and state.phase is Phase.ROLL_CALL:
            unresolved = [f"{host}: {why}" for host, why in self._names.items() if why]
            if unresolved:
                return UNRESOLVED, "; ".join(unresolved)
        return state.phase.status, state.detail


def _seconds(value: float) -> float:
    return round(max(0.0, value), 3)
