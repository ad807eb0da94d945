"""One program or rank in the keeper: its process, its streams, what it leaves running, and what its
machine (rank.py) wants done."""

from __future__ import annotations

import os
import time

from entrypoint.base.values import dataclass
from entrypoint.output.stream import Stream, Target, take_rest
from entrypoint.ranks import rank as machine
from entrypoint.ranks.below import WRAPPERS, Below, cut_message
from entrypoint.ranks.nested import NestedLaunchers
from entrypoint.ranks.nested import message as nested_message
from entrypoint.ranks.orders import Report, Tail
from entrypoint.ranks.rank import KILL, NEVER, TERM, Rank, State
from entrypoint.system.proc import kill, name_of

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable, Mapping
    from typing import Any

    from entrypoint.base.kept import KeptForm
    from entrypoint.ranks.below import Family
    from entrypoint.ranks.placeholder import Requests, Watch

# Seconds after the start until nested launchers are looked for, and at most between two looks: a
# sixteenth of the rank's age.
_FIRST_LOOK = 0.1
_PAUSE = 8.0
_NESTED = 78
_USER_SIGNALS = (10, 12)  # SIGUSR1 and SIGUSR2


@dataclass
class Streams:
    """The streams of a program, with the last bytes of both."""

    all: list[Stream]
    tail: bytearray
    own: tuple[Target, ...] = ()  # targets that nobody else prints into
    is_closed = False  # whether that was told
    waiting = 0  # bytes, as was told last
    has_printed = False

    @property
    def of_ranks(self) -> int:
        """Return the bytes that wait for a reader, without a launcher's own text."""
        return sum(stream.waiting for stream in self.all if stream.is_of_rank)

    def close_targets(self) -> bool:
        """Close what nobody else prints into, once nothing waits for it: its reader then knows that
        no more comes. Return whether that is so."""
        is_done = not any(stream.open or stream.waiting for stream in self.all)
        if is_done:
            for target in self.own:
                target.close()
            self.own = ()
        return is_done

    def close(self) -> None:
        """Read no more than is there."""
        take_rest(self.all)
        for stream in self.all:
            stream.close()

    def stop(self) -> None:
        """Have the program never wait for a reader from now on."""
        for stream in self.all:
            stream.is_stopped = True


@dataclass
class Launched:
    """A rank's relation to the launcher that has started its placeholder."""

    pid: int  # of its placeholder
    launcher: int  # pid of the process that started that
    owner: Kept | None  # the program of this node that this belongs to
    watch: Watch
    is_gone: bool = False  # whether its placeholder has ended
    passed: int | None = None  # bytes passed on when the launcher began to end
    status: int | None = None  # that the placeholder was told
    # as in forked.ToStart: a launcher takes its closing for the rank's end, so it stays open here
    passed_fd: tuple[int, int] | None = None


