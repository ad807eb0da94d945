"""Made-up programs: ranks that run for a time, save for a time when they are told to stop, fail, or
hang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from entrypoint.base import heartbeat
from entrypoint.base.cause import Cause
from entrypoint.features.netcheck import messages as netcheck
from entrypoint.job import events, messages
from entrypoint.ranks import below
from entrypoint.ranks.diagnosis import LIMIT as DIAGNOSIS
from tests.simulation import stalls
from tests.simulation.schedule import GRACE, HEARTBEAT

if TYPE_CHECKING:
    from tests.simulation.world import Container, World

_TERM, _KILL = 143, 137
# What a node finds out about a program that has failed by itself.
CAUSES = {
    "device": Cause("gpu-ecc", "root", "device", "elsewhere", "high", "{device} has an error"),
    "network": Cause("dns", "root", "network", "same", "high", "a name has no address"),
    "mistake": Cause("user-args", "root", "program", "no", "low", "an argument is wrong"),
    "guess": Cause("net-unreachable", "root", "network", "same", "low", "no route"),
}
# The same of one that the launcher has ended.
CASCADE = Cause("launcher-stop", "cascade", "peer", "unknown", "high", "it was ended")
_PRINTS = 0.5  # seconds until a program prints
_MEETS = 0.3  # seconds that a launcher takes to reach the others
_SAVES = 0.3  # seconds until a checkpoint is written
_ENDS_LATER = 1.0  # seconds that one which has joined the others later ends after them


@dataclass
class Process:
    """One rank, or one program of a node's own."""

    rank: int
    ended: int | None = None
    told: float | None = None  # when it got SIGTERM
    saves_until: float = 0.0  # what it then needs
    met: bool = False  # whether it is a launcher of an elastic job, and has met the others
    heard: int = 0  # how often its program had SIGTERM
    started: float = 0.0


# The processes below the keeper, of a rank whose group is 1: a shell, and its program, behind timeout(1) in
# another group.
_GROUP, _WRAPPER, _PROGRAM = 1, 11, 12
_APART = {
    pid: (name, ["S", str(parent), str(group)])
    for pid, name, parent, group in (
        (10, "sh", 1, 1),
        (_WRAPPER, "timeout", 10, 11),
        (_PROGRAM, "python", 11, 11),
    )
}
_TOGETHER = {_PROGRAM: ("python", ["S", "1", "1"])}


def times_heard(apart: bool) -> int:
    """How often the program has SIGTERM, sent to its rank's group, which the keeper
    passes on (below.py).

    A wrapper in another group passes it on, too, if it is told."""
    found = _APART if apart else _TOGETHER
    by_group = int(found[_PROGRAM][1][2]) == _GROUP
    told = below.outside(found, set(found), _GROUP)
    return by_group + told.count(_PROGRAM) + told.count(_WRAPPER)


