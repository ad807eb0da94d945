"""The state of one attempt that the parts of a node's machine share. Only `enter` changes a
phase."""

from __future__ import annotations

import math

from entrypoint.base.cause import Saved
from entrypoint.base.history import FIRST, History
from entrypoint.base.model import NodeReport, Outcome, Plan
from entrypoint.base.phases import ALLOWED, ALLOWED_OF_OTHERS, Phase
from entrypoint.base.values import replace
from entrypoint.job import actions
from entrypoint.job.failure import LEFT, lost
from entrypoint.job.history import latest, no_progress, pays_off, save_words
from entrypoint.job.peers import Peers
from entrypoint.job.scheduler import Scheduler
from entrypoint.spec import JobSpec

_CALLING = (Phase.CHECKS, Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)


class JobState:
    """The job as this node knows it: its plan, deadlines, peers and phases, and how the attempt is
    to end."""

    # The first outcome decided, whatever comes later.
    outcome: Outcome | None = None
    # On the leader, somebody asked the job to stop: before or after its outcome was known.
    stop: Outcome | None = None
    # What the command prints that has asked the nodes, for stdout.
    answer = ""
    # Force stop, after a second signal: nobody waits for the grace.
    force = False
    # Whether progress was reported in this attempt, and the training step of most ranks.
    _has_progressed = False
    step = -1
    # The last save of those that nodes have reported.
    saved: Saved | None = None
    # On a worker, when (seconds) it has lost a leader in silence, also in an earlier attempt.
    leader_lost = -math.inf

    def __init__(self, spec: JobSpec, plan: Plan, history: History = FIRST) -> None:
        self.spec = spec
        self.plan = plan
        self.topology = plan.topology
        self.me = plan.topology.me
        self.scheduler = Scheduler()
        # On the leader, the workers that have answered.
        self.peers = Peers(spec.timeouts.heartbeat, plan.topology)
        self._phases = dict.fromkeys(plan.known_nodes, Phase.MISSING) | {self.me: Phase.CHECKS}
        self._details = dict.fromkeys(self._phases, "")
        self._entered = {Phase.CHECKS}
        # Of this attempt; on a worker the leader's, once that is known.
        self.history = history
        # On the leader, the history that each node has reported in its answer to the roll call,
        # also one that has left since.
        self.reported: dict[int, History] = {}

    @property
    def phase(self) -> Phase:
        """The phase of this node."""
        return self._phases[self.me]

    @property
    def is_calling(self) -> bool:
        """Return whether the roll call is not over yet."""
        return self.phase in _CALLING

    @property
    def has_started(self) -> bool:
        """Return whether everyone answered, and the ranks were told to start."""
        return self.has_entered(Phase.LAUNCHING) or self.has_entered(Phase.SPARE)

    @property
    def is_released(self) -> bool:
        """Return whether the outcome was told: on the leader to all nodes, on a worker to this
        one."""
        return self.has_entered(Phase.RELEASED)

    def has_entered(self, phase: Phase) -> bool:
        """Return whether this node is in that phase, or was in it during this attempt."""
        return phase in self._entered

    def of(self, node: int) -> Phase:
        """The phase of a node, as far as this one knows it."""
        return self._phases[node]

    def enter(self, phase: Phase, node: int | None = None, detail: str = "") -> None:
        """Change the phase of a node, this one where none is given, or only what is known of it in
        detail.

        Raises ValueError if this node itself may not enter that phase now.
        """
        node = self.me if node is None else node
        before = self._phases.get(node)
        if before is None or (before, self._details[node]) == (phase, detail):
            return
        allowed = ALLOWED if node == self.me else ALLOWED_OF_OTHERS
        if phase is not before and phase not in allowed.get(before, ()):
            if node == self.me:
                raise ValueError(f"{before.name} is not followed by {phase.name}")
            return
        self._phases[node] = phase
        self._details[node] = detail
        if node == self.me:
            self._entered.add(phase)
        self.scheduler.act(actions.Entered(node, phase, detail))

    def rank_changed(self, change: str) -> None:
        """A rank or program of this node has started or printed, and may be the first."""
        if change == "start" and self.phase is Phase.LAUNCHING:
            self.enter(Phase.OUTPUT)
        elif change == "output" and self.phase is Phase.OUTPUT:
            self.enter(Phase.RUNNING)

    def note(self, node: int, detail: str) -> None:
        """Something is known of a node in detail, in the phase that it is in."""
        if node in self._phases:
            self.enter(self._phases[node], node, detail)

    # -- attempts

    def hear_history(self, report: NodeReport) -> None:
        """A node has answered the roll call, and tells of earlier attempts."""
        before = self.reported.get(report.rank, FIRST)
        self.reported[report.rank] = report.history.most(before)

    def take_history(self, unknown: str) -> Outcome | None:
        """The roll call is over: this leader may know of fewer attempts than the others, and then
        says what else is `unknown`. Return the job's outcome if there is no attempt any more."""
        before = self.history
        self.history = now = latest(before, self.reported.values(), self.spec.restarts)
        if before != now:
            self.scheduler.log(
                f"this worker-0 is new: the other nodes are at attempt {now.attempt}"
            )
            if unknown:
                self.scheduler.log(unknown)
        if pays_off(self.history, self.spec.restarts):
            return None
        last = lost(self.topology.leader.name, "another leader has replaced it")
        return no_progress(last, self.history, self.spec)

    @property
    def has_progressed(self) -> bool:
        """Return whether this attempt has made progress: it was reported, or most ranks are now at
        a later step than any earlier attempt has reached."""
        return self._has_progressed or self.step > self.history.step

    def note_save(self, saved: Saved | None) -> None:
        """A node has stopped. The last save of all nodes counts."""
        known = filter(None, (self.saved, saved))
        self.saved = max(known, key=lambda it: (it.name > "", it.seconds or -1e9), default=None)

    def note_progress(self) -> None:
        """Something has changed, or ranks have run for long enough."""
        self._has_progressed = True

    def with_save(self, outcome: Outcome) -> Outcome:
        """Return the outcome with what the ranks have saved after SIGTERM, and log it. A success
        needs none."""
        if self.saved and outcome.status:
            self.scheduler.log(save_words(self.saved, self.spec))
            outcome = replace(outcome, saved=self.saved)
        return outcome

    def next_history(self) -> History:
        """Return the history of the attempt that would follow this one."""
        # A new leader may not have taken over yet what the nodes reported.
        now = latest(self.history, self.reported.values(), self.spec.restarts)
        cause = self.outcome.cause if self.outcome else None
        has_left = cause is not None and cause.slug == LEFT
        return now.next(self.has_started, self.has_progressed, self.step, has_left)

    def end(self, outcome: Outcome) -> None:
        """This node's part of the attempt is over."""
        self.enter(Phase.ENDED, detail=f"{outcome.reason}; exit {outcome.status}")
        self.scheduler.end(outcome)


class Machine:
    """The common part of the state machines of leader and worker."""

    state: JobState

    @property
    def outcome(self) -> Outcome | None:
        """The first outcome decided."""
        return self.state.outcome

    @property
    def wake(self) -> float:
        """Return when `handle` is to be called at the latest."""
        return self.state.scheduler.wake
