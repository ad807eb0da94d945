"""The life of one program or rank in the keeper: a state machine without I/O.

    RUNNING   its process runs
    LEAVING   it has ended; what it left running has SIGTERM, then the grace, then SIGKILL
    FLUSHING  all of its output is read, and waits for a reader
    HELD      all is told; its launcher, an MPI, must not hear of its end yet
    OVER      its launcher has its status

| event        | RUNNING                 | LEAVING             | FLUSHING          | HELD         |
|--------------|-------------------------|---------------------|-------------------|--------------|
| Exited       | a failure is told at    |                     |                   |              |
|              | once; LEAVING           |                     |                   |              |
| Told TERM    | to all of its processes | to what is left     |                   |              |
| Told KILL    | to all of its processes | to what is left     | the rest is lost  |              |
| Told USR1, 2 | to its processes        | to what is left     |                   |              |
| Alone        |                         | with Closed:        |                   |              |
| Closed       |                         | with Alone: FLUSHING|                   |              |
| Drained      |                         |                     | HELD or OVER      |              |
| Due          |                         | TERM, KILL, give up | of a failure: lost|  OVER        |
| LauncherEnds | an MPI's: told once, the entrypoint gives ranks their grace; else as TERM |      |
| LauncherGone | an MPI's: the same; else as KILL                                  |  OVER        |
| Orphaned     | TERM, after the grace   |                     |                   |              |
|              | KILL; not an MPI's      |                     |                   |              |
| Released     | it will not be HELD                                               |  OVER        |

The keeper's own death kills all processes of its ranks, and so does the entrypoint's: the first by
the kernel (PR_SET_PDEATHSIG), the second by the keeper, which has no machine for that.
"""

from __future__ import annotations

from enum import Enum

from entrypoint.base.kept import KeptForm
from entrypoint.base.values import frozen

BY_ITSELF = 0.5  # seconds without output until leftovers get SIGTERM; `tee` ends with its input
STUCK = 5.0  # seconds after a failure until output that nobody reads is dropped
_AFTER_KILL = 1.0  # seconds until killed leftovers are given up
NEVER = float("inf")
TERM = 15
KILL = 9


class State(Enum):
    """The state of a program or rank; the head of this module describes the transitions."""

    RUNNING = "running"
    LEAVING = "leaving"
    FLUSHING = "flushing"
    HELD = "held"
    OVER = "over"


# The only ways from one state to another.
NEXT = {
    State.RUNNING: {State.LEAVING},
    State.LEAVING: {State.FLUSHING, State.OVER},
    State.FLUSHING: {State.HELD, State.OVER},
    State.HELD: {State.OVER},
    State.OVER: set(),
}


# -- events


@frozen
class Exited:
    """Its process has ended, with the status that a shell would give."""

    status: int


@frozen
class Alone:
    """The processes that it started were counted: `alone` if none is left."""

    alone: bool


@frozen
class Closed:
    """Nobody can print into its streams any more."""


@frozen
class Drained:
    """`waiting` bytes of its output wait for a reader."""

    waiting: int


@frozen
class Told:
    """The entrypoint, or the launcher, sends a signal."""

    signum: int


@frozen
class LauncherEnds:
    """Its launcher ends it."""


@frozen
class Orphaned:
    """The program that has started its launcher, or is it, has ended: it is what that left."""


@frozen
class LauncherGone:
    """The process that its launcher knows is gone."""


@frozen
class Released:
    """The other ranks have ended, so its launcher may hear of its end."""


@frozen
class Due:
    """The time `due` has come."""


# -- actions


@frozen
class SendSignal:
    """Send a signal to its processes; SIGTERM once to each."""

    signum: int


@frozen
class SignalRest:
    """Send a signal to what it left running; `cut`: it still prints, which is said."""

    signum: int
    cut: bool = False


@frozen
class TellEnd:
    """Report its end."""

    status: int


@frozen
class TellLauncher:
    """Report that its launcher ends its ranks."""


@frozen
class CloseStreams:
    """Read no more, pass on its last line, and tell Drained."""


@frozen
class DropOutput:
    """Its waiting output is lost."""


@frozen
class TellDone:
    """Report that nothing of it is left here."""


@frozen
class AnswerLauncher:
    """Give its launcher this status."""

    status: int


