"""What others may know of a boot while it runs: each node's phase, as this node's events and actions show it. Pure.

The loop shows every step of the machine to a Board; the machine itself knows nothing of it. On worker-0 the board has
all nodes, on a worker this node and what it knows of the leader. How long each step took is in record.py: those are
other phases, of a node's own clock, and worker-0 has them only at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from entrypoint import __version__
from entrypoint.job import actions, events, messages
from entrypoint.model import Outcome, Plan
from entrypoint.values import dataclass

SOCKET = "entrypoint.sock"  # in the run directory, where a boot is asked for its state
VERSION = 1  # of what `snapshot` gives; a field that is added does not change it

STARTING, NAMES, ROLL_CALL, MISSING = "starting", "names", "roll call", "missing"
JOINED, FILES, LAUNCHING, RUNNING = "joined", "files", "launching", "running"
ENDING, RELEASED, LOST, ENDED = "ending", "released", "lost", "ended"
PHASES: Mapping[str, str] = {
    STARTING: "it opens its control endpoint and starts sshd",
    NAMES: "a host name that it needs has no address yet",
    ROLL_CALL: "the leader calls the others; a worker waits for its call",
    MISSING: "another node that has not answered yet; the detail says what was seen of it",
    JOINED: "it has answered the roll call",
    FILES: "all nodes are there, and the leader writes what the ranks need",
    LAUNCHING: "it was told to start, and none of its ranks has reported yet",
    RUNNING: "its ranks or programs have started",
    ENDING: "the job's result is known, and its programs are stopped",
    RELEASED: "it was told the job's result",
    LOST: "its session has ended, or it was silent for longer than the heartbeat timeout",
    ENDED: "its part of the job is over",
}
"""Each phase of a node, and what it means, in the usual order."""

DOWN = (MISSING, LOST)  # phases of a node that cannot be reached
_STILL = (ENDING, RELEASED, LOST, ENDED)  # what comes late, such as the start of a rank, does not change these


@dataclass
class NodeState:
    """One node. Times are seconds of the caller's clock; None where nothing is known."""

    phase: str
    since: float
    detail: str = ""
    heard: float | None = None  # when it last sent something
    started: int | None = None  # ranks, or programs of a launcher that starts them itself
    ended: int = 0  # of those
    idle: tuple[float, float] | None = None  # seconds without output, and when it said so