class Kept:
    """A program or rank. `tell` gets its reports."""

    has_exited = False
    is_nested = False  # whether it was killed because a launcher ran below it
    launched: Launched | None = None  # of a rank that a launcher has started
    requests: Requests | None = None
    next_look = NEVER  # for nested launchers
    _begun = 0.0  # when it was first looked for them

    def __init__(
        self,
        name: tuple[str, int, str],
        form: KeptForm,
        pid: int,
        streams: Streams,
        family: Callable[[Kept], Family],
        tell: Callable[[Any], None],
    ) -> None:
        """`name`: kind, number, and what its environment has as MARK; `pid`: 0 if it could not be
        started."""
        self.kind = name[0]
        self.number = name[1]
        self.mark = name[2]
        self.form = form
        self.pid = pid
        self.streams = streams
        self.rank = Rank(form)
        self._tell = tell
        self._family = family
        self._below = Below(self.family)
        self._launchers: NestedLaunchers | None = None

    def look_for_launchers(self, env: Mapping[str, str]) -> None:
        """Look for nested launchers from now on, if none may run; `env` is its environment."""
        if self.form.nested.strip("0"):
            self._launchers = NestedLaunchers(self.pid, self.form.nested, env)
            self._begun = time.monotonic()
            self.next_look = self._begun + _FIRST_LOOK

    def family(self) -> Family:
        """Return its processes besides its own, and what it has left running."""
        return self._family(self)

    def report(self, event: str, value: int = 0) -> None:
        """Report an event of it."""
        self._tell(Report(self.kind, self.number, event, value))

    # -- what happens

    def on(self, event: object) -> None:
        """Have its machine take an event, and do what that wants."""
        for action in self.rank.on(event, time.monotonic()):
            _ACTIONS[type(action)](self, action)

    def exited(self, status: int) -> None:
        """Note the end of its process."""
        take_rest(self.streams.all)
        self.look_at_streams()
        self.next_look = NEVER
        self.has_exited = True
        self.on(machine.Exited(_NESTED if self.is_nested else status))

    def look_at_streams(self) -> None:
        """Have the machine know what became of the output."""
        streams = self.streams
        if took := max((stream.took for stream in streams.all), default=0.0):
            self.rank.printed(took)
            if not streams.has_printed:
                streams.has_printed = True
                self.report("output")
        if (waiting := streams.of_ranks) != streams.waiting:
            streams.waiting = waiting
            self.on(machine.Drained(waiting))
        if not streams.is_closed and not any(stream.open for stream in streams.all):
            streams.is_closed = True
            self.on(machine.Closed())

    @property
    def belongs_to(self) -> Kept | None:
        """Return the program to which belongs what this leaves, once it is over."""
        return self.launched.owner if self.launched and self.form.is_apart else None

    @property
    def has_left(self) -> bool:
        """Return whether its launcher has its status."""
        return self.rank.state is State.OVER

    @property
    def placeholder(self) -> int:
        """Return the pid of its placeholder; 0 if it has none, or none any more."""
        return self.launched.pid if self.launched and not self.launched.is_gone else 0

    @property
    def is_answered(self) -> bool:
        """Return whether its placeholder has its status, and is still there."""
        launched = self.launched
        return launched is not None and launched.status is not None and not launched.is_gone

    @property
    def is_held(self) -> bool:
        """Return whether its launcher must not hear of its end yet."""
        return self.rank.state is State.HELD

    @property
    def is_leaving(self) -> bool:
        """Return whether what it left running has to be looked at."""
        return self.rank.state is State.LEAVING

    def look(self, now: float) -> None:
        """Kill it if a launcher runs below it, and print why."""
        if now < self.next_look or self._launchers is None:
            return
        pause = min(max(1.0, (now - self._begun) // 16), _PAUSE)
        self.next_look = (now // pause + 1) * pause  # at the same moment for all ranks
        if not self.is_nested and (name := self._launchers.found()):
            self.is_nested = True
            self.kill()
            self.streams.stop()
            if self.streams.all:
                self.streams.all[-1].say(os.fsencode(nested_message(name, self.form.nested)))

    def kill(self) -> None:
        """Kill all of its processes; a shell must not go on after what it has started."""
        family = self.family()
        if self.rank.state is State.RUNNING:
            _kill_group(self.pid, KILL)
        kill({*family, *self.family()}, KILL)

    # -- what its machine wants

    def _signal(self, action: machine.SendSignal) -> None:
        if action.signum == KILL:
            self.kill()
            return
        group = self._group()
        if group:
            _kill_group(group, action.signum)
        if action.signum == TERM:
            self.streams.stop()
            self._below.terminate(group, everywhere=not self.form.is_launcher)
        elif action.signum in _USER_SIGNALS and not self.form.is_launcher:
            self._below.tell_user_signal(action.signum, group)

    def _group(self) -> int:
        """Return the process group that gets a signal as one; 0 if each of its processes gets it,
        since a wrapper leads it, which would pass it on once more, or nobody does any more."""
        programs = [name for name, _ in self.family().values() if name not in WRAPPERS]
        is_wrapped = bool(programs) and name_of(self.pid) in WRAPPERS
        return 0 if self.has_exited or is_wrapped else self.pid

    def _signal_rest(self, action: machine.SignalRest) -> None:
        if action.cut and self.streams.all:
            self.streams.all[-1].say(cut_message(self.form.grace, self.family()))
        if action.signum == KILL:
            kill(self.family(), KILL)
        else:
            self._below.tell_the_rest()

    def _tell_end(self, action: machine.TellEnd) -> None:
        if action.status:
            self._tell(Tail(self.kind, self.number, bytes(self.streams.tail)))
        self.report("end", action.status)

    def _tell_launcher(self, action: machine.TellLauncher) -> None:
        if self.launched is not None:
            self.launched.passed = self._passed()
            self.report("launcher", self.launched.launcher)

    def _passed(self) -> int:
        return sum(stream.passed for stream in self.streams.all)

    def _close_streams(self, action: machine.CloseStreams) -> None:
        self.streams.close()
        self.streams.is_closed = True
        self.streams.waiting = self.streams.of_ranks
        self.on(machine.Drained(self.streams.waiting))

    def _drop_output(self, action: machine.DropOutput) -> None:
        for stream in self.streams.all:
            stream.target.drop(stream)

    def _tell_done(self, action: machine.TellDone) -> None:
        if lost := sum(stream.lost for stream in self.streams.all):
            self.report("lost", lost)
        late = sum(stream.unread for stream in self.streams.all) if self.form.by_mpi else 0
        if self.launched is not None and self.launched.passed is not None:
            late += self._passed() - self.launched.passed
        if late and not self.form.output.is_of_launcher:
            self.report("late", late)
        self.report("done")

    def _answer(self, action: machine.AnswerLauncher) -> None:
        self.streams.close_targets()
        if self.launched is not None and self.requests is not None:
            self.launched.status = action.status
            if self.launched.passed_fd is not None and action.status == self.rank.status:
                os.close(self.launched.passed_fd[1])
            elif self.launched.passed_fd is not None:  # the other ranks have not left yet
                self.requests.passed[self.launched.pid] = self.launched.passed_fd
            if not self.launched.is_gone:
                self.requests.answer(self.launched.pid, action.status)


_ACTIONS: Mapping[type, Callable[[Kept, Any], None]] = {
    machine.SendSignal: Kept._signal,
    machine.SignalRest: Kept._signal_rest,
    machine.TellEnd: Kept._tell_end,
    machine.TellLauncher: Kept._tell_launcher,
    machine.CloseStreams: Kept._close_streams,
    machine.DropOutput: Kept._drop_output,
    machine.TellDone: Kept._tell_done,
    machine.AnswerLauncher: Kept._answer,
}


def _kill_group(pid: int, signum: int) -> None:
    """Send a signal to a process that was not waited for, and to its group, which it may not lead
    yet."""
    if not pid:
        return  # it could not be started
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        kill([pid], signum)