class Rank:
    """The machine of one program or rank. `on` takes an event and the time (monotonic seconds),
    and returns actions; at the time `due` it wants to be told."""

    def __init__(self, form: KeptForm) -> None:
        self._form = form
        # an MPI has all that its ranks printed: the leader decides how long that waits
        self._patience = NEVER if form.output.is_of_launcher else STUCK
        self.state = State.RUNNING
        self.status = 0  # of its process, once that has ended
        self.terminated = False  # whether it was sent SIGTERM
        self._is_killed = False  # whether it was to be killed
        self.due = NEVER
        self._is_open = True  # whether something may still print
        self._is_alone = False
        self._has_told_end = False
        self._has_told_launcher = False
        self._is_released = False
        self._waiting = 0  # bytes that a reader may still take; -1 until that is told
        self._printed = 0.0
        self._last = NEVER  # when leftovers that go on printing get SIGTERM
        self._signals: list[int] = []  # that leftovers still get
        self._actions: list[object] = []

    def printed(self, when: float) -> None:
        """Note when it, or what it left running, last printed: that has half a second more."""
        self._printed = when

    def on(self, event: object, now: float) -> list[object]:
        """Take an event, and return what to do."""
        self._actions = []
        match event:
            case Exited(status) if self.state is State.RUNNING:
                self._exited(status, now)
            case Alone(alone):
                self._is_alone = alone
            case Closed():
                self._is_open = False
            case Drained(waiting):
                if waiting != self._waiting and self.state is State.FLUSHING:
                    self.due = self._until_lost(now)
                self._waiting = waiting
            case Told(signum):
                self._told(signum, now)
            case Released() | LauncherGone() if self.state is State.HELD:
                self._over(0)
            case Released():
                self._is_released = True
            case Orphaned() if self.state is State.RUNNING and not self._form.by_mpi:
                self._told(TERM, now)
                self.due = min(self.due, now + self._form.grace)
            case Due() if self.state is State.RUNNING and now >= self.due:
                self.due = NEVER
                self._told(KILL, now)
            case LauncherEnds() | LauncherGone():
                self._launcher_ends(isinstance(event, LauncherGone), now)
        if self.state is State.LEAVING:
            self._leave(now)
        if self.state is State.FLUSHING and (not self._waiting or now >= self.due):
            self._flushed(now)
        elif self.state is State.HELD and now >= self.due:
            self._over(0)
        return self._actions

    def _enter(self, state: State, due: float = NEVER) -> None:
        if state not in NEXT[self.state]:
            raise ValueError(f"a rank cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.due = due

    @property
    def _is_end_told(self) -> bool:
        """Return whether its end is told before its output is passed on: a failure, and under an
        MPI that ends, since that waits for the ends of its ranks."""
        return bool(self.status or (self._form.by_mpi and self.terminated))

    def _until_lost(self, now: float) -> float:
        """Return when output that nobody takes from now on is dropped."""
        return now + self._patience if self._is_end_told or self._is_killed else NEVER

    def _exited(self, status: int, now: float) -> None:
        self.status = status
        is_told = self.terminated or self._is_killed
        self._enter(State.LEAVING, now + (0 if is_told else BY_ITSELF))
        self._last = now + self._form.grace
        self._signals = [KILL] if self._is_killed else [TERM, KILL]
        if self._is_end_told:
            self._tell_end()

    def _tell_end(self) -> None:
        if not self._has_told_end:
            self._has_told_end = True
            self._actions.append(TellEnd(self.status))

    def _told(self, signum: int, now: float) -> None:
        if signum == KILL:
            self._is_killed = True
            if self.state is State.RUNNING:
                self._actions.append(SendSignal(KILL))
            elif self.state is State.LEAVING:
                self._actions.append(SignalRest(KILL))
                if self._signals:  # otherwise they were killed before
                    self._signals = []
                    self.due = now + _AFTER_KILL
            elif self.state is State.FLUSHING:
                self.due = now
            return
        if signum == TERM:
            self.terminated = True
            if self.state is State.LEAVING and TERM in self._signals:
                self.due = now
                self._last = now
            if self.state is State.LEAVING and self._is_end_told:
                self._tell_end()
        if self.state is State.RUNNING or (self.state is State.LEAVING and signum != TERM):
            self._actions.append(SendSignal(signum))

    def _launcher_ends(self, is_gone: bool, now: float) -> None:
        if self.state not in (State.RUNNING, State.LEAVING, State.FLUSHING):
            return
        if not self._form.by_mpi:
            self._told(KILL if is_gone else TERM, now)
        elif not self._has_told_launcher:
            self._has_told_launcher = True
            self._actions.append(TellLauncher())

    def _leave(self, now: float) -> None:
        if self._form.is_apart and self._is_open:
            self._finish(now)
            return
        if TERM in self._signals and not self.terminated:
            self.due = max(self.due, min(self._printed + BY_ITSELF, self._last))
        while not (self._is_alone and not self._is_open) and now >= self.due:
            if self._is_alone or not self._signals:
                break  # the streams are held by no process of this program
            signum = self._signals.pop(0)
            is_cut = signum == TERM and not self.terminated and now < self._printed + BY_ITSELF
            self._actions.append(SignalRest(signum, is_cut))
            self.due = now + (self._form.grace if signum == TERM else _AFTER_KILL)
        if now >= self.due or ((self._is_alone or self._form.is_apart) and not self._is_open):
            self._actions.append(CloseStreams())
            self._waiting = -1
            self._enter(State.FLUSHING, self._until_lost(now))

    def _flushed(self, now: float) -> None:
        if self._waiting:
            self._actions.append(DropOutput())
            self._waiting = 0
        self._finish(now)

    def _finish(self, now: float) -> None:
        self._tell_end()
        self._actions.append(TellDone())
        if self._form.by_mpi and self._is_released:
            self._over(0)
        elif self._form.by_mpi and (self.status or self.terminated):
            self._enter(State.HELD, NEVER if self.status else now + self._form.grace)
        else:
            self._over(self.status)

    def _over(self, status: int) -> None:
        self._enter(State.OVER)
        self._actions.append(AnswerLauncher(status))