class NodeTable:
    """Keeps the nodes' states. `changed`: how often a phase or detail has changed."""

    def __init__(self, draft: Plan, now: float) -> None:
        self._draft, self._topology, self.me = draft, draft.topology, draft.topology.me
        self._leads = draft.topology.is_leader or draft.mode != "coordinated"
        self._begun, self._boot = now, 0.0  # when this began; seconds until this node's ranks ran, 0 until then
        self._names: dict[str, str] = {}  # host -> why its name has no address
        self._asked = 0  # ranks that mpirun is to start on all nodes
        self.changed = 0
        shown: Iterable[int] = (self.me,)
        if draft.mode == "coordinated":
            shown = range(len(self._topology.nodes)) if self._leads else (0, self.me)
        self.nodes = {rank: NodeState(STARTING if rank == self.me else MISSING, now) for rank in shown}
        self._ranks = {self._topology.nodes[rank].host: rank for rank in self.nodes}
        self._now = now

    # -- what happens

    def saw(self, event: Any, done: Iterable[Any], now: float) -> None:
        """The machine was told this event, and wants these actions done."""
        self._now = now
        if handler := _EVENTS.get(type(event)):
            handler(self, event)
        for action in done:
            if handler := _ACTIONS.get(type(action)):
                handler(self, action)

    def _set(self, rank: int, phase: str, detail: str = "") -> None:
        state = self.nodes.get(rank)
        if state is None or (state.phase, state.detail) == (phase, detail):
            return
        if state.phase != phase:
            state.phase, state.since = phase, self._now
        state.detail = detail
        self.changed += 1
        if phase == RUNNING and rank == self.me and not self._boot:
            self._boot = self._now - self._begun

    def _on_door(self, event: events.EndpointReady) -> None:
        self._look_at_names()

    def _on_name(self, event: events.NameState) -> None:
        self._names[event.host] = event.state
        if self.nodes[self.me].phase in (NAMES, ROLL_CALL):
            self._look_at_names()

    def _look_at_names(self) -> None:
        why = "; ".join(f"{host}: {state}" for host, state in self._names.items() if state)
        self._set(self.me, NAMES if why else ROLL_CALL, why)

    def _on_answered(self, event: events.Answered) -> None:
        self._heard(event.node)
        self._set(event.node, JOINED)

    def _on_disagreed(self, event: events.Rejected) -> None:
        self._set(event.node, MISSING, f"{event.summary}: {event.detail}")

    def _on_unreached(self, event: events.Unreachable) -> None:
        if not self._leads and self.nodes[0].phase == MISSING:  # the leader's machine says by itself who is missing
            self._set(0, MISSING, event.why)

    def _on_lost(self, event: events.SessionLost) -> None:
        if self._leads or self.nodes[0].phase in _STILL:
            return
        why = event.why or "its session ended"
        if self.nodes[self.me].phase == JOINED:
            self._set(self.me, ROLL_CALL)
        self._set(0, MISSING if self.nodes[self.me].phase == ROLL_CALL else LOST, why)

    def _heard(self, rank: int) -> None:
        if rank != self.me and (state := self.nodes.get(rank)):
            state.heard = self._now

    def _on_heard(self, event: events.MessageReceived) -> None:
        self._heard(event.node)
        state = self.nodes.get(event.node)
        if state is None:
            return
        match event.message:
            case messages.Pong(idle):
                state.idle = (max(0.0, idle), self._now)
            case messages.RankStart():
                state.started = (state.started or 0) + 1
                self._ran(event.node)
            case messages.RankEnd():
                state.ended += 1
            case messages.Ended() if self._draft.launch.reports != "ranks":
                state.ended += 1
            case messages.Goodbye() if state.phase != LOST:
                self._set(event.node, ENDED)
            case messages.Failed(_, reason):
                self._set(event.node, state.phase, reason)
            case messages.Hello() if not self._leads:
                self._set(0, ROLL_CALL)
            case messages.Start() if not self._leads:
                self._set(0, RUNNING)
            case messages.Stop() | messages.Release() if not self._leads:
                self._set(0, ENDING)
                if isinstance(event.message, messages.Release):
                    self._set(self.me, RELEASED)

    def _ran(self, rank: int) -> None:
        """A rank of this node has started. Once all ranks of the job have, no node launches any more."""
        if self.nodes[rank].phase == LAUNCHING:
            self._set(rank, RUNNING)
        if self._asked and sum(state.started or 0 for state in self.nodes.values()) >= self._asked:
            for each, state in self.nodes.items():
                if state.phase == LAUNCHING:
                    self._set(each, RUNNING)

    # -- what is done about it

    def _did_miss(self, action: actions.ShowWaiting) -> None:
        if action.peers and action.state and action.host in self._ranks:
            self._set(self._ranks[action.host], MISSING, action.state)

    def _did_send(self, action: actions.Send) -> None:
        if (state := self.nodes.get(action.node)) and state.phase == LOST:
            return  # it may hear it, should it wake
        match action.message:
            case messages.Start():
                self._told_to_start(action.node)
            case messages.Stop():
                self._set(action.node, ENDING)
            case messages.Release():
                self._set(action.node, RELEASED)

    def _told_to_start(self, rank: int) -> None:
        if rank not in self.nodes:
            return
        if self._draft.launch.reports == "ranks":
            self.nodes[rank].started = self.nodes[rank].ended = 0
            self._set(rank, LAUNCHING)
            return
        if rank == self.me:  # how many programs another node starts is its own matter
            self.nodes[rank].started = len(self._draft.launch.programs)
        self._set(rank, RUNNING)

    def _did_report(self, action: actions.AnswerRollCall) -> None:
        self._set(self.me, JOINED)

    def _did_prepare(self, action: actions.Prepare) -> None:
        self._set(self.me, FILES)

    def _on_prepared(self, event: events.Prepared) -> None:
        self._asked = event.asked

    def _did_lose(self, action: actions.NodeLost) -> None:
        self._set(action.node, LOST, action.why)

    def _did_end(self, action: actions.EndNode) -> None:
        self._set(self.me, ENDED, f"{action.outcome.reason}; exit {action.outcome.status}")

    # -- for others

    def snapshot(self, now: float, attempt: int, outcome: Outcome | None, idle: float | None = None) -> dict[str, Any]:
        """All of it as JSON has it, with durations in seconds. `idle`: seconds that this node has printed nothing."""
        this = self._topology.this
        return {
            "version": VERSION,
            "toolkit": __version__,
            "job": self._topology.job,
            "node": this.label,
            "host": this.host,
            "launcher": self._draft.launcher,
            "attempt": attempt,
            "phase": self.nodes[self.me].phase,
            "up_seconds": _seconds(now - self._begun),
            "boot_seconds": _seconds(self._boot) if self._boot else None,
            "job_nodes": len(self._topology.nodes),
            "roll_call": self._draft.roll_call,
            "outcome": {"status": outcome.status, "reason": outcome.reason} if outcome else None,
            "nodes": [self._node(rank, now, idle) for rank in sorted(self.nodes)],
        }

    def _node(self, rank: int, now: float, idle: float | None) -> dict[str, Any]:
        node, state = self._topology.nodes[rank], self.nodes[rank]
        runs = state.phase == RUNNING
        if rank != self.me:
            idle = state.idle[0] + now - state.idle[1] if state.idle else None
        return {
            "node": node.label,
            "host": node.host,
            "phase": state.phase,
            "since_seconds": _seconds(now - state.since),
            "heartbeat_seconds": None if state.heard is None else _seconds(now - state.heard),
            "ranks": state.started,
            "ranks_ended": state.ended,
            "idle_seconds": _seconds(idle) if runs and idle is not None else None,
            "detail": state.detail,
        }


def _seconds(value: float) -> float:
    return round(max(0.0, value), 3)


_EVENTS: Mapping[type, Callable[[NodeTable, Any], None]] = {
    events.EndpointReady: NodeTable._on_door,
    events.NameState: NodeTable._on_name,
    events.Answered: NodeTable._on_answered,
    events.Alive: lambda board, event: board._heard(event.node),
    events.Rejected: NodeTable._on_disagreed,
    events.Unreachable: NodeTable._on_unreached,
    events.SessionLost: NodeTable._on_lost,
    events.MessageReceived: NodeTable._on_heard,
    events.Prepared: NodeTable._on_prepared,
}
_ACTIONS: Mapping[type, Callable[[NodeTable, Any], None]] = {
    actions.ShowWaiting: NodeTable._did_miss,
    actions.Send: NodeTable._did_send,
    actions.AnswerRollCall: NodeTable._did_report,
    actions.Prepare: NodeTable._did_prepare,
    actions.NodeLost: NodeTable._did_lose,
    actions.EndNode: NodeTable._did_end,
}
