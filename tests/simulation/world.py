"""Leaders and workers in simulated time: the real machines, on a made-up network, with made-up
programs.

Nothing here waits, sleeps or runs a program: a heap of things to come is the clock.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache, partial
from shlex import split
from typing import Any

from entrypoint import __version__
from entrypoint.base import heartbeat
from entrypoint.base.cause import Cause, Saved
from entrypoint.base.history import History
from entrypoint.base.model import Facts, NodeReport, Outcome, Plan, Topology
from entrypoint.base.phases import Phase
from entrypoint.base.values import replace
from entrypoint.features.health.report import CheckOptions
from entrypoint.features.health.report import inquiry as check
from entrypoint.features.netcheck.coordinator import inquiry as netcheck
from entrypoint.features.record.content import PeerTimes
from entrypoint.features.record.observer import JobObserver
from entrypoint.job import actions, events, failure, messages
from entrypoint.job.leader import Leader
from entrypoint.job.membership.team import FAULTS, Team
from entrypoint.job.waits import KILL_MARGIN
from entrypoint.job.worker import Worker
from entrypoint.plan import settle
from entrypoint.plan.members import team_of
from entrypoint.spec import JobSpec, load
from tests.simulation import stalls
from tests.simulation.gates import SECONDS, SimulatedGate
from tests.simulation.programs import Meeting, Mpirun, Programs
from tests.simulation.schedule import (
    BETWEEN,
    DEAF,
    GRACE,
    HEARTBEAT,
    LAUNCH,
    LIMIT,
    MEASURES,
    MOVED,
    NEVER,
    PEERS,
    PORTS,
    SEVER,
    Fault,
    Schedule,
)

_FACTS = Facts(
    env={}, hostname="node", cwd="/job", uid=1000, user="u", home="/home/u", mpi="4.1.4",
    programs={name: f"/usr/bin/{name}" for name in ("sshd", "ssh", "mpirun", "orted", "python3")},
)  # fmt: skip
# All of the table of a job of more nodes is looked at only so often (seconds).
_LARGE, _LOOK = 1000, 0.1
_PER_LOOK = 64  # events from one look at the CPU time that is used to the next
NOT_READY, UNWRITABLE = Outcome(73, "the disk is full"), Outcome(73, "no room for the session")
OVERDUE = Outcome(72, "the job's deadline has passed")


@lru_cache(maxsize=64)
def plans(
    nodes: int,
    launcher: str,
    restarts: int,
    least: int,
    ranks: int = 0,
    asks: str = "",
    on: str = "infrastructure",
    spares: int = 0,
    without: int = 0,
    join: float = 0.0,
    more: str = "",
) -> tuple[JobSpec, Plan, Plan]:
    """The spec of such a job, and the real plans of its leader and of one worker; `asks`: check,
    netcheck or ""."""
    hosts = ", ".join(
        f"node-{rank}=10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}" for rank in range(nodes)
    )
    text = (
        f"hosts: [{hosts}]\nslots: 1\nlauncher: {launcher}\ncommand: [train]\nsecret_file:"
        " /none\nrestarts:"
        f" {{most: {restarts}, on: {on}{f', without_progress: {without}, progress: /ckpt' if without else ''}}}\nspares: {spares}\n{f'nodes: {least}:{nodes}' if least else ''}\n{f'mpi: {{np: {ranks}}}' if ranks else ''}\ngate: {{seconds:"
        f" {SECONDS}}}\nnetcheck: {{seconds: {MEASURES / 600}, max_latency_ms: 5}}\ntimeouts: {{peers: {PEERS},"
        f" join: {join}, grace: {GRACE}, heartbeat: {HEARTBEAT}, launch: {LAUNCH}}}\n"
    )
    spec = load(text + more, "job.yaml", {"ENTRYPOINT_NODE_RANK": "0"}, {})
    inquiries = {"check": check(spec, CheckOptions(LIMIT)), "netcheck": netcheck(spec, "before")}
    leader = replace(settle(spec, _FACTS), inquiry=inquiries.get(asks))
    return (
        spec,
        leader,
        replace(
            settle(spec, _FACTS, replace(leader.topology, me=min(1, nodes - 1))),
            inquiry=leader.inquiry,
        ),
    )


def _seen_from(topology: Topology, rank: int) -> Topology:
    """The same nodes, seen from another one of them; they are not checked again."""
    other = copy(topology)
    vars(other)["me"] = rank
    return other


class Session:
    """An ssh session between one boot of the leader and one boot of a worker. Messages of one side
    stay in order."""

    def __init__(self, world: World, leader: Container, worker: Container) -> None:
        self._world = world
        self._ends = {0: (leader, leader.boots), worker.rank: (worker, worker.boots)}
        self._last = {0: 0.0, worker.rank: 0.0}  # when the last message of a side arrives
        self.worker, self.open = worker.rank, True
        self.silent = False  # a side of it is gone, and the other has heard nothing of that
        self.closes = math.inf  # when the worker hears that the leader has ended it
        self._told: set[int] = set()  # who has heard that it ended
        self._swept: set[int] = set()  # whose messages on their way are lost
        self.answered = False  # whether the worker's answer has arrived at the leader
        self.known = False  # whether the leader has heard it, too; one that is frozen does later
        self.released = False  # whether the leader has said the result
        self.is_left = False  # whether the leader has ended it, and hears nothing of it any more
        schedule = world.schedule
        self._latency = (
            schedule.latency if schedule.far in (None, worker.rank) else schedule.latency / 10
        )

    def send(self, sender: int, event: Callable[[], Any]) -> None:
        """Have the other side's machine told, once this has arrived there, if the network still
        carries it."""
        receiver = self.worker if sender == 0 else 0
        container, boot = self._ends[receiver]
        arrives = max(self._last[sender], self._world.now + self._latency)
        self._last[sender] = arrives
        self._world.at(arrives, lambda: self._arrive(sender, container, boot, event))

    def _arrive(
        self, sender: int, container: Container, boot: int, event: Callable[[], Any]
    ) -> None:
        if sender in self._swept or (sender and self.is_left):
            return
        if (heals := self._world.heals(self.worker)) < math.inf:  # TCP sends it again
            self._world.at(heals, lambda: self._arrive(sender, container, boot, event))
            return
        if (
            self.open
            and not self.silent
            and not self._world.is_cut(self.worker)
            and container.is_boot(boot)
        ):
            told = event()
            self.answered |= isinstance(told, (events.Answered, events.Rejected))
            container.give(told, self)

    def close(self, sender: int, why: str = "") -> None:
        """The side that did not end it hears of that, after all that was sent before."""
        if self.open:
            receiver = self.worker if sender == 0 else 0
            container, boot = self._ends[receiver]
            lost = events.SessionLost(sender, why)
            arrives = max(self._last[sender], self._world.now + self._latency)
            if sender == 0:
                self.closes = arrives
            self._world.at(arrives, lambda: self._ended(container, boot, lost))

    def leave(self) -> None:
        """The leader ends it, and is not told that it has."""
        self.close(0)
        self.is_left = True

    def sweep(self) -> None:
        """The worker's sshd is gone, and passes nothing on any more."""
        if self._world.schedule.swept:
            self._swept.add(self.worker)

    def is_used(self) -> bool:
        """Whether both sides have it."""
        return self.open and self.answered and not self.silent and not self.is_left

    def leader_boot(self) -> int:
        """Which boot of the leader it is of."""
        return self._ends[0][1]

    def worker_boot(self) -> int:
        """Which boot of the worker it is of."""
        return self._ends[self.worker][1]

    def _ended(self, container: Container, boot: int, lost: events.SessionLost) -> None:
        if (heals := self._world.heals(self.worker)) < math.inf:
            self._world.at(heals, lambda: self._ended(container, boot, lost))
        elif (
            container.rank not in self._told
            and not self.silent
            and not self._world.is_cut(self.worker)
        ):
            self._told.add(container.rank)
            self.open = False
            if container.is_boot(boot):
                self.tell_lost(container, lost)

    def tell_lost(self, container: Container, lost: events.SessionLost) -> None:
        """One that ends before the answer is an attempt that failed, and is made again."""
        if container.rank:
            container.give(lost, self)
        elif not self.is_left and not self.answered:
            container.call_again(self.worker)
        elif not self.is_left:
            container.give(lost, self)

    def give_up(self) -> None:
        """The leader waits no longer for the answer."""
        leader, boot = self._ends[0]
        if self.open and not self.answered and not self.is_left and leader.is_boot(boot):
            self.close(0)
            self.open = False
            leader.call_again(self.worker)


