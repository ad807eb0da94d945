"""Runs the job on this node: effects become events, and actions of the machine become effects.

If there is nothing to coordinate, this process becomes the program instead.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from entrypoint import __version__
from entrypoint.errors import EXIT_SOFTWARE, EntrypointError, OsError
from entrypoint.job import actions, events, messages
from entrypoint.job.failure import ended, reopens
from entrypoint.job.worker import Worker
from entrypoint.model import Facts, Node, Outcome, Plan
from entrypoint.output.log import Logger, show
from entrypoint.output.progress import Waiting
from entrypoint.plan import environment
from entrypoint.plan.members import with_interface
from entrypoint.ranks import hooks
from entrypoint.ranks.agents import Agents
from entrypoint.ranks.runner import Programs
from entrypoint.record import timeline
from entrypoint.record.recorder import TimelineRecorder
from entrypoint.record.server import State
from entrypoint.secret import scrubbed
from entrypoint.session.endpoint import Endpoint
from entrypoint.session.resolve import greet, resolve
from entrypoint.spec import JobSpec
from entrypoint.system import checks, process
from entrypoint.system import keys as job_keys
from entrypoint.system.files import RunDir
from entrypoint.system.signals import Signals
from entrypoint.system.sshd import Sshd
from entrypoint.values import replace

if TYPE_CHECKING:
    from entrypoint.job.leader import Leader


def execute(spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, log: Logger) -> Outcome:
    """Run the start hooks, then boot and end this node's part of the job. One node with one
    program needs no boot: we become the program.

    Raises EntrypointError when the job cannot start, StoppedBySignal when a signal stops it before that.
    """
    if draft.no_roll_call:
        count = len(draft.topology.nodes)
        lost = f"nobody sees whether all {count} nodes are there, fail or are lost, and each ends with its own status"
        log(f"warning: EP506 no roll call, {draft.no_roll_call} | {lost} | remove roll_call, and give all a secret")
    if draft.mode == "coordinated":
        job_keys.require(spec, draft.topology)  # before start hooks run for a job that never starts
        for words in job_keys.warnings(spec):
            log(f"warning: {words}")
    begun = time.monotonic()
    failed, facts, draft = hooks.run_all(spec, facts, draft, signals, log)
    hooked, asked = time.monotonic(), draft.topology  # another run directory may be taken; the timeline stays with this
    not_ready = failed or checks.machine(spec, facts, draft, log)
    if draft.mode == "coordinated":
        draft, unusable = checks.run_dir(spec, facts, draft)
        not_ready = not_ready or unusable
    if not_ready and draft.mode != "coordinated":
        return not_ready
    if not_ready:
        log(f"{not_ready.reason}; the roll call tells the other nodes")
    if draft.mode == "exec":
        (program,) = draft.launch.programs
        return process.replace(program.argv, environment(facts.env, (*draft.env, *program.env)), draft.workdir)
    gc.freeze()  # all that was imported stays, so no collection needs to look at it
    gc.enable()
    signals.hold()
    attempt, boots = 1, [(spec, draft)]
    record = TimelineRecorder(asked, timeline.before(begun, hooked), hooked)
    if spec.netcheck.when == "before" and draft.mode == "coordinated":
        from entrypoint.plan import netcheck

        boots.insert(0, netcheck.before(spec, facts, draft))
    while True:
        for each, plan in boots:
            outcome, attempt = asyncio.run(boot(each, facts, plan, not_ready, attempt, signals, log, record))
            timeline.save(record, draft.mode != "coordinated")
            if outcome.status:
                break
        if not outcome.again:
            return outcome
        over = f"attempt {attempt} of {spec.restarts + 1} is over: {outcome.reason}"
        if signals.stopped and draft.mode != "coordinated":
            status = 128 + signals.stopped
            return Outcome(status, f"EP611 {ended('this node', status, over)}")
        # A stop that came too late for this attempt stops the next one, whose sessions tell the other nodes.
        log(f"{over}; {'telling the other nodes to stop' if signals.stopped else 'starting again'}")
        attempt += 1


async def boot(
    spec: JobSpec,
    facts: Facts,
    draft: Plan,
    not_ready: Outcome | None,
    attempt: int,
    signals: Signals,
    log: Logger,
    record: TimelineRecorder,
) -> tuple[Outcome, int]:
    """One attempt's outcome, and its number: the leader's count may be ahead of ours.

    A node whose run directory takes no files is opened in another place, to tell the other nodes.
    """
    while True:
        try:
            loop = Loop(spec, facts, draft, not_ready, attempt, signals, log, record)
            try:
                return await loop.run(), loop.machine.attempt
            finally:
                await loop.close()
        except EntrypointError as error:
            coordinated = draft.mode == "coordinated" and reopens(not_ready, error.outcome)
            other = checks.elsewhere(spec, facts, draft) if coordinated else None
            if other is None:
                return not_ready or error.outcome, attempt
            draft, not_ready = other, error.outcome
            log(f"{not_ready.reason}; the roll call tells the other nodes")


class Loop:
    """One attempt on this node: the machine, and the parts that perform its actions and send it events."""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        draft: Plan,
        not_ready: Outcome | None,
        attempt: int,
        signals: Signals,
        log: Logger,
        record: TimelineRecorder,
    ) -> None:
        self._spec, self._facts, self._draft, self._not_ready, self._log = spec, facts, draft, not_ready, log
        self._topology, self._me, self._record = draft.topology, draft.topology.me, record
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._internal_error)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over: asyncio.Future[Outcome] = self._loop.create_future()
        self._alarm: asyncio.TimerHandle | None = None
        self._queue: list[Any] = []  # events that came while another was handled
        self._busy = False
        self.machine: Leader | Worker
        if draft.leads:
            from entrypoint.job.leader import Leader

            self.machine = Leader(spec, facts, draft, attempt)
        else:
            self.machine = Worker(spec, draft, attempt)
        self._calls: Any = None  # the leader's RollCall, once the door is open
        self._waiting: dict[bool, Waiting] = {}
        self._agents: Agents | None = None
        self._endpoint = Endpoint(self._on_endpoint, self._on_endpoint_lost, self._busy_with)
        self._sshd: Sshd | None = None
        self._run_dir = RunDir(draft.topology.run_dir)
        try:
            self._programs = Programs(
                spec, facts, draft, self._run_dir, log, self._here, self._background, self._note_rank
            )
        except EntrypointError:
            self._run_dir.close()
            raise
        self._state = State(spec, draft, self.machine, self._run_dir.path, self._programs.idle, log)
        signals.take(self._signalled, self._user_signalled)

    async def run(self) -> Outcome:
        """From this node's start to its end, with the job's outcome. Raises EntrypointError where it has to be opened
        for logins in another place.
        """
        self._state.open()
        self.tell(events.Started())
        return await self._over

    # -- events

    def tell(self, event: Any) -> None:
        """Give the machine an event and perform its actions; one event after the other."""
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue and not self._over.done():
                self._step(self._queue.pop(0))
        finally:
            self._busy = False
        if self._alarm is not None:
            self._alarm.cancel()
        if self.machine.wake < math.inf and not self._over.done():
            self._alarm = self._loop.call_at(self.machine.wake, self.tell, events.TimerFired())

    def _step(self, event: Any) -> None:
        now = time.monotonic()
        self._record.event(event, now)
        for action in self._state.saw(event, self.machine.handle(event, now), now):
            try:
                self._perform(action)
            except Exception as error:
                self._failed(error)

    def _note_rank(self, event: str, what: str, now: float) -> None:
        """A rank or program of this node starts, prints for the first time, or ends."""
        self._record.rank(event, what, now)
        if event == "start":
            self.tell(events.RankStarted())
        elif event == "output":
            self.tell(events.RankPrinted())

    def _here(self, message: Any) -> None:
        self.tell(events.MessageReceived(self._me, message))

    def _failed(self, error: Exception) -> None:
        """An error ends the job with its message; an unknown one is an internal error."""
        if self._not_ready:  # it was known before, and may be the cause
            outcome = self._not_ready
        elif isinstance(error, EntrypointError):
            outcome = error.outcome
        else:
            reason = f"EP900 internal error: {type(error).__name__}: {error} | please report it"
            outcome = Outcome(EXIT_SOFTWARE, reason)
        self.tell(events.Faulted(outcome))

    def _internal_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failed(context.get("exception") or RuntimeError(context["message"]))

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background; an error in it ends the job.

        The task runs the coroutine itself: within another one it would never start, of which Python
        warns on stderr, if the task is cancelled before its first step.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed(error)

    def _signalled(self, signum: int, again: bool) -> None:
        self.tell(events.Signalled(signum, again))

    def _user_signalled(self, signum: int) -> None:
        self._here(messages.Signal(signal.Signals(signum).name))

    def _daemon_wanted(self, rank: int, command: str) -> None:
        self.tell(events.DaemonWanted(rank, command))

    # -- actions

    def _perform(self, action: Any) -> None:
        nodes, programs = self._topology.nodes, self._programs
        self._record.action(action, time.monotonic())
        match action:
            case actions.Log(text):
                self._log(text)
            case actions.Print(text):
                show(scrubbed(text, self._facts.env))
            case actions.ShowWaiting(host, state, peers):
                if peers not in self._waiting:
                    limit, what = self._spec.timeouts.peers, "peers" if peers else ""
                    self._waiting[peers] = Waiting(self._log, limit, what, self._log.live)
                self._waiting[peers].update(host, state)
            case actions.OpenEndpoint():
                self._background(self._open_door())
            case actions.Resolve():
                for rank in action.nodes:
                    self._background(self._resolve(nodes[rank]))
            case actions.Call(rank):
                self._calls.close(rank)
                self._calls.call(nodes[rank])
            case actions.CloseSession(rank):
                self._calls.close(rank)
            case actions.StopCalling():
                if self._calls:
                    self._calls.stop()
                for waiting in self._waiting.values():
                    waiting.close()
            case actions.Send(rank, messages.Probe()) if rank == self._me:
                self._background(self._probe())
            case actions.Send(rank, message) if rank == self._me:
                programs.do(message)
            case actions.Send(rank, message) if self._calls:
                self._calls.send(rank, message)
            case actions.Send(_, message) | actions.Answer(message):
                self._endpoint.send(message)
            case actions.ReportPhases():
                self._endpoint.send(self._record.told(time.monotonic()))
            case actions.AnswerRollCall(env, address, stop):
                self._report(env, address, stop)
            case actions.Prepare(members):
                launch = programs.prepare(members)
                if launch.ranks.agents:
                    hosts = {node.host: node.rank for node in self._topology.nodes}
                    self._agents = Agents(self._run_dir, hosts, self._daemon_wanted)
                self.tell(events.Prepared(launch.ranks.reported, launch.ends.awaited))
            case actions.ShowLine():
                programs.show_line()
            case actions.AnswerAgent(rank, status) if self._agents:
                self._agents.answer(rank, status)
            case actions.CheckOutputProgress():
                self.tell(events.OutputProgress(programs.written(), process.is_read(1, 2)))
            case actions.AwaitLaunchers():
                self._background(self._await_launchers())
            case actions.Entered():
                pass  # the timeline and the status have seen it
            case actions.EndNode(outcome):
                self._over.set_result(outcome)
            case _:
                raise TypeError(f"this is no action: {action!r}")

    async def _open_door(self) -> None:
        """Make this node ready for logins, or end this loop with the reason if another place may do."""
        try:
            await self._open()
        except EntrypointError as error:
            if not reopens(self._not_ready, error.outcome):
                raise
            if not self._over.done():
                self._over.set_exception(error)

    async def _open(self) -> None:
        """Keys, control endpoint, sshd."""
        this = self._topology.this
        keys = job_keys.load(self._spec, self._topology)
        for name, content in keys.files().items():
            if any(file.name == name for file in self._draft.files):
                self._run_dir.write(name, content, 0o600)
        self.tell(events.KeysReady())
        self._programs.write(file for file in self._draft.files if file.name == "sshd_config")
        self._endpoint.open(self._run_dir)
        config = self._run_dir.path / "sshd_config"
        self._sshd = await Sshd.start(self._facts, config, this.ssh_port, this.address, self._on_sshd_line)
        self._background(self._sshd.watch(self._on_sshd_died))
        if self._topology.is_leader:
            from entrypoint.session.calls import Caller  # slow to import, and workers need no ssh client

            nodes, user = self._topology.nodes, self._topology.user
            self._calls = Caller(nodes, user, keys, self._question(), self.tell, self._log, self._background)
        report = replace(self._draft.members.reports[self._me], not_ready=self._why_not_ready())
        self.tell(events.EndpointReady(report))

    def _question(self) -> messages.Hello:
        return messages.Hello(
            toolkit=__version__,
            hosts=tuple(each.host for each in self._topology.nodes),
            rank=0,
            launcher=self._draft.launcher,
            env=dict(self._spec.env),
            heartbeat=self._spec.timeouts.heartbeat,
            leader=os.urandom(8).hex(),  # another leader with the same keys has another name
            address="",
        )

    def _why_not_ready(self) -> Outcome | None:
        """Why this node cannot take part, or cannot start the launcher's programs."""
        return self._not_ready or checks.launcher(self._facts, self._draft.launch)

    def _busy_with(self, first: Any) -> str:
        """Why a new session, which begins with this message, may not replace the present one. A leader answers any."""
        return self.machine.busy(first, time.monotonic()) if isinstance(self.machine, Worker) else ""

    def _on_endpoint(self, message: Any) -> None:
        self.tell(events.LeaderCalled(message) if self._topology.is_leader else events.MessageReceived(0, message))

    def _on_endpoint_lost(self, why: str) -> None:
        if not self._topology.is_leader:
            self.tell(events.SessionLost(0, why))

    def _on_sshd_line(self, line: str) -> None:
        if not self._topology.is_leader and ("[preauth]" in line or line.startswith("Failed ")):
            self.tell(events.Unreachable(0, "someone called, not with this job's keys: another secret?"))

    def _on_sshd_died(self, what: str) -> None:
        self.tell(events.Faulted(Outcome(OsError.status, what)))

    async def _resolve(self, node: Node) -> None:
        def update(state: str) -> None:
            self.tell(events.NameState(node.host, state))

        found = await resolve(node.where, None, update)
        update("")
        if node.rank != self._me:
            greet(found)  # it calls this node

    def _report(self, env: Mapping[str, str], address: str, stop: Outcome | None) -> None:
        members = with_interface(self._draft.members, self._me, self._spec, self._facts, [address])
        not_ready = stop or self._why_not_ready()
        try:
            if not_ready is None:
                self._programs.prepare(members, env)
        except EntrypointError as error:
            not_ready = error.outcome
        own = members.reports[self._me]
        mine = own.interface
        facts = messages.NodeInfo(
            slots=own.slots,
            mpi=own.mpi,
            toolkit=own.toolkit,
            clock=time.time(),
            attempt=self.machine.attempt,
            not_ready=(not_ready.status, not_ready.reason, not_ready.program) if not_ready else None,
            interface=(mine.name, mine.address, mine.network) if mine else None,
            interfaces=own.interfaces,
        )
        self._perform(actions.Answer(facts))

    async def _probe(self) -> None:
        from entrypoint.check.probe import observe  # a job that runs needs none of it

        self._here(messages.ProbeResult(await observe(self._spec, self._facts, self._draft)))

    async def _await_launchers(self) -> None:
        await self._programs.gone()
        self.tell(events.LaunchersGone())

    async def close(self) -> None:
        """Nothing of ours outlives us: processes, socket, files."""
        for waiting in self._waiting.values():
            waiting.close()
        for task in list(self._tasks):
            task.cancel()
        if self._calls is not None:
            self._calls.close_all()
        self._endpoint.close()
        if self._agents is not None:
            self._agents.close()
        if self._sshd is not None:
            self._sshd.stop()
        await self._programs.close()
        if self._sshd is not None:
            await self._sshd.ended()
        self._state.close()
        if left := self._run_dir.close():
            seen = f"{self._run_dir.path}: {left}"
            do = "move them away: the run directory is removed only when nothing else is in it"
            self._log(f"warning: EP425 files in the run directory are not the entrypoint's | {seen} | {do}")
