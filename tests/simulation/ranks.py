"""A rank's machine (entrypoint/ranks/rank.py) against schedules: what its processes, its reader, its
launcher and the entrypoint do at any moment, and what must hold whatever they do."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from entrypoint.base.kept import KeptForm, OutputForm
from entrypoint.ranks import rank as machine
from entrypoint.ranks.rank import BY_ITSELF, KILL, NEVER, STUCK, TERM, Rank, State

LOOK = 0.1  # seconds between two looks of the keeper at what is left running
SLACK = 3 * LOOK
AFTER_KILL = 1.0
USR1 = 10
Fact = tuple[float, object]
_ENDS = (machine.TellEnd, machine.TellDone, machine.AnswerLauncher)  # in this order


@dataclass(frozen=True, eq=False)
class Process:
    """A process of the rank. What it does when it is told to end: `saves` seconds later it has;
    NEVER: it ignores that. `ends`: when it ends by itself."""

    ends: float = NEVER
    saves: float = 0.0
    status: int = 0  # of the rank's own
    prints: bool = False  # until it ends, several times a second
    has_streams: bool = True
    is_immortal: bool = False  # the kernel waits for a device


@dataclass(frozen=True)
class Schedule:
    """What happens to one rank. `faults`: events with their times. `reads`: whether somebody reads
    the output from that time on, in order."""

    form: KeptForm
    program: Process
    rest: tuple[Process, ...] = ()  # what the program starts and leaves
    is_held_open: bool = False  # a process of nobody's has its streams
    reads: tuple[tuple[float, bool], ...] = ((0.0, True),)
    is_slow: bool = False  # whether the reader takes little at a time
    faults: tuple[Fact, ...] = ()
    killed: float = NEVER  # when the entrypoint's patience is over


def draw(random: Random) -> Schedule:
    """A schedule; the same for the same seed."""
    grace = random.choice((0.0, 0.3, 2.0, 30.0))
    by_mpi = random.random() < 0.4
    output = OutputForm(is_of_launcher=by_mpi and random.random() < 0.7)
    is_apart = not by_mpi and random.random() < 0.2
    form = KeptForm(output, grace, is_apart, by_mpi)

    def moment() -> float:
        return random.choice((0.0, random.uniform(0, 2), random.uniform(0, 40)))

    def process(of_rank: bool) -> Process:
        saves = random.choice((0.0, random.uniform(0, 3), grace + 1, NEVER))
        ends = NEVER if random.random() < 0.3 else moment()
        status = random.choice((0, 0, 7, 143))
        is_immortal = not of_rank and random.random() < 0.05
        prints, has_streams = random.random() < 0.4, of_rank or random.random() < 0.7
        return Process(ends, saves, status, prints and has_streams, has_streams, is_immortal)

    reads = [(0.0, random.random() < 0.8)]
    for _ in range(random.choice((0, 0, 1, 3))):
        reads.append((moment(), random.random() < 0.5))
    told: list[object] = [machine.Told(TERM), machine.Told(KILL), machine.Told(USR1)]
    if by_mpi:
        told += [machine.Released(), machine.LauncherEnds(), machine.LauncherGone()]
    else:
        told += [machine.Orphaned(), machine.LauncherEnds(), machine.LauncherGone()]
    faults = [(moment(), random.choice(told)) for _ in range(random.choice((0, 0, 1, 2, 4)))]
    rest = tuple(process(False) for _ in range(random.choice((0, 0, 1, 2))))
    program = process(True)
    soon = program.ends + random.uniform(0, 1)
    killed = random.choice((NEVER, random.uniform(0, 60), soon))
    is_held, is_slow = random.random() < 0.1, random.random() < 0.2
    return Schedule(
        form, program, rest, is_held, tuple(sorted(reads)), is_slow, tuple(faults), killed
    )


class Recorded(Rank):
    """A rank's machine whose states are noted."""

    def __init__(self, form: KeptForm) -> None:
        super().__init__(form)
        self.states = [State.RUNNING]

    def _enter(self, state: State, due: float = NEVER) -> None:
        super()._enter(state, due)
        self.states.append(state)


