"""The state of one attempt that the parts of a node's machine share. Only `enter` changes a phase."""

from __future__ import annotations

from collections.abc import Iterable

from entrypoint.job import actions
from entrypoint.job.machine import Scheduler
from entrypoint.model import Outcome
from entrypoint.phases import ALLOWED, ALLOWED_OF_OTHERS, Phase

_CALLING = (Phase.CHECKS, Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)


class JobState:
    """The phase of this node, those of the others as far as it knows them, and how the attempt is to end."""

    def __init__(self, scheduler: Scheduler, me: int, others: Iterable[int]) -> None:
        self._scheduler = scheduler
        self._me = me
        self._phases = dict.fromkeys(others, Phase.MISSING) | {me: Phase.CHECKS}
        self._details = dict.fromkeys(self._phases, "")
        self._entered = {Phase.CHECKS}
        # The first outcome decided, whatever comes later.
        self.outcome: Outcome | None = None
        # Somebody asked this node, or the job, to stop: before or after its outcome was known.
        self.stop: Outcome | None = None
        # Force stop, after a second signal: nobody waits for the grace.
        self.force = False

    @property
    def phase(self) -> Phase:
        """The phase of this node."""
        return self._phases[self._me]

    @property
    def is_calling(self) -> bool:
        """Whether the roll call is not over yet."""
        return self.phase in _CALLING

    @property
    def has_started(self) -> bool:
        """Whether everyone answered, and the ranks were told to start."""
        return self.has_entered(Phase.LAUNCHING)

    @property
    def is_released(self) -> bool:
        """Whether the outcome was told: on the leader to all nodes, on a worker to this one."""
        return self.has_entered(Phase.RELEASED)

    def has_entered(self, phase: Phase) -> bool:
        """Whether this node is in that phase, or was in it during this attempt."""
        return phase in self._entered

    def of(self, node: int) -> Phase:
        """The phase of a node, as far as this one knows it."""
        return self._phases[node]

    def enter(self, phase: Phase, node: int | None = None, detail: str = "") -> None:
        """Change the phase of a node, this one where none is given, or only what is known of it in detail.

        Raises ValueError if this node itself may not enter that phase now.
        """
        node = self._me if node is None else node
        before = self._phases.get(node)
        if before is None or (before, self._details[node]) == (phase, detail):
            return
        allowed = ALLOWED if node == self._me else ALLOWED_OF_OTHERS
        if phase is not before and phase not in allowed.get(before, ()):
            if node == self._me:
                raise ValueError(f"{before.name} is not followed by {phase.name}")
            return
        self._phases[node] = phase
        self._details[node] = detail
        if node == self._me:
            self._entered.add(phase)
        self._scheduler.act(actions.Entered(node, phase, detail))

    def ranks_have_started(self) -> None:
        """The first rank or program of this node has started."""
        if self.phase is Phase.LAUNCHING:
            self.enter(Phase.OUTPUT)

    def ranks_have_printed(self) -> None:
        """The first rank or program of this node has printed."""
        if self.phase is Phase.OUTPUT:
            self.enter(Phase.RUNNING)

    def note(self, node: int, detail: str) -> None:
        """Something is known of a node in detail, in the phase that it is in."""
        if node in self._phases:
            self.enter(self._phases[node], node, detail)

    def end(self, outcome: Outcome) -> None:
        """This node's part of the attempt is over."""
        self.enter(Phase.ENDED, detail=f"{outcome.reason}; exit {outcome.status}")
        self._scheduler.end(outcome)