class Programs:
    """What runs on one node. Under mpirun ranks are started from elsewhere, and each reports
    itself."""

    def __init__(self, world: World, container: Container) -> None:
        self._world, self._container = world, container
        self._boot = container.boots
        self._by_ranks = world.schedule.launcher == "mpirun"
        self._processes: list[Process] = []
        self._grace: float | None = None  # of the stop that was ordered
        self._forced = False
        self.leader_boot = 0  # of the leader that has started what runs here
        self._showed = False  # whether steps of ranks were reported last
        self.started = False
        self.attempt = 0  # that the leader has started
        self._works = False  # whether it is no spare
        self._has_saved = False
        self.stopped = False
        self._question = -1  # the number of the last one
        self._diagnoses = 0  # that are under way
        self._stop_began = 0.0

    def order(self, message: Any) -> None:
        """Do as the leader says."""
        if isinstance(message, messages.Start):
            self._start(message)
        elif isinstance(message, messages.StartDaemon):
            self._start_daemon()
        elif isinstance(message, (messages.Ping, messages.Stacks)):
            starts = {process.rank: process.started for process in self._running()}
            for answer in stalls.answers(
                self._world, self._container.rank, starts, message, self._showed
            ):
                self._tell(answer)
            if isinstance(message, messages.Ping):
                self._showed = bool(starts)
                self._tell(messages.Pong(0.0, message.number))
        elif isinstance(message, messages.Question):
            self._answer(message)
        elif isinstance(message, messages.Stop):
            self._stop(message.grace)

    def _tell(self, message: Any, seconds: float = 0.0) -> None:
        self._report(events.MessageReceived(self._container.rank, message), seconds)

    def _report(self, event: Any, seconds: float = 0.0) -> None:
        boot = self._boot
        self._world.after(
            seconds, lambda: self._container.give(event) if self._container.is_boot(boot) else None
        )

    def _answer(self, question: messages.Question) -> None:
        """Answer, unless another question comes before that."""
        schedule = self._world.schedule
        me = self._container.rank
        kind = question.body.get("kind", "")
        self._question = question.number
        latency = 9.0 if schedule.slow == me else 0.1
        answers: dict[str, Any] = {
            "Open": netcheck.Ready("gloo"),
            "Serve": netcheck.Serving(1),
            "Reduce": netcheck.Figures(latency, latency, 9.0),
        }
        body = netcheck.packed(answers[kind]) if kind else {}
        if schedule.nonsense == me:
            body = {"kind": "Nothing", "handles": "many"}
        # only when it is to measure, as the last one is not
        late = schedule.seed % 2 and me < schedule.nodes - 1 < 3
        if schedule.hangs != me or (kind == "Open" and late):
            boot, seconds = self._boot, schedule.measure if kind else schedule.look
            self._world.after(
                seconds or 0.0, lambda: self._reply(boot, messages.Reply(question.number, body))
            )

    def _reply(self, boot: int, reply: messages.Reply) -> None:
        if self._container.is_boot(boot) and self._question == reply.number:
            self._container.give(events.MessageReceived(self._container.rank, reply))

    def _start(self, order: messages.Start) -> None:
        self.started = True
        self.attempt = order.history.attempt
        self._world.watch_attempt(self._container, order.history.attempt)
        team = self._world.team_with(order.replaced)
        if self._world.schedule.look is not None:
            self._world.violate(f"a check starts the job on node-{self._container.rank}")
        self._works = self._container.rank in team
        if self._grace is not None or not self._works:
            return
        if not self._by_ranks:
            self.run(team.index(self._container.rank))
        elif self._container.rank == 0:
            self._world.mpirun = Mpirun(self._world, self, team)

    def _start_daemon(self) -> None:
        """mpirun's daemon; none on a node that stops already."""
        fails = self._world.schedule.mpirun == "fails"
        self._tell(
            messages.DaemonStarted(143 if self._grace is not None else 1 if fails else 0), 0.05
        )

    def run(self, rank: int) -> None:
        """A rank, or this node's own program, starts."""
        self._world.watch_rank(self._container)
        self._world.watch_overlap(self._container)
        process = Process(rank, started=self._world.now)
        if self._container.rank in self._world.schedule.all_unhealthy:
            self._world.violate(f"a rank runs on node-{self._container.rank}, not healthy")
        self.leader_boot = self._world.containers[0].boots
        self._processes.append(process)
        schedule = self._world.schedule
        self._report(events.RankChanged(f"rank {rank}", "start"))
        if self._by_ranks:
            self._tell(messages.RankStart(rank, 1))
        if rank % 2:  # the others print nothing
            self._report(events.RankChanged(f"rank {rank}", "output"), _PRINTS)
        if self._grace is not None:
            self._terminate(process, late=True)
        if not schedule.saves_late:
            self._world.after(_SAVES, self._save)
        if schedule.least:
            self._world.meetings.setdefault(self.leader_boot, Meeting(self._world)).come(
                self, process
            )
        else:
            is_sick = schedule.sick == self._container.rank
            seconds, status = (1.0, 7) if is_sick else (schedule.duration, schedule.status)
            if rank and schedule.after_first is not None:
                seconds += schedule.after_first
            self._world.after(seconds, lambda: self._finish(process, status, by_itself=True))

    def _save(self) -> None:
        """Its node sees that a checkpoint was written, if this attempt writes one."""
        schedule, rank = self._world.schedule, self._container.rank
        is_here = self._container.is_boot(self._boot) and self._works and not self._has_saved
        if is_here and rank == schedule.saver and schedule.makes_progress(self.attempt):
            self._has_saved = True
            self._world.progressed[self.attempt] = self._world.now
            self._tell(messages.Progressed())

    def can_meet(self, process: Process) -> bool:
        """Whether its launcher runs on, to meet others."""
        is_here = self._container.is_boot(self._boot)
        return is_here and process.ended is None and process.told is None

    def meet(self, process: Process) -> bool:
        """Its launcher meets the others; False if it has ended."""
        if self.can_meet(process):
            process.met = True
            self._tell(messages.Met())
        return process.met

    def end(self, process: Process, status: int) -> None:
        """It ends by itself, with the others that it has met."""
        self._finish(process, status, by_itself=True)

    def is_away(self) -> bool:
        """Whether something has happened to this node that ends its part."""
        return not self._container.is_boot(self._boot) or self._world.is_disturbed(
            self._container.rank
        )

    def fail(self, status: int) -> bool:
        """One that runs fails by itself, and the peers that it has met hang. Returns whether there
        was one."""
        for process in self._processes:
            if process.ended is None and process.told is None:
                if process.met or not self._world.schedule.least:
                    self._world.failures.append((self.leader_boot, self._container.rank, status))
                self._finish(process, status)
                return True
        return False

    def _finish(self, process: Process, status: int, by_itself: bool = False) -> None:
        is_first = self._world.schedule.after_first is not None and not process.rank
        hangs = self._world.hangs(self.leader_boot) and not is_first  # which waits for nobody
        if process.ended is not None or (by_itself and (process.told is not None or hangs)):
            return
        # else it met nobody
        if by_itself and status and not (self._world.schedule.least and status == 1):
            self._world.failures.append((self.leader_boot, self._container.rank, status))
        if status and self._grace is None:
            self._diagnose(status)
        process.ended = status
        if status == 0:
            if is_first and any(boot == self.leader_boot for boot, _, _ in self._world.failures):
                self._world.too_late.add(self.leader_boot)
            self._world.well.setdefault(self.leader_boot, set()).add(process.rank)
        if self._by_ranks:
            self._tell(messages.RankEnd(process.rank, status, (), ""))
        else:
            self._tell(
                messages.Ended(status, "torchrun", f"torchrun exited with {status}", (), True)
            )
        self._look()

    def _diagnose(self, status: int) -> None:
        """Find out why a program has failed, which takes a while."""
        schedule = self._world.schedule
        if not schedule.cause:
            return
        self._diagnoses += 1
        is_ended = status == _TERM
        cause = CASCADE if is_ended else CAUSES[schedule.cause]
        self._world.after(
            0.1 if is_ended else schedule.diagnosis, partial(self._report_cause, self._boot, cause)
        )

    def _report_cause(self, boot: int, cause: Cause) -> None:
        if self._container.is_boot(boot):
            self._diagnoses -= 1
            if not self.stopped:
                self._world.causes.append((self.leader_boot, self._container.rank, cause))
            self._container.give(
                events.MessageReceived(self._container.rank, messages.Diagnosis(cause))
            )
            self._look()

    def _waits_for_diagnoses(self) -> bool:
        waited = self._world.now - self._stop_began
        return bool(self._diagnoses and self._grace and waited < DIAGNOSIS and not self._forced)

    def _stop(self, grace: float) -> None:
        if self._grace is None:
            self._grace = grace
            self._stop_began = self._world.now
            self._world.after(DIAGNOSIS, self._look)
            # After the release all have had their grace: but for those that a success leaves.
            has_had = self._container.spoke and self._world.schedule.after_first is None
            hurried = has_had or self._world.hurried
            if grace < GRACE and self._running() and not hurried:
                self._world.violate(
                    f"programs on node-{self._container.rank} get {grace:.0f} s of grace"
                )
            for process in self._running():
                self._terminate(process)
            self._world.after(grace, self._kill)
        elif grace == 0 and not self._forced:
            self._forced = True
            self._kill()
        self._look()

    def _terminate(self, process: Process, late: bool = False) -> None:
        process.told = self._world.now
        process.heard += times_heard(self._world.schedule.apart == self._container.rank)
        if process.heard > 1:
            self._world.violate(f"rank {process.rank} hears SIGTERM {process.heard} times")
        if not process.heard:
            return  # it goes on as if nothing had happened, until it is killed
        # What starts only now has nothing to save, nor has a launcher that has met no other.
        alone = self._world.schedule.least and not process.met
        needs = 0.0 if late or alone else self._world.schedule.save[self._container.rank]
        process.saves_until = self._world.now + needs
        self._world.at(process.saves_until, lambda: self._finish(process, _TERM))

    def _kill(self) -> None:
        for process in self._running():
            if not process.heard:
                self._world.violate(f"rank {process.rank} is killed, and has never heard SIGTERM")
            self._finish(process, _KILL)

    def _running(self) -> list[Process]:
        return [process for process in self._processes if process.ended is None]

    def _look(self) -> None:
        if self._running():
            return
        if self._grace is not None and not self.stopped and not self._waits_for_diagnoses():
            self.stopped = True
            self._save()  # a node looks for the last time
            self._tell(messages.Stopped(self._world.saved(self._container.rank)))
        if self._world.mpirun and self._by_ranks:
            self._world.mpirun.look()

    def go_on(self) -> None:
        """What runs here is cut off, and runs until its node has noticed that and it has saved."""
        save = min(GRACE, self._world.schedule.save[self._container.rank])
        for process in self._running():
            noticed = self._world.now + heartbeat.patience(HEARTBEAT)
            until = save + (noticed if process.told is None else process.told)
            self._world.cut_off.append((self._container.rank, self.leader_boot, until))

    def vanish(self) -> None:
        """The container is gone, and all that ran in it."""
        for process in self._running():
            process.ended = _KILL

    def wronged(self) -> list[str]:
        """Programs that the end of the entrypoint takes with it, though they have time left to
        save."""
        now, words = self._world.now, []
        for process in self._running():
            if process.told is None:
                words.append(f"it ends, and rank {process.rank} was never told to stop")
            elif (
                not self._forced
                and self._grace
                and now < min(process.saves_until, process.told + GRACE - 0.01)
            ):
                words.append(f"it ends, and rank {process.rank} has time left to save")
        return words

    def runs_of_before(self, boot: int) -> bool:
        """Whether something runs here that an earlier boot of the leader has started."""
        return self.leader_boot < boot and not self.is_idle()

    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._running()

    def on_launchers_gone(self, then: Callable[[], None]) -> None:
        """Call this once mpirun has ended, or at once where it did or never ran."""
        if self._world.mpirun and self._by_ranks and not self._world.mpirun.has_ended:
            self._world.mpirun.after_end.append(then)
        else:
            then()

    def launcher_ended(self, status: int) -> None:
        """mpirun, which ran here, has ended."""
        self._tell(messages.Ended(status, "mpirun", f"mpirun exited with {status}", (), True))