class World:
    """One rank, its processes and its streams in simulated time, as the keeper has them."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.is_of_launcher = schedule.form.output.is_of_launcher
        self.rank = Recorded(schedule.form)
        self.now = 0.0
        self.facts: list[Fact] = []  # events and actions, in order
        self.status: int | None = None
        self.waiting = 0
        self.lost = 0
        self.moved = 0.0  # when the reader last took something, or the first came to wait
        self.printed = 0.0
        self.rest_signals: list[tuple[float, int]] = []
        self._is_killed = False
        self._closed = False  # the streams, by the keeper
        self._is_closed_told = False
        self._ends = {each: each.ends for each in (schedule.program, *schedule.rest)}
        self._queue: list[tuple[float, int, object]] = []
        for when, event in schedule.faults:
            self._at(when, event)
        self._at(schedule.killed, machine.Told(KILL))

    def _at(self, when: float, event: object) -> None:
        if when < NEVER:
            heapq.heappush(self._queue, (when, len(self._queue) + len(self.facts), event))

    # -- what there is

    @property
    def rest(self) -> list[Process]:
        """What the program has started that runs, besides itself."""
        return [each for each in self.schedule.rest if self._ends[each] > self.now]

    @property
    def is_open(self) -> bool:
        """Whether a process has the streams."""
        has_streams = any(each.has_streams for each in self.rest)
        return self.status is None or has_streams or self.schedule.is_held_open

    @property
    def reads(self) -> bool:
        """Whether somebody reads."""
        return [reads for when, reads in self.schedule.reads if when <= self.now][-1]

    # -- the loop

    def run(self) -> None:
        """Until the rank is over and nothing more can happen."""
        times = [when for when, _ in (*self.schedule.faults, *self.schedule.reads)]
        times += [when for when in (*self._ends.values(), self.schedule.killed) if when < NEVER]
        limit = max(times) + 3 * self.schedule.form.grace + STUCK + 20
        while self.now <= limit and not (self.rank.state is State.OVER and not self._queue):
            self._step()

    def _step(self) -> None:
        self._look_at_streams()
        own = self._ends[self.schedule.program]
        if self.status is None and own <= self.now:
            self.status = 137 if self._is_killed else self.schedule.program.status
            self._look_at_streams()
            self._on(machine.Exited(self.status))
        if self.rank.state is State.LEAVING:
            self._on(machine.Alone(not self.rest))
        while self._queue and self._queue[0][0] <= self.now:
            self._on(heapq.heappop(self._queue)[2])
        if self.now >= self.rank.due:
            self._on(machine.Due())
        # A due time that stays in the past would be met again without end.
        times = [when for when in (self.now + LOOK, self.rank.due) if when > self.now]
        times += [when for when, _, _ in self._queue[:1]]
        times += [own] if self.status is None else []
        self.now = max(self.now + 1e-6, min(times))

    def _look_at_streams(self) -> None:
        printing = [each for each in self.rest if each.prints]
        if self.status is None and self.schedule.program.prints:
            printing.append(self.schedule.program)
        if printing and not self._closed:
            if not self.waiting:
                self.moved = self.now
            self.waiting += 20
            self.printed = self.now
            self.rank.printed(self.now)
        if self.reads and self.waiting:
            self.waiting = max(0, self.waiting - 1) if self.schedule.is_slow else 0
            self.moved = self.now
        self._on(machine.Drained(self.waiting))
        if not self.is_open and not self._is_closed_told:
            self._is_closed_told = True
            self._on(machine.Closed())

    def _on(self, event: object) -> None:
        self.facts.append((self.now, event))
        actions = self.rank.on(event, self.now)
        for action in actions:
            self.facts.append((self.now, action))
            self._do(action)

    def _do(self, action: object) -> None:
        match action:
            case machine.SendSignal(signum):
                self._signal(self._ends, signum)
            case machine.SignalRest(signum):
                self.rest_signals.append((self.now, signum))
                self._signal(self.rest, signum)
            case machine.CloseStreams():
                self._closed = self._is_closed_told = True
                self._on(machine.Drained(self.waiting))
            case machine.DropOutput():
                self.lost += self.waiting
                self.waiting = 0

    def _signal(self, processes: Iterable[Process], signum: int) -> None:
        for each in list(processes):
            if self._ends[each] <= self.now or each.is_immortal:
                continue
            if signum == KILL:
                self._is_killed |= each is self.schedule.program
                self._ends[each] = self.now
            elif signum == TERM and each.saves < NEVER:
                self._ends[each] = min(self._ends[each], self.now + each.saves)

    @property
    def transitions(self) -> set[tuple[State, State]]:
        """Which ways it took from one state to another."""
        return {*itertools.pairwise(self.rank.states)}

    # -- what must hold

    def wrong(self) -> list[str]:
        """What does not hold."""
        return [text for text, is_wrong in self._checks() if is_wrong]

    def _of(self, kind: type) -> list[Fact]:
        return [(when, fact) for when, fact in self.facts if isinstance(fact, kind)]

    def _when(self, kind: type) -> float:
        return min((when for when, _ in self._of(kind)), default=NEVER)

    def _signals_told(self) -> list[tuple[float, int]]:
        return [(when, fact.signum) for when, fact in self.facts if isinstance(fact, machine.Told)]

    def _told(self, *signals: int) -> float:
        """When one of these was first sent by somebody."""
        told = [when for when, signum in self._signals_told() if signum in signals]
        if not self.schedule.form.by_mpi:
            # only to one that runs, but it is no harm to believe that it always counts
            told += [self._when(machine.LauncherGone)]
            told += [self._when(machine.LauncherEnds)] if TERM in signals else []
            orphaned = self._when(machine.Orphaned)
            told += [orphaned if TERM in signals else orphaned + self.schedule.form.grace]
        return min(told, default=NEVER)

    def _checks(self) -> Iterable[tuple[str, bool]]:
        form, facts = self.schedule.form, self.facts
        end, done, answer = map(self._when, _ENDS)
        exited = self._when(machine.Exited)
        order = [fact for _, fact in facts if isinstance(fact, _ENDS)]
        kinds = tuple(map(type, order))
        yield "end, done and answer are not told once, in order", kinds != _ENDS[: len(kinds)]
        yield (
            "its end is told with another status",
            any(isinstance(each, machine.TellEnd) and each.status != self.status for each in order),
        )
        yield "it is over, and nobody was told", self.rank.state is State.OVER and len(kinds) < 3
        is_early = bool(self.status) or (form.by_mpi and self._told(TERM) < exited)
        yield "a failure is not told at once", exited < NEVER and is_early and end > exited
        killed = self._told(KILL)
        kept_waiting = (end < min(NEVER, killed) and self.status == 0 and not is_early
                        and not (form.by_mpi and self._told(TERM) <= end))  # fmt: skip
        kept_waiting = kept_waiting and not form.is_apart
        yield (
            "a success is told before its output is passed on",
            kept_waiting and bool(self._waited_at(end)),
        )
        yield "a success is told while it may still print", kept_waiting and self._is_left_at(end)
        yield "output is lost", bool(self.lost) and not (killed <= done or self._is_stuck)
        yield from self._checks_of_signals(exited, killed, done)
        yield from self._checks_of_launcher(answer, done)
        yield from self._checks_of_time(exited, done)

    def _waited_at(self, when: float) -> int:
        facts = [(at, fact) for at, fact in self.facts if isinstance(fact, machine.Drained)]
        return next((fact.waiting for at, fact in reversed(facts) if at <= when), 0)

    def _is_left_at(self, when: float) -> bool:
        """Whether a process that the program has left, and that may be ended, ran at this time."""
        return any(self._ends[each] > when for each in self.schedule.rest if not each.is_immortal)

    @property
    def _is_stuck(self) -> bool:
        """Whether nobody has taken its output for so long that it may be lost."""
        drops = self._when(machine.DropOutput)
        return drops - self.moved >= min(STUCK, drops) - SLACK and not self.is_of_launcher

    def _checks_of_signals(
        self, exited: float, killed: float, done: float
    ) -> Iterable[tuple[str, bool]]:
        terminated = self._told(TERM)
        signals = [
            (when, fact.signum) for when, fact in self.facts if isinstance(fact, machine.SendSignal)
        ]
        for when, signum in signals:
            yield "it gets SIGTERM, and nobody wants that", signum == TERM and when < terminated
            yield "it gets SIGKILL, and nobody wants that", signum == KILL and when < killed
        for when, signum in self._signals_told():
            yield "a signal is not passed on", when < exited and (when, signum) not in signals
        for when, signum in self.rest_signals:
            terms = [at for at, other in self.rest_signals if other == TERM and at <= when]
            waited = when - min(terms, default=when)
            yield (
                "what it left is killed before the grace is over",
                (signum == KILL and when < killed and waited < self.schedule.form.grace - 1e-9),
            )
            is_told = terminated <= when
            yield (
                "what it left is ended before it could end by itself",
                (
                    signum == TERM
                    and not is_told
                    and when < exited + min(BY_ITSELF, self.schedule.form.grace) - 1e-9
                ),
            )
            is_cut = any(
                at == when and fact.signum == TERM and fact.cut  # type: ignore[attr-defined]
                for at, fact in self._of(machine.SignalRest)
            )
            prints = min(self.printed, when) > when - BY_ITSELF + 1e-9 and when > exited
            ends = exited + self.schedule.form.grace - 1e-9
            yield (
                "what still prints is ended before the grace is over",
                (signum == TERM and not is_told and prints and when < ends),
            )
            yield (
                "what still prints is ended without a word",
                (signum == TERM and not is_told and prints and not is_cut),
            )
        is_left = done < NEVER and self._is_left_at(done)
        yield "it is done, and what it left runs", is_left and not self.schedule.form.is_apart

    def _checks_of_launcher(self, answer: float, done: float) -> Iterable[tuple[str, bool]]:
        form = self.schedule.form
        told = self._of(machine.TellLauncher)
        ends = min(self._when(machine.LauncherEnds), self._when(machine.LauncherGone))
        most = int(form.by_mpi and ends < NEVER)
        yield "a launcher that ends is told twice, or nobody sees one", len(told) > most
        yield "nobody is told of a launcher that ends", form.by_mpi and ends < done and not told
        released = min(self._when(machine.Released), self._when(machine.LauncherGone))
        for when, fact in self._of(machine.AnswerLauncher):
            status = fact.status  # type: ignore[attr-defined]
            yield "a launcher hears of another status", status != self.status and not form.by_mpi
            yield (
                "an MPI hears of a failure before the others have ended",
                (form.by_mpi and bool(self.status) and when < released),
            )
            yield (
                "an MPI hears of a failure that ends its other ranks",
                (form.by_mpi and bool(status)),
            )
            stops = form.by_mpi and self._told(TERM) < self._when(machine.Exited)
            yield (
                "an MPI hears of a stop within the grace",
                (stops and not self.status and when < min(released, done + form.grace) - 1e-9),
            )

    def _checks_of_time(self, exited: float, done: float) -> Iterable[tuple[str, bool]]:
        form = self.schedule.form
        told = [
            when
            for when, fact in self.facts
            if when < done and fact in (machine.Told(KILL), machine.LauncherGone())
        ]
        limit = exited + 2 * form.grace + BY_ITSELF
        limit = max([limit, *told]) + AFTER_KILL + SLACK
        is_slow = self.schedule.is_slow
        is_read = all(reads for _, reads in self.schedule.reads) and not is_slow
        yield "it is not done in time", exited < NEVER and is_read and done > limit
        is_of_launcher = self.is_of_launcher
        stuck = max([limit, *(when for when, _ in self.schedule.reads)]) + STUCK
        yield (
            "a failure waits for a reader who does not read",
            bool(self.status and not is_of_launcher and not is_slow and done > stuck),
        )
        killed = max([self.schedule.killed, *(when for when, _ in self.schedule.reads)])
        yield (
            "a force stop does not end it",
            not (is_of_launcher or is_slow) and (done > killed + AFTER_KILL + STUCK + SLACK),
        )
        is_over = self.rank.state is State.OVER
        yield (
            "it is done, and its launcher never hears of it",
            (done < NEVER and not is_over and not (form.by_mpi and self.status)),
        )
        gone, orphaned = self._when(machine.LauncherGone), self._when(machine.Orphaned)
        yield "it did not end with its launcher", not form.by_mpi and exited > gone + SLACK
        yield (
            "it outlives the program that has started it",
            not form.by_mpi and (exited > orphaned + form.grace + SLACK),
        )
        released = max((when for when, _ in self._of(machine.Released)), default=NEVER)
        yield (
            "it is released, and its launcher never hears of it",
            (released < NEVER and done < NEVER and not is_over),
        )


def check(schedule: Schedule) -> World:
    """Run a schedule to its end."""
    world = World(schedule)
    world.run()
    return world