class Container:
    """One node: its machine, and what a real entrypoint does for it."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self.rank = world, rank
        self.boots = 0  # how often its entrypoint has started
        self.history = History()
        self.team: Team | None = None  # of the leader's next attempt
        self.machine: Leader | Worker | None = None  # None: its container does not run
        self.programs = Programs(world, self)
        self.door = False
        # of the leader, to each worker; of a worker, under 0
        self.sessions: dict[int, Session] = {}
        self.outcomes: list[tuple[float, Outcome]] = []  # of each boot that ended by itself
        self.over = self.killed = False
        # when its container has started, and this boot
        self.began = self.booted = 0.0
        self.decided = math.inf  # when this boot knew its outcome
        self.has_started = self.measured = (
            False  # whether an attempt has, and its network was measured, in this container
        )
        self.leader_lost = -math.inf  # when it has lost a leader in silence
        self.returns = 0.0  # seconds from its end by SIGTERM until it is started again; 0: never
        self.stops = 0  # signals that its entrypoint has got, in whichever attempt
        self.between = False  # whether it has ended an attempt, and not begun the next one
        self._calls: dict[int, int] = {}  # node -> number of the call to it that is under way
        self._called = 0  # calls so far
        self._frozen = False
        self._inbox: list[tuple[Any, Session | None]] = []
        self._alarm = math.inf

    def is_boot(self, boot: int) -> bool:
        """Whether this boot still runs."""
        return self.machine is not None and self.boots == boot

    def start(self) -> None:
        """Its entrypoint starts, or starts again."""
        spec, leader, worker = self._world.plans
        if self.has_started and leader.inquiry:
            asked = replace(leader.inquiry, is_over=True)
            leader, worker = (replace(plan, inquiry=asked) for plan in (leader, worker))
        self.boots += 1
        self.booted = self._world.now
        self.decided = math.inf
        self.killed = False
        if not self.between:
            self.began = self._world.now
        self.programs = Programs(self._world, self)
        self.gate = SimulatedGate(self._world, self)
        self.door = False
        self.sessions = {}
        self._calls = {}
        self._alarm = math.inf
        self._world.signals.setdefault(self.rank, 0)
        if self.rank == 0:
            plan = leader
            self.machine = Leader(spec, _FACTS, plan, self.history, self.team)
        else:
            plan = replace(worker, topology=_seen_from(worker.topology, self.rank))
            self.machine = Worker(spec, plan, self.history, self.leader_lost)
        if not self.between:
            self.observer = JobObserver((), self._world.now)
        self.observer.begin(plan, self._world.now)
        self._world.peers[self.rank, self.boots] = self.observer.peers
        # when it said its last word, and when nothing ran here any more
        self.spoke = self.stopped = 0.0
        self.between = False
        self.give(events.Started())
        if (deadline := self._world.schedule.deadline) is not None:
            deadline += self.began + (KILL_MARGIN if self.rank else 0.0)
            self._soon(events.Faulted(OVERDUE), deadline - self._world.now)
        for number in range(self.stops):  # those of earlier attempts, too
            self.give(events.Signalled(15, number > 0))

    def signal(self) -> None:
        """SIGTERM; between two attempts no machine is there to be told."""
        self.stops += 1
        self.give(events.Signalled(15, self.stops > 1))

    def has_run(self) -> bool:
        """Whether it is in a later attempt than the first, and nothing has been started in that."""
        return (
            (self.between or self.machine is not None)
            and self.history.attempt > 1
            and not self.programs.started
        )

    def kill(self) -> None:
        """Its container is gone, with all that it held."""
        if self.machine is not None:
            self._world.log(self.rank, "killed")
            self.killed, self.stops, self.team = True, 0, None
            self.has_started = self.measured = False
            self.leader_lost = -math.inf
            self._leave()

    def come_back(self) -> None:
        """Another container is started instead of one that has left."""
        if self.machine is None and not self.killed:
            self.killed, self.stops, self.team, self.returns = False, 0, None, 0.0
            self.has_started = self.measured = self.between = False
            self.leader_lost = -math.inf
            self.history = History()
            self.start()

    def _leave(self) -> None:
        self.machine, self._frozen, self._inbox = None, False, []
        self.programs.vanish()
        for session in self.sessions.values():
            session.close(self.rank)
            if self.rank:
                session.sweep()

    def deafen(self) -> None:
        """All of its sshd die: its sessions end, and nobody can call it."""
        self.door = False
        for session in self.sessions.values():
            session.close(0)
            session.close(self.rank)
        self._soon(events.Faulted(Outcome(71, "sshd ended")), self._world.schedule.latency)

    def is_awake(self) -> bool:
        """Whether it runs, and does not stand still."""
        return self.machine is not None and not self._frozen

    def freeze(self, seconds: float) -> None:
        """It stands still for so long; what comes meanwhile waits."""
        if self.machine is not None and not self._frozen:
            self._frozen = True
            self._world.after(seconds, partial(self._thaw, self.boots))

    def _thaw(self, boot: int) -> None:
        if self.is_boot(boot):
            self._frozen, inbox, self._inbox = False, self._inbox, []
            for event, session in inbox:
                self.give(event, session)

    def give(self, event: Any, session: Session | None = None) -> None:
        """The machine is told, and what it wants is done. `session`: in which this has arrived; what
        arrived in one that the leader has ended since is not read."""
        if self.machine is None or (session and session.is_left and not self.rank):
            return
        if self._frozen:
            self._inbox.append((event, session))
            return
        self._world.log(self.rank, event)
        machine = self.machine
        if isinstance(event, events.MessageReceived) and isinstance(
            event.message, messages.Stopped
        ):
            self.stopped = self._world.now
        if isinstance(event, events.Answered):
            self.sessions[event.node].known = True
        try:
            self.observer.saw(event, self._world.now)
            wanted = machine.handle(event, self._world.now)
            if machine.outcome is not None:
                self.decided = min(self.decided, self._world.now)
            for action in wanted:
                self.observer.saw(action, self._world.now)
            self._world.watch_observer(self.observer, machine, wanted)
        except Exception as error:
            self._world.violate(
                f"node-{self.rank} has an internal error: {type(error).__name__}: {error}"
            )
            return
        for action in wanted:
            self._world.log(self.rank, action)
            getattr(self, f"_do_{type(action).__name__.lower()}")(action)
        if self.machine is machine and machine.wake < self._alarm:
            self._alarm = machine.wake
            self._world.at(machine.wake, partial(self._wake, self.boots, machine.wake))

    def _wake(self, boot: int, when: float) -> None:
        if self.is_boot(boot) and self._alarm == when:
            self._alarm = math.inf
            self.give(events.TimerFired())

    def _soon(self, event: Any, seconds: float = 0.0) -> None:
        boot = self.boots
        self._world.after(seconds, lambda: self.give(event) if self.is_boot(boot) else None)

    # -- actions

    def _do_log(self, action: actions.Log) -> None:
        if "EP610" in action.text:
            self._world.shown_stalls.append(action.text)

    def _do_showline(self, action: Any) -> None:
        pass

    _do_showwaiting = _do_showline

    def _do_openendpoint(self, action: actions.OpenEndpoint) -> None:
        not_ready = NOT_READY if self._world.schedule.not_ready == self.rank else None
        if self._world.schedule.unwritable == self.rank:
            if not failure.reopens(not_ready, UNWRITABLE):
                self._soon(events.Faulted(not_ready or UNWRITABLE))
                return
            not_ready = UNWRITABLE  # it boots anew, in another place
        ports = self._world.schedule.ports[self.rank] if self._world.schedule.ports else None
        self._report = NodeReport(
            self.rank, 1, __version__, "4.1.4", not_ready=not_ready, ports=ports, holder="nc"
        )
        boot = self.boots
        self._world.after(
            0.05, lambda: self.give(events.KeysReady()) if self.is_boot(boot) else None
        )
        if self.rank % 4 == 1:  # sshd may take a login before it is known to listen
            self._world.after(0.06, lambda: self._listen(boot))
        self._world.after(0.1, lambda: self._open(boot))

    def _listen(self, boot: int) -> None:
        if self.is_boot(boot):
            self.door = True

    def _open(self, boot: int) -> None:
        if self.is_boot(boot):
            self.door = True
            self.give(events.EndpointReady(self.gate.report(self._report)))

    def _do_resolve(self, action: actions.Resolve) -> None:
        for rank in action.nodes:
            self._soon(events.NameState(f"node-{rank}", "no DNS"), 0.05)
            self._soon(events.NameState(f"node-{rank}", ""), 0.5)

    def _do_call(self, action: actions.Call) -> None:
        self._world.watch_call(self, action.node)
        if session := self.sessions.pop(action.node, None):
            session.leave()
        self._begin_call(action.node)

    def is_calling(self, node: int) -> bool:
        """Whether it calls this node."""
        return node in self._calls

    def _begin_call(self, node: int, seconds: float = 0.0) -> None:
        self._called += 1
        self._calls[node] = self._called
        self._world.after(seconds, partial(self._try, self.boots, node, self._called))

    def _try(self, boot: int, node: int, number: int) -> None:
        """One attempt: a login that ends well, or is tried again in half a second."""
        if not self.is_boot(boot) or self._calls.get(node) != number:
            return
        if self._frozen:
            self._world.after(0.5, partial(self._try, boot, node, number))
            return
        why = self._world.containers[node].called(self)
        if why:
            self.give(events.Unreachable(node, why))
            self._world.after(0.5, partial(self._try, boot, node, number))
        else:
            del self._calls[node]

    def called(self, leader: Container) -> str:
        """A leader logs in and asks; why that failed, or "" where the answer is under way."""
        world = self._world
        if self.machine is None or not self.door or world.is_cut(self.rank):
            return "nothing listens there yet"
        if self._frozen:
            return "slow to answer"
        hello = self._hello(leader.rank, f"leader-{leader.boots}")
        assert isinstance(self.machine, Worker)
        before = self.sessions.get(0)
        if why := self.machine.busy(hello, world.now):
            return why
        if before:
            before.open = False
        self.sessions[0] = session = Session(world, leader, self)
        leader.sessions[self.rank] = session
        session.send(0, lambda: events.MessageReceived(0, hello))
        world.after(15.0, session.give_up)
        return ""

    def call_again(self, node: int) -> None:
        """An attempt at a worker failed half way."""
        self.sessions.pop(node, None)
        self._begin_call(node, 0.5)

    def _hello(self, rank: int, name: str) -> messages.Hello:
        spec, leader, _ = self._world.plans
        version = "another" if self._world.schedule.other_version == self.rank else __version__
        hosts = self._world.hosts
        return messages.Hello(
            version,
            hosts,
            self.rank,
            leader.task,
            {},
            spec.timeouts.heartbeat,
            name,
            "10.0.0.1",
            f"{name} to {self.rank}",
        )

    def stranger(self) -> None:
        """Another one with the same keys calls, which knows the leader's name: a node that has
        answered its leader is not its to take."""
        before = self.sessions.get(0)
        if (
            isinstance(self.machine, Worker)
            and self.door
            and not self._frozen
            and before
            and before.open
        ):
            name = f"leader-{before.leader_boot()}"
            hello = replace(self._hello(0, name), token="of another node")
            taken = not self.machine.busy(hello, self._world.now)
            if taken and before.answered and not self._world.is_disturbed(0, self.rank):
                self._world.violate(
                    f"node-{self.rank} was taken by another leader while its own is there"
                )

    def forge(self, number: int) -> None:
        """It reports other nodes' ranks, or their launcher's end, in one of three ways."""
        session, ranks = self.sessions.get(0), range(self._world.schedule.nodes)
        if session is None or not session.open:
            return
        starts = [messages.RankStart(rank, 1) for rank in ranks]
        ends = [messages.RankEnd(rank, 0, (), "") for rank in ranks]
        end = messages.Ended(0, "mpirun", "mpirun exited with 0", (), True)
        lies = (
            [*starts, *ends],
            ends,
            [end] if self._world.schedule.launcher == "mpirun" else ends,
        )
        for message in lies[number % 3]:
            self._transmit(session, message)

    def _do_stopcalling(self, action: actions.StopCalling) -> None:
        self._calls.clear()

    def _do_send(self, action: actions.Send) -> None:
        if isinstance(action.message, messages.Start) and not self.rank:
            self._world.watch_port(action)
            self._world.watch_gates()
        if action.node == self.rank:
            if isinstance(action.message, messages.Stop):
                self.gate.cancel()
            starts = isinstance(action.message, (messages.Start, messages.StartDaemon))
            if starts and self.machine and self.machine.state.phase is not Phase.SPARE:
                self.gate.hold(partial(self.programs.order, action.message))
            else:
                self.programs.order(action.message)
        elif action.node in self.sessions:
            self._world.watch_message(self, action)
            self._transmit(self.sessions[action.node], action.message)

    def _transmit(self, session: Session, message: Any) -> None:
        node, worker = self.rank, session.worker
        if isinstance(message, messages.Reject) and node:
            session.send(
                node, lambda: events.Rejected(worker, message.summary, message.detail, message.hint)
            )
        else:
            session.send(node, lambda: events.MessageReceived(node, message))

    def _do_showstacks(self, action: actions.ShowStacks) -> None:
        stalls.watch_answer(self._world, action)

    def _do_writefiles(self, action: actions.WriteFiles) -> None:
        if self.has_started:
            self._world.violate("the network is measured again")
        self.measured = True

    def _do_answer(self, action: actions.Answer) -> None:
        pass

    def _do_answerrollcall(self, action: actions.AnswerRollCall) -> None:
        assert self.machine is not None
        report = replace(
            self._report,
            leader_lost=min(
                self._world.now - self.machine.state.leader_lost, self._report.leader_lost
            ),
            history=self.machine.state.history,
        )
        report = self.gate.report(report)
        rank = self.rank
        self.sessions[0].send(rank, lambda: events.Answered(rank, report, "10.0.0.1"))

    def _do_reportphases(self, action: actions.ReportPhases) -> None:
        self.spoke = self._world.now
        self._transmit(self.sessions[0], self.observer.phases(self._world.now))

    def _do_closesession(self, action: actions.CloseSession) -> None:
        if session := self.sessions.get(action.node):
            session.leave()

    def _do_prepare(self, action: actions.Prepare) -> None:
        self._world.watch_choice(self)
        launch = self._world.plans[1].launch
        prepared = events.Prepared(launch.ranks.reported, launch.awaited)
        self.gate.hold(lambda: self._soon(prepared))

    def _do_answeragent(self, action: actions.AnswerAgent) -> None:
        if self._world.mpirun:
            self._world.mpirun.answered(action.status)

    def _do_entered(self, action: actions.Entered) -> None:
        self._world.watch_phase(self.rank, action)

    def _do_checkoutputprogress(self, action: actions.CheckOutputProgress) -> None:
        self._soon(
            events.OutputProgress(self._world.mpirun.written() if self._world.mpirun else 100, True)
        )

    def _do_awaitlaunchers(self, action: actions.AwaitLaunchers) -> None:
        boot = self.boots
        self.programs.on_launchers_gone(
            lambda: self._soon(events.LaunchersGone()) if self.is_boot(boot) else None
        )

    def _do_endnode(self, action: actions.EndNode) -> None:
        outcome = action.outcome
        assert self.machine is not None
        then = self.machine.state.next_history()
        if isinstance(self.machine, Leader):
            self.team = self.machine.membership.roster.next_team()
            self._world.replaced = {*self.team.reasons}
            faults = self.team.faults.items()
            self._world.barred = {node for node, number in faults if number >= FAULTS}
        self.leader_lost = self.machine.state.leader_lost
        self.has_started |= self.machine.state.has_started
        self._world.watch_end(self, outcome)
        if self.rank and self.spoke:
            self._world.watch_last_word(self)
        self._leave()
        self.outcomes.append((self._world.now, outcome))
        if outcome.again:
            if self.programs.started and then.attempt != self.programs.attempt + 1:
                was = self.programs.attempt
                self._world.violate(f"node-{self.rank}: attempt {then.attempt} comes after {was}")
            self.history = then
            self.between = True
            self.programs = Programs(self._world, self)
            boot = self.boots
            self._world.attempt_is_over(self)
            self._world.after(
                0.2, lambda: self.start() if self.boots == boot and not self.over else None
            )
        elif self.returns:
            self.over = False
            self._world.after(self.returns, self.come_back)
        else:
            self.over = True


class World:
    """The clock, the network, and all containers of one schedule."""

    def __init__(self, schedule: Schedule, keep_log: bool = False) -> None:
        self.schedule, self.now = schedule, 0.0
        ranks = schedule.nodes - 1 if schedule.empty is not None else 0
        asks = (
            "check"
            if schedule.look is not None
            else "netcheck"
            if schedule.measure is not None
            else ""
        )
        self.plans = plans(
            schedule.nodes,
            schedule.launcher,
            schedule.restarts,
            schedule.least,
            ranks,
            asks,
            schedule.restarts_on,
            schedule.spares,
            schedule.without_progress,
            schedule.join,
            (stalls.SPEC if schedule.stalls else "")
            + ("success: first\n" if schedule.after_first is not None else ""),
        )
        self.hosts = self.plans[1].topology.hosts
        self._teams: dict[tuple[tuple[int, int], ...], tuple[int, ...]] = {}
        self.needed = schedule.least or ranks or schedule.nodes - schedule.spares
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._cut: dict[int, float] = {}  # nodes without a network, and until when
        self.signals: dict[int, int] = {}  # node -> signals that it got
        self.hurried = False  # whether a node has got more than one
        self._looked = -math.inf  # when the table of a large job's leader was looked at last
        self.violations: list[str] = []
        self.timeline: list[tuple[float, int, Any]] | None = [] if keep_log else None
        self.failures: list[
            tuple[int, int, int]
        ] = []  # leader's boot, node, status: programs that failed by themselves
        # leader's boot, node, and the cause of a failure there that it reported in time
        self.causes: list[tuple[int, int, Cause]] = []
        # when the last attempt's ranks were started, and when its result was told
        self.began = self.done = 0.0
        self.first_start = 0.0  # when the first attempt's were
        self.meets: dict[int, int] = {}  # boot of the leader -> the port that it has chosen
        # leader's boot, what it said last
        self.released = (0, messages.Release(1, "", False, False))
        self.team: frozenset[int] = frozenset()  # the nodes that were started to work last
        self.watched_start: tuple[int, float] | None = None  # the leader's boot, and when
        self.there: set[int] = set()  # nodes that were there when the attempt began
        self.known: set[int] = set()  # nodes that the leader knew when it chose the team
        # boot of the leader -> nodes whose programs it has started
        self.working: defaultdict[int, set[int]] = defaultdict(set)
        # node -> its boot that was told a result last, and the status of that
        self.told: dict[int, tuple[int, int]] = {}
        self.turned_away: set[int] = set()  # spares that left before the others
        self.replaced: set[int] = set()  # nodes that the last attempt has replaced, or would
        self.barred: set[int] = set()  # those of them that were to blame twice
        self.hit_running = False  # whether programs ran when something went wrong last
        self.hit_inquiry = False  # whether the leader asked the nodes then
        self.inquired = math.inf  # when the leader had asked them
        self.stopped: set[int] = set()  # boots of the leader that were told to stop while ranks ran
        # boots of the leader that got SIGTERM before their result was told
        self.told_to_stop: set[int] = set()
        self.attempts: dict[int, int] = {}  # boot of the leader -> the attempt that it has started
        self.known_attempts: dict[int, int] = {}  # those of them that a worker knew, too
        self.progressed: dict[int, float] = {}  # attempt -> when a node saw its progress
        self.well: dict[int, set[int]] = {}  # boot of the leader -> ranks that ended with 0
        # boots of the leader whose first rank ended with 0 after another one had failed
        self.too_late: set[int] = set()
        self.gone: set[int] = set()  # boots of the leader in which a node has gone
        # Nodes that were cut off and started elsewhere: boot of the leader whose ranks run on, and
        # until when they do.
        self.cut_off: list[tuple[int, int, float]] = []
        self.must_hear: set[int] = set()  # nodes that were there when the last result was told
        self.mpirun: Mpirun | None = None
        self.meetings: dict[int, Meeting] = {}  # boot of the leader -> of its elastic job
        self.first_disturbed: dict[int, float] = {}
        # node and boot -> what it has observed of the others
        self.peers: dict[tuple[int, int], Mapping[int, PeerTimes]] = {}
        # node, its boot, and the node that it knows this of
        self.phases: dict[tuple[int, int, int], Phase] = {}
        self.transitions: set[tuple[bool, Phase, Phase]] = set()  # whether a node's own, from, to
        # workers that left after a release, and whose: boot of the leader
        self.last_words: list[tuple[int, int]] = []
        self.containers = [Container(self, rank) for rank in range(schedule.nodes)]
        self.shown_stalls: list[str] = []  # what is said before the stacks of a stall
        self.unanswered: list[float] = []  # when users have asked worker-0 what ranks do
        for when in schedule.asked:
            self.at(when, partial(stalls.ask, self))
        for rank, start in enumerate(schedule.starts):
            if start < NEVER:
                self.at(start, self.containers[rank].start)
            self.containers[rank].over = start >= NEVER
        # when nodes were stopped before a later attempt began
        self.stopped_between: list[tuple[float, int]] = []
        self._between = schedule.of(BETWEEN)  # that have not happened yet
        for fault in schedule.faults:
            if fault.kind != BETWEEN:
                self.at(fault.at, partial(self._happen, fault))

    def at(self, when: float, then: Callable[[], None]) -> None:
        """Have this happen at that time."""
        self._number += 1
        heapq.heappush(self._heap, (max(when, self.now), self._number, then))

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Have this happen after that time."""
        self.at(self.now + seconds, then)

    def log(self, rank: int, what: Any) -> None:
        """Note it for the timeline, where one is kept."""
        if self.timeline is not None:
            self.timeline.append((self.now, rank, what))

    def saved(self, rank: int) -> Saved | None:
        """Return what a node finds where checkpoints are written, once its ranks have stopped."""

    def violate(self, words: str) -> None:
        """An invariant does not hold."""
        self.violations.append(f"at {self.now:.2f} s: {words}")

    def is_cut(self, rank: int) -> bool:
        """Whether nothing passes between this node and the leader."""
        return rank in self._cut or 0 in self._cut

    def heals(self, rank: int) -> float:
        """When the network between this node and the leader is there again; infinity where nothing
        is known of that, or it is there."""
        cuts = [self._cut[each] for each in {0, rank} & self._cut.keys()]
        return max(cuts, default=math.inf)

    def _heal(self, rank: int) -> None:
        del self._cut[rank]

    def team_with(self, replaced: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """The nodes that work, by their places, where others have these places."""
        if replaced not in self._teams:
            self._teams[replaced] = team_of(self.plans[1].topology, replaced)
        return self._teams[replaced]

    def all_well(self) -> bool:
        """Whether a program has run on every node that the leader's last attempt needs, and all
        have ended with 0; or the first has, if that decides."""
        if self.schedule.after_first is not None:
            return 0 in self.well.get(self.containers[0].boots, ())
        return len(self.well.get(self.containers[0].boots, ())) >= self.needed

    def is_disturbed(self, *nodes: int) -> bool:
        """Whether something has happened to one of these nodes that ends its part or its
        heartbeat."""
        return any(node in self.first_disturbed for node in nodes)

    def run(self, limit: float, most_seconds: float) -> None:
        """Until everybody has ended, the limit (seconds) has passed, or the CPU time is used up."""
        end = time.process_time() + most_seconds
        awaited: Container | None = self.containers[0]  # one that has not ended
        while awaited and len(self.violations) <= 5 and self._heap and self._heap[0][0] <= limit:
            self.now, number, then = heapq.heappop(self._heap)
            then()
            if number % _PER_LOOK == 0 and time.process_time() > end:
                self.violations = [f"it took more than {most_seconds:g} s of CPU"]
                return
            if awaited.over:
                awaited = next((each for each in self.containers if not each.over), None)

    def _happen(self, fault: Fault) -> None:
        container = self.containers[fault.node]
        if container.machine is None and not (
            container.between and fault.kind in ("stop", "twice")
        ):
            return
        self.log(fault.node, fault)
        self.hit_running = any(not each.programs.is_idle() for each in self.containers)
        leader = self.containers[0].machine
        self.hit_inquiry = isinstance(leader, Leader) and leader.state.phase is Phase.INQUIRY
        if fault.kind in (
            *split(
                "kill vanish cut sever reboot moved freeze lie forge blink fault deaf stop twice"
            ),
        ):
            self.first_disturbed.setdefault(fault.node, self.now)
        goes = (
            fault.kind in ("kill", "vanish", "cut", "reboot", MOVED) and not self.schedule.least
        )  # else torchrun starts again
        if goes and not container.programs.is_idle():
            self.gone.add(container.programs.leader_boot)
        if fault.kind == MOVED:
            container.programs.go_on()
        if fault.kind in ("kill", "vanish", "reboot", MOVED):
            # a new leader does not know whom the old one has replaced
            self.replaced = self.replaced if fault.node else set()
            self.barred = self.barred if fault.node else set()
            for session in container.sessions.values() if fault.kind in ("reboot", MOVED) else ():
                session.silent = True
            if fault.kind == "vanish":
                self._cut[fault.node] = math.inf
            if not fault.node:  # and what it was told is gone with it
                self.told_to_stop.discard(container.boots)
            container.kill()
            container.over = not fault.seconds
            if fault.seconds:
                container.history = History()
                self.after(fault.seconds, container.start)
        elif fault.kind in ("cut", SEVER) and fault.node not in self._cut:
            heals = self.now + fault.seconds if fault.kind == SEVER else math.inf
            self._cut[fault.node] = heals
            if heals < math.inf:
                self.at(heals, partial(self._heal, fault.node))
        elif fault.kind == "blink":
            self._blink(fault.node)
        elif fault.kind == "freeze":
            container.freeze(fault.seconds)
        elif fault.kind in ("stop", "twice"):
            container.returns = fault.seconds if fault.kind == "stop" else 0.0
            self._signal(container)
            if fault.kind == "twice":
                self.after(fault.seconds, lambda: self._signal(container))
        elif fault.kind == "user":
            container.give(events.MessageReceived(fault.node, messages.Signal("SIGUSR1")))
        elif fault.kind == "fail":
            # then a launcher ends the others
            if container.programs.fail(fault.status) and fault.seconds:
                # its messages are no faster than ours
                later = fault.seconds + self.schedule.latency
                for other in self.containers:
                    self.after(later, partial(other.programs.fail, 143))
        elif fault.kind == "fault":
            container.give(events.Faulted(Outcome(71, "sshd ended")))
        elif fault.kind == DEAF:
            container.deafen()
        elif fault.kind == "lie":
            session = container.sessions.get(0)
            if session and session.open:
                session.close(fault.node, "it sent an invalid message: nonsense")
                session.close(0)  # the leader ends it
        elif fault.kind == "forge":
            container.forge(fault.status)
        elif fault.kind == "daemon":
            if self.schedule.launcher == "mpirun" and not container.programs.is_idle():
                self.gone.add(container.programs.leader_boot)
                container.give(
                    events.MessageReceived(fault.node, messages.Daemon("orted", 137, ""))
                )
        elif fault.kind == "stranger":
            container.stranger()

    def _blink(self, node: int) -> None:
        for rank, session in list(self.containers[node].sessions.items()):
            if session.open:
                session.close(0)
                session.close(session.worker)
            if rank:
                self.first_disturbed.setdefault(rank, self.now)

    def _begun(self) -> bool:
        machine = self.containers[0].machine
        return isinstance(machine, Leader) and machine.state.has_started

    def _done_with(self) -> bool:
        machine = self.containers[0].machine
        return machine is None or machine.outcome is not None

    def attempt_is_over(self, container: Container) -> None:
        """The node starts again, and may be told to stop meanwhile."""
        for fault in [each for each in self._between if each.node == container.rank]:
            self._between.remove(fault)
            self.after(fault.seconds, lambda: self._signal(container))

    def _signal(self, container: Container) -> None:
        may_leave = self.schedule.goes_on and container.rank > 0
        if container.has_run() and not self._begun() and not may_leave:
            self.stopped_between.append((self.now, container.rank))
        if container.machine is not None or container.between:
            sure = container.rank == 0 or (
                not may_leave
                and not self.schedule.of(
                    *split("kill vanish cut sever reboot moved deaf blink lie forge freeze")
                )
            )  # else its leader may be gone, and it ends alone
            sure = sure and container.rank in self.team  # a spare that is stopped leaves
            # else the first rank may end before the leader is told
            sure = sure and (container.rank == 0 or self.schedule.after_first is None)
            if sure and self.began and not self._done_with() and self.hit_running:
                self.stopped.add(self.containers[0].boots)
            boot, leads = self.containers[0].boots, container.rank == 0 and container.is_awake()
            is_told = container.machine is not None and container.machine.state.is_released
            if leads and self.began and not is_told:
                self.told_to_stop.add(boot)
            self.signals[container.rank] += 1
            self.hurried |= self.signals[container.rank] > 1
            container.signal()

    # -- what is looked at while it happens

    def watch_phase(self, rank: int, action: actions.Entered) -> None:
        """Note which transition it is."""
        node = rank, self.containers[rank].boots, action.node
        start = Phase.CHECKS if action.node == rank else Phase.MISSING
        before = self.phases.get(node, start)
        self.phases[node] = action.phase
        if before is Phase.INQUIRY and rank == action.node == 0:
            self.inquired = self.now
        if before is not action.phase:
            self.transitions.add((action.node == rank, before, action.phase))

    def watch_observer(
        self, observer: JobObserver, machine: Leader | Worker, wanted: list[Any]
    ) -> None:
        """What others are shown is what the machine believes."""
        if not any(isinstance(action, actions.EndNode | actions.Entered) for action in wanted):
            return
        over = any(isinstance(action, actions.EndNode) for action in wanted)
        own = observer.nodes[observer.me].phase
        if (own is Phase.ENDED) != over:
            self.violate(
                f"node-{observer.me} is shown as {own}, and {'has' if over else 'has not'} ended"
            )
        if not isinstance(machine, Leader):
            return
        if self.schedule.nodes > _LARGE and not over and self.now < self._looked + _LOOK:
            return
        self._looked = self.now
        phase = {rank: state.phase for rank, state in observer.nodes.items()}
        lost = {rank for rank in phase if phase[rank] is Phase.LOST}
        believed = {rank for rank, peer in machine._peers.items() if peer.lost}
        if not believed <= lost or lost & set(machine._peers.alive()):
            self.violate(f"{sorted(believed)} are lost, and {sorted(lost)} are shown as lost")

    def watch_attempt(self, container: Container, attempt: int) -> None:
        """All nodes are in the same attempt, and none comes twice while a node is there that knows
        of it."""
        rank = container.rank
        boot = container.sessions[0].leader_boot() if rank else container.boots
        if self.attempts.setdefault(boot, attempt) != attempt:
            self.violate(f"node-{rank} is in attempt {attempt}, not in {self.attempts[boot]}")
        kinds = (
            "kill",
            "reboot",
            MOVED,
            "vanish",
            "cut",
            *("stop", "twice") * self.schedule.goes_on,
        )
        gone = {fault.node for fault in self.schedule.of(*kinds)}
        if rank:
            self.known_attempts[boot] = attempt
        # An elastic job may begin anew without those that knew of it.
        if (
            len(gone) < 2
            and not self.schedule.least
            and any(attempt <= before for at, before in self.known_attempts.items() if at < boot)
        ):
            self.violate(f"attempt {attempt} comes twice")

    def watch_call(self, leader: Container, node: int) -> None:
        """The leader calls a node: it has lost its session there, and no other call goes on."""
        session = leader.sessions.get(node)
        assert isinstance(leader.machine, Leader)
        if leader.is_calling(node):
            self.violate(f"node-{node} is called, and another call to it goes on")
        elif session and session.known and leader.machine._peers.is_alive(node):
            self.violate(f"node-{node} is called, and has a session")

    def watch_choice(self, leader: Container) -> None:
        """The leader chooses the team: nobody whom it does not know yet is missed in that."""
        if leader.rank == 0:
            sessions = leader.sessions.items()
            self.known = {0, *(node for node, each in sessions if each.is_used() and each.known)}

    def watch_gates(self) -> None:
        """The leader starts the job: the nodes that work and say how their gates end have passed,
        unless the job starts with fewer nodes."""
        leader, start = self.containers[0].machine, (self.containers[0].boots, self.now)
        if not leader or self.schedule.least or self.watched_start == start:
            return
        self.watched_start = start  # every node gets a message then; all are watched with the first
        for each in self.containers:
            is_there = each.is_awake() and leader.membership.roster.works(each.rank)
            state = each.gate.problem(self.now) if is_there else ""
            if state and not self.is_disturbed(each.rank):
                self.violate(f"the job starts, and node-{each.rank} {state}")

    def watch_rank(self, container: Container) -> None:
        """No more nodes work than the job has places, and none that was replaced, as long as there
        are others."""
        boot, rank = self.containers[0].boots, container.rank
        self.working[boot].add(rank)
        if not self.schedule.spares:
            return
        if len(self.working[boot]) > self.needed:  # some may have ended
            programs = {each: self.containers[each].programs for each in self.working[boot]}
            self.working[boot] = {rank} | {
                each
                for each, its in programs.items()
                if not its.is_idle() and its.leader_boot == boot
            }
        if (busy := len(self.working[boot])) > self.needed:
            self.violate(f"{busy} nodes work, and the job has {self.needed} places")
        if rank in self.barred:
            self.violate(f"node-{rank} was to blame twice, and works")
        if rank in self.replaced and self.now < self.began + 1:
            schedule = self.schedule
            unfit = {schedule.not_ready, schedule.unwritable, *schedule.all_unhealthy}
            there = self.there & self.known  # a spare may come after the team was chosen
            if len(there - unfit - self.replaced) >= self.needed:
                self.violate(f"node-{rank} was replaced, and works, and others are there")

    def watch_overlap(self, container: Container) -> None:
        """A rank starts: none of an earlier attempt runs anywhere, whoever has started that. Only a
        node that stands still cannot end it."""
        boot = self.containers[0].boots
        odd = {fault.node for fault in self.schedule.of("freeze")}
        untouched = any(not self.is_disturbed(node) for node in range(1, len(self.containers)))
        for node, started_by, until in self.cut_off:
            # A new leader does not know which other node was silent; and that the old one was only
            # if a worker is there that has lost it so: one that has seen the end of nothing else.
            is_known = untouched if not node else not self.is_disturbed(0)
            if self.now < until and started_by < boot and is_known:
                self.violate(f"node-{container.rank} starts a rank, and one of an earlier attempt"
                             f" runs where node-{node} was")  # fmt: skip
        for before, nodes in self.working.items():
            if before < boot:
                nodes &= {it for it in nodes if self.containers[it].programs.runs_of_before(boot)}
                for node in nodes - odd:
                    self.violate(f"node-{container.rank} starts a rank, and node-{node}"
                                 " runs one of an earlier attempt")  # fmt: skip

    def watch_port(self, action: actions.Send) -> None:
        """The programs of all nodes meet at one port, which is free where they need it."""
        self.team = frozenset(self.team_with(action.message.replaced))
        boot, port = self.containers[0].boots, action.message.port or PORTS[0]
        if self.meets.setdefault(boot, port) != port:
            self.violate(f"node-{action.node} is told port {port}, another one {self.meets[boot]}")
        offer = self.schedule.ports[action.node] if self.schedule.ports else None
        if offer is not None and port not in offer:
            self.violate(f"port {port} is not free on node-{action.node}")

    def watch_message(self, sender: Container, action: actions.Send) -> None:
        """No message to a node that has left, and no start before all are there."""
        session = sender.sessions[action.node]
        # at one moment to all nodes, which are looked at once
        if (
            sender.rank == 0
            and isinstance(action.message, messages.Start)
            and self.began != self.now
        ):
            self.began = self.now
            used = {node for node, each in sender.sessions.items() if each.is_used()}
            signalled = {node for node, number in self.signals.items() if number}
            self.there = {0, *(node for node in used - signalled if not self.is_cut(node))}
            self.first_start = self.first_start or self.now
            there = [rank for rank, each in sender.sessions.items() if each.open]
            if self.schedule.measure is not None and not sender.measured:
                self.violate("the job starts, and its network was not measured")
            if self.schedule.slow in self.team and not self.schedule.least:
                self.violate("the job starts, and its network is not fit")
            if len(there) < self.needed - 1:
                self.violate(f"ranks are started, and only {len(there)} workers have answered")
        assert sender.machine is not None
        is_turned_away = action.node not in self.team and sender.machine.outcome is None
        if sender.rank == 0 and isinstance(action.message, messages.Release) and is_turned_away:
            session.released = True
            self.turned_away.add(action.node)
        elif sender.rank == 0 and isinstance(action.message, messages.Release):
            session.released, self.done = True, self.now
            if session.open:
                self.told[action.node] = session.worker_boot(), action.message.status
            if self.mpirun and self.mpirun.is_passing():
                self.violate("what ranks have printed is lost")
            if action.message.status == 0 and self.schedule.look is None and not self.all_well():
                self.violate("the job's result is 0, and not every program has ended with 0")
            if action.message.status == 0 and self.containers[0].boots in self.too_late:
                self.violate("the first rank ended after a failure, and the result is 0")
            meeting = self.meetings.get(self.containers[0].boots)
            if action.message.status == 0 and meeting and meeting.unfinished():
                self.violate(
                    f"the result is 0, and {meeting.unfinished()} launchers that have met have not"
                    " ended with 0"
                )
            if self.released[0] != self.containers[0].boots:
                there = [
                    rank
                    for rank, each in sender.sessions.items()
                    if each.open and not self.is_cut(rank)
                ]
                # The others may have left before the answer of a node that is far away arrives.
                late = {
                    rank
                    for rank in there
                    if rank == self.schedule.far and not sender.sessions[rank].answered
                }
                self.must_hear = {rank for rank in there if self.containers[rank].is_awake()} - late
            self.released = self.containers[0].boots, action.message
            if action.message.status == 0 and self.containers[0].boots in self.stopped:
                self.violate("the job was told to stop while ranks ran, and the result is 0")
        elif sender.rank == 0 and session.released:
            self.violate(
                f"{type(action.message).__name__} is said to node-{action.node}, which was released"
            )

    def hangs(self, boot: int) -> bool:
        """Whether programs that this boot of the leader has started wait for one that has failed,
        or is gone."""
        failed = boot in self.gone or any(at == boot for at, _, _ in self.failures)
        return failed or stalls.has_hung(self)

    def watch_last_word(self, worker: Container) -> None:
        """A released worker stays until its leader ends, and no longer."""
        self.last_words.append((worker.rank, worker.sessions[0].leader_boot()))
        since = max(worker.spoke, worker.stopped)
        asks = not worker.machine.state.is_released  # and has not been told
        stayed, limit = self.now - since, heartbeat.patience(HEARTBEAT) if asks else KILL_MARGIN
        if not self.is_disturbed(0, worker.rank):
            limit = min(limit, max(0, worker.sessions[0].closes - since))
        limit += sum(
            fault.seconds for fault in self.schedule.of("freeze") if fault.node == worker.rank
        )
        if stayed > limit + 0.01:
            self.violate(f"node-{worker.rank} was released, and stays for {stayed:.2f} s")

    def watch_end(self, container: Container, outcome: Outcome) -> None:
        """What must hold at the moment in which a node ends."""
        status = outcome.status
        if container.rank and status in (0, 79) and self.released[1].status != status:
            self.violate(f"node-{container.rank} ends with {status}, and was not told so")
        for words in container.programs.wronged():
            self.violate(f"node-{container.rank}: {words}")