class Meeting:
    """Launchers of an elastic job: once enough have come, their programs run and end together. One
    that comes later joins them; one that comes when they have ended waits, or fails."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._coming: list[tuple[Programs, Process]] = []
        self.met: list[tuple[Programs, Process]] = []
        self._first = 0  # how many have met first
        self.ends: float | None = None  # when their programs do

    def come(self, programs: Programs, process: Process) -> None:
        """A launcher of a node starts."""
        self._world.after(_MEETS, lambda: self._try(programs, process))

    def _try(self, programs: Programs, process: Process) -> None:
        schedule = self._world.schedule
        if self.ends is not None and self._world.now >= self.ends:
            if not schedule.waits:
                self._world.after(_MEETS, lambda: programs.end(process, 1))
            return
        self._coming = [it for it in (*self._coming, (programs, process)) if it[0].can_meet(it[1])]
        if len(self.met) + len(self._coming) < schedule.least:
            return
        met = [(each, process) for each, process in self._coming if each.meet(process)]
        self.met, self._coming = [*self.met, *met], []
        if self.ends is None:
            self.ends = self._world.now + schedule.duration
            self._first = len(self.met)
            self._world.at(self.ends, self._end)

    def _end(self) -> None:
        status = self._world.schedule.status
        for number, (programs, process) in enumerate(self.met):
            if number < self._first:
                programs.end(process, status)
            else:
                self._world.after(_ENDS_LATER, partial(programs.end, process, status))

    def unfinished(self) -> int:
        """How many that have met, and are there, have not ended with 0."""
        return sum(process.ended != 0 and not programs.is_away() for programs, process in self.met)


class Mpirun:
    """Starts a rank on every node, and ends when they have ended; it never notices a node that is
    gone."""

    def __init__(self, world: World, programs: Programs, team: tuple[int, ...]) -> None:
        self._world, self._programs = world, programs
        self.over = False
        self.has_ended = False
        self.passes_until = 0.0  # when all is passed on that ranks have printed
        self.after_end: list[Callable[[], None]] = []
        working = [world.containers[node] for node in team]
        self._members = [(container, container.boots) for container in working]
        self._left = len(self._members)
        self._idle = 0  # members of which the first ones have ended
        leader, boot = self._members[0]
        self._daemons = len(self._members) - 1  # that have not started yet
        if not self._daemons:
            self._begin_all()
        for number, (container, _) in enumerate(self._members[1:]):
            wanted = events.DaemonWanted(container.rank, "orted")
            seconds = 0.1 + 0.01 * (number % 50)
            world.after(
                seconds, lambda wanted=wanted: leader.give(wanted) if leader.is_boot(boot) else None
            )

    def answered(self, status: int) -> None:
        """The start of a daemon has ended. mpirun starts ranks when all are there, and none if one
        is not."""
        self._daemons -= 1
        if status and not self.over:
            self.over = True
            self._world.after(0.3, lambda: self._end(1))
        elif not self._daemons and not self.over:
            self._begin_all()

    def _begin_all(self) -> None:
        for place, (container, boot) in enumerate(self._members):
            seconds = 0.1 + 0.01 * (place % 50)
            self._world.after(seconds, partial(self._begin, place, container, boot))

    def _begin(self, place: int, container: Container, boot: int) -> None:
        self._left -= 1
        empty = self._world.schedule.empty
        if container.is_boot(boot) and container.rank != empty:
            behind = empty is not None and place > empty
            container.programs.run(place - behind)

    def look(self) -> None:
        """Whether all ranks have ended, on nodes that are there."""
        if self.over or self._left or self._world.schedule.mpirun == "stays":
            return
        # who has ended stays so: it is not looked at again before all have
        while self._idle < len(self._members) and self._has_ended(self._idle):
            self._idle += 1
        if self._idle == len(self._members) and all(map(self._has_ended, range(self._idle))):
            self.over = True
            statuses = [
                process.ended or 0
                for each, _ in self._members
                for process in each.programs._processes
            ]
            status = next(filter(None, statuses), 0)
            self.passes_until = self._world.now + self._world.schedule.passes
            self._world.after(0.1 + self._world.schedule.passes, lambda: self._end(status))

    def _has_ended(self, member: int) -> bool:
        """Whether the rank there has ended, on a node that is there."""
        container, boot = self._members[member]
        return container.is_boot(boot) and container.programs.is_idle()

    def written(self) -> int:
        """Bytes that it has written: more as long as it passes on what ranks have printed."""
        return 100 + round(1000 * min(self._world.now, self.passes_until))

    def is_passing(self) -> bool:
        """Whether the leader that started it waits for what it still has to pass on, unless it was
        told to hurry."""
        if self._world.now >= self.passes_until:
            return False
        hurried = self._world.schedule.of("twice") or sum(self._world.signals.values()) > 1
        leader, boot = self._members[0]
        return leader.is_boot(boot) and not hurried

    def _end(self, status: int) -> None:
        self.has_ended = True
        self._programs.launcher_ended(status)
        for then in self.after_end:
            then()
