"""Runs the job on this node: puts its parts together, and performs the actions of its machine.

If there is nothing to coordinate, this process becomes the program instead.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrypoint import __version__
from entrypoint.base.errors import EntrypointError, HostError, outcome_of
from entrypoint.base.history import FIRST, History
from entrypoint.base.model import Facts, Node, NodeReport, Outcome, Plan
from entrypoint.base.phases import Phase
from entrypoint.base.text import signal_name
from entrypoint.base.values import frozen, replace
from entrypoint.extensions import Extensions, Gate, LoopView
from entrypoint.job import actions, events, messages
from entrypoint.job.answer import node_info
from entrypoint.job.driver import Driver
from entrypoint.job.failure import out_of_time, reopens, stopped
from entrypoint.job.history import described
from entrypoint.job.waits import KILL_MARGIN
from entrypoint.job.worker import Worker
from entrypoint.output.log import Callbacks, Logger
from entrypoint.output.progress import Waiting
from entrypoint.plan import environment
from entrypoint.plan.members import with_interface
from entrypoint.ranks import command_line, hooks
from entrypoint.ranks.agents import Agents
from entrypoint.ranks.keeping import KeeperProcess
from entrypoint.ranks.runner import Programs
from entrypoint.session.callin import Desk
from entrypoint.session.gateway import Gateway
from entrypoint.session.resolve import greet, resolve
from entrypoint.session.respondent import Respondent
from entrypoint.session.stackrequests import StackRequests
from entrypoint.spec import JobSpec
from entrypoint.system import checks, proc, process
from entrypoint.system import keys as job_keys
from entrypoint.system.files import RunDir, explained, make_folders, put
from entrypoint.system.ports import offer
from entrypoint.system.signals import Signals
from entrypoint.system.threads import Background, in_thread

if TYPE_CHECKING:
    from entrypoint.job.leader import Leader
    from entrypoint.job.membership.team import Team

# seconds for killed programs and the result, between the end of the grace and the platform's limit
_END_MARGIN = 10.0
_WRITE_LIMIT = 5.0  # seconds that the end waits for files on their way into the log folder


@frozen
class AttemptInputs:
    """The inputs of one attempt. `gate`: checks this node before each attempt; `not_ready`: why it
    cannot take part, if that is known already."""

    spec: JobSpec
    facts: Facts
    plan: Plan
    gate: Gate
    keeper: KeeperProcess
    not_ready: Outcome | None = None
    history: History = FIRST
    team: Team | None = None  # of the leader of a job with spares, after the first attempt
    leader_lost: float = -math.inf  # when (monotonic seconds) a worker lost its leader in silence
    desk: Desk | None = None  # of worker-0, if the nodes call in
    gateway: Gateway | None = None  # that the attempt before has left open


def execute(
    spec: JobSpec, facts: Facts, draft: Plan, signals: Signals, log: Logger, extensions: Extensions
) -> Outcome:
    """Run the start hooks, then boot and end this node's part of the job. One node with one
    program needs no boot: we become the program.

    Raises EntrypointError when the job cannot start, StoppedBySignal when a signal stops it before
    that.
    """
    _check_secret(spec, draft, log)
    failed, facts, draft = hooks.run_all(spec, facts, draft, signals, log)
    extensions.observer.begin(draft)
    not_ready = failed or checks.machine(spec, facts, draft, log)
    if draft.mode == "coordinated":
        draft, unusable = checks.run_dir(spec, facts, draft)
        draft = replace(draft, inquiry=extensions.inquiry(spec))
        if not_ready := not_ready or unusable:
            log(f"{not_ready.reason}; the roll call tells the other nodes")
    elif not_ready:
        return not_ready
    gate = extensions.gate(spec, facts, log)
    if draft.mode == "exec":
        if refused := gate.before_program(draft, signals):
            return refused
        (program,) = draft.launch.programs
        env = environment(facts.env, (*draft.env, *program.env))
        make_folders(draft.launch.folders)
        extensions.observer.hand_over(command_line.of(draft.launch, spec.command))
        return process.replace(process.behind_init(program.argv, env), env, draft.workdir)
    gc.freeze()  # all that was imported stays, so no collection needs to look at it
    gc.enable()
    signals.hold()
    keeper = KeeperProcess()
    try:
        history, desk = draft.topology.history, Desk.of(draft.topology)
        attempt = AttemptInputs(spec, facts, draft, gate, keeper, not_ready, history, desk=desk)
        return asyncio.run(_attempts(attempt, signals, log, extensions))
    finally:
        keeper.close()


def deadline(spec: JobSpec, ends: int) -> float:
    """Return when the job is stopped (seconds of the monotonic clock); the platform `ends` it then
    (Unix time), if the spec asks for its limit."""
    limit = spec.timeouts.job or math.inf
    if isinstance(limit, str):
        limit = ends - time.time() - spec.timeouts.grace - _END_MARGIN
    return time.monotonic() + limit


def _check_secret(spec: JobSpec, draft: Plan, log: Logger) -> None:
    """Raise EntrypointError if the job needs a secret and has none, before its start hooks run."""
    if draft.no_roll_call:
        count = len(draft.topology.nodes)
        lost = (
            f"nobody notices if one of the {count} nodes is missing, fails or is lost, and each"
            " ends with its own status"
        )
        log(
            f"warning: EP506 no roll call, {draft.no_roll_call} | {lost} | remove roll_call, and"
            " give all a secret"
        )
    if draft.mode == "coordinated":
        job_keys.require(spec, draft.topology)
        for words in job_keys.warnings(spec):
            log(f"warning: {words}")


async def _attempts(
    attempt: AttemptInputs, signals: Signals, log: Logger, extensions: Extensions
) -> Outcome:
    """Return the outcome of the last attempt."""
    leads_others = attempt.plan.mode == "coordinated" and attempt.plan.leads
    while True:
        outcome, machine, gateway = await boot(attempt, signals, log, extensions)
        if not outcome.again:
            return outcome
        assert machine is not None  # only a machine decides so
        history, restarts = machine.state.next_history(), attempt.spec.restarts
        number = f"{history.number - 1} of {history.earlier + history.attempts(restarts.most)}"
        over = f"attempt {number} is over{described(history, restarts)}: {outcome.reason}"
        if signals.stopped and not leads_others:
            if gateway:
                await _close(gateway, attempt.keeper)
            return stopped("this node", signals.stopped, over)
        # A stop that came too late for this attempt stops the next one, whose sessions tell the
        # other nodes.
        log(f"{over}; {'telling the other nodes to stop' if signals.stopped else 'starting again'}")
        team = None if isinstance(machine, Worker) else machine.membership.roster.next_team()
        topology = replace(attempt.plan.topology, history=history)
        plan = replace(attempt.plan, topology=topology)
        if machine.state.has_started and plan.inquiry:
            plan = replace(plan, inquiry=replace(plan.inquiry, is_over=True))
        lost = machine.state.leader_lost
        attempt = replace(
            attempt, history=history, plan=plan, team=team, leader_lost=lost, gateway=gateway
        )
        log.attempt = history.number
        extensions.observer.begin(attempt.plan)


async def boot(
    attempt: AttemptInputs, signals: Signals, log: Logger, extensions: Extensions
) -> tuple[Outcome, Leader | Worker | None, Gateway | None]:
    """Return one attempt's outcome; the machine that ended with it: the leader's count may be ahead
    of ours; and the gateway, if another attempt follows.

    A node whose run directory takes no files is opened in another place, to tell the other nodes.
    """
    planned = attempt.plan
    while True:
        try:
            loop = await _loop(attempt, signals, log, extensions)
            stays = False
            try:
                outcome = await loop.run(signals)
                stays = outcome.again and attempt.plan is planned and loop.gateway.is_open
            finally:
                await loop.close(stays)
            if stays and not loop.gateway.is_open:  # a program may have ended it meanwhile
                await _close(loop.gateway, attempt.keeper)
                stays = False
            return outcome, loop.machine, loop.gateway if stays else None
        except EntrypointError as error:
            coordinated = attempt.plan.mode == "coordinated" and reopens(
                attempt.not_ready, error.outcome
            )
            plan = (
                checks.elsewhere(attempt.spec, attempt.facts, attempt.plan) if coordinated else None
            )
            if plan is None:
                return attempt.not_ready or error.outcome, None, None
            attempt = replace(attempt, plan=plan, not_ready=error.outcome, gateway=None)
            log(f"{error.outcome.reason}; the roll call tells the other nodes")


async def _loop(
    attempt: AttemptInputs, signals: Signals, log: Logger, extensions: Extensions
) -> Loop:
    """Return the loop of an attempt. Raises EntrypointError if its run directory takes no
    files."""
    spec, facts, topology = attempt.spec, attempt.facts, attempt.plan.topology
    gateway = attempt.gateway or Gateway(
        spec, facts, topology, RunDir(topology.run_dir), log, attempt.desk
    )
    try:
        return Loop(attempt, gateway, signals, log, extensions)
    except EntrypointError:
        if attempt.gateway:
            await _close(gateway, attempt.keeper)
        else:
            gateway.run_dir.close()
        raise


async def _close(gateway: Gateway, keeper: KeeperProcess) -> None:
    """Let nobody in any more, and end the sessions that are left."""
    gateway.stop()
    proc.sweep({keeper.pid})
    await gateway.ended()
    gateway.run_dir.close()


def _machine(attempt: AttemptInputs) -> Leader | Worker:
    """Return the machine of this node. Workers do without the leader's modules."""
    if not attempt.plan.leads:
        return Worker(attempt.spec, attempt.plan, attempt.history, attempt.leader_lost)
    from entrypoint.job.leader import Leader

    return Leader(attempt.spec, attempt.facts, attempt.plan, attempt.history, attempt.team)


def _agents(draft: Plan, run_dir: RunDir, tell: Callable[[Any], None]) -> Agents:
    """Return what answers mpirun's agents, if it has some."""
    nodes = draft.topology.nodes if draft.launch.ranks.agents else ()
    hosts = {node.host: node.rank for node in nodes}
    return Agents(run_dir, hosts, lambda rank, command: tell(events.DaemonWanted(rank, command)))


def _hello(spec: JobSpec, draft: Plan) -> messages.Hello:
    """Return the first message of a leader's calls."""
    return messages.Hello(
        toolkit=__version__,
        hosts=draft.topology.hosts,
        rank=0,
        launcher=draft.task,
        env=dict(spec.env),
        heartbeat=spec.timeouts.heartbeat,
        leader=os.urandom(8).hex(),  # another leader with the same keys has another name
        token="",
        address="",
        job=draft.topology.job_id,
    )


class Loop:
    """One attempt on this node: the machine, and the parts that perform its actions and send it
    events."""

    _waiting: Waiting | None = None
    _alarm: asyncio.TimerHandle | None = None  # of the job's deadline
    _writing: asyncio.Task[None] | None = None  # of files into the log folder

    def __init__(
        self,
        attempt: AttemptInputs,
        gateway: Gateway,
        signals: Signals,
        log: Logger,
        extensions: Extensions,
    ) -> None:
        """Raises EntrypointError if the run directory takes no files."""
        spec, facts, draft = attempt.spec, attempt.facts, attempt.plan
        self._spec = spec
        self._facts = facts
        self._draft = draft
        self._topology = draft.topology
        self._not_ready = attempt.not_ready
        self._log = log
        self._observer = extensions.observer
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._internal_error)
        self._background = Background(self._failed)
        self.machine = _machine(attempt)
        self._driver = driver = Driver(
            self.machine, self._observer.saw, self._perform, self._failed, loop
        )
        self._tell = driver.tell
        self.gateway = gateway
        self._run_dir = gateway.run_dir
        gateway.serve(draft, self._tell, self._busy_with)
        callbacks = Callbacks(log, driver.here, self._background)
        places = self._run_dir, attempt.keeper
        self._programs = Programs(spec, facts, draft, places, callbacks, self._tell)
        self._stack_requests = StackRequests(self._run_dir, self._stacks_wanted)
        self._callbacks = Callbacks(log, self._tell, self._background)
        self._respondent = Respondent(facts, draft, self._programs.env, callbacks)
        self._admission = attempt.gate.admission(draft, self._callbacks)
        self._agents = _agents(draft, self._run_dir, self._tell)
        signals.take(
            driver.signalled,
            lambda signum: driver.here(messages.Signal(signal_name(signum))),
        )

    async def run(self, signals: Signals) -> Outcome:
        """From this node's start to its end, with the job's outcome. Raises EntrypointError where
        it has to be opened for logins in another place.
        """
        self._observer.open(self._view)
        self._tell(events.Started())
        if not signals.left:  # it has passed in the hooks or an earlier attempt: nothing starts
            self._end_in_time()
        else:
            # The leader's deadline comes first, unless a worker started long before it.
            later = 0.0 if self._topology.is_leader else KILL_MARGIN
            self._alarm = asyncio.get_running_loop().call_at(
                signals.deadline + later, self._end_in_time
            )
        outcome: Outcome = await self._driver.over
        return outcome

    def _view(self) -> LoopView:
        """Return what the observer asks for."""
        attempt, programs = self.machine.state.history.number, self._programs
        return LoopView(attempt, self.machine.outcome, programs.idle(), programs.command)

    # -- events

    def _end_in_time(self) -> None:
        reason = out_of_time(self._spec.timeouts.job)
        if self.machine.outcome is None:
            self._log(f"{reason}; stopping the job")
        self._tell(events.Faulted(reason.outcome))

    def _failed(self, error: Exception) -> None:
        """An error ends the job with its message; an unknown one is an internal error."""
        # what was known before may be the cause
        self._tell(events.Faulted(self._not_ready or outcome_of(error)))

    def _internal_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failed(context.get("exception") or RuntimeError(context["message"]))

    # -- actions

    def _perform(self, action: Any) -> None:
        self._observer.saw(action, time.monotonic())
        _ACTIONS[type(action)](self, action)

    def _stacks_wanted(self) -> None:
        if self._draft.leads:
            self._tell(events.StacksWanted())
        else:
            self._background(self._show_own_stacks())

    async def _show_own_stacks(self) -> None:
        self._stack_requests.answer(await self._programs.watcher.lines(), "no rank runs here")

    def _show_waiting(self, action: actions.ShowWaiting) -> None:
        if self._waiting is None:
            self._waiting = Waiting(self._log, self._spec.timeouts.peers, self._log.live)
        self._waiting.update(action.host, action.state, action.peers)

    def _resolve_names(self, action: actions.Resolve) -> None:
        for rank in action.nodes:
            self._background(self._resolve(self._topology.nodes[rank]))

    def _stop_calling(self, action: actions.StopCalling) -> None:
        if self.gateway.calls:
            self.gateway.calls.stop()
        if self._waiting:
            self._waiting.close()

    def _send(self, action: actions.Send) -> None:
        message = action.message
        if action.node != self._topology.me:
            self.gateway.send(message, action.node)
            return
        if isinstance(message, messages.Question):
            self._respondent.ask(message)
            return
        if isinstance(message, (messages.Start, messages.Stop)):
            self._respondent.stop()
        if isinstance(message, messages.Stop):
            self._admission.cancel()
        starts = isinstance(message, (messages.Start, messages.StartDaemon))
        if starts and self.machine.state.phase is not Phase.SPARE:
            self._admission.hold(lambda: self._programs.do(message))
        else:
            self._programs.do(message)

    def _prepare(self, action: actions.Prepare) -> None:
        launch = self._programs.prepare(action.members, port=action.port, replaced=action.replaced)
        self._tell(events.Prepared(launch.ranks.reported, launch.awaited))

    def _check_output_progress(self, action: actions.CheckOutputProgress) -> None:
        self._tell(events.OutputProgress(self._programs.ranks.written(), process.is_read(1, 2)))

    # -- what takes a while

    async def _open_endpoint(self) -> None:
        """Make this node ready for logins, or end this loop with the reason if another place may
        do."""
        try:
            await self._open()
        except EntrypointError as error:
            if not reopens(self._not_ready, error.outcome):
                raise
            if not self._driver.over.done():
                self._driver.over.set_exception(error)

    async def _open(self) -> None:
        """Open the gateway, and on the leader prepare the calls."""
        keys = job_keys.load(self._spec, self._topology)
        try:
            await self.gateway.open(keys)
        except HostError as error:
            if not self._topology.is_leader:  # nobody can call this node
                raise
            self._not_ready = self._not_ready or error.outcome
        port = self.gateway.port(self._topology.this)
        report = self._draft.members.reports[self._topology.me]
        not_ready = self._why_not_ready()
        report = self._admission.report(replace(report, not_ready=not_ready, ssh_port=port))
        if self._topology.is_leader:
            # slow to import, and workers need no ssh client
            from entrypoint.session.calls import Caller

            topology, question = self._topology, _hello(self._spec, self._draft)
            calls = self.gateway.calls or Caller(topology.nodes, topology.user, keys)
            calls.begin_attempt(question, self._callbacks)
            self.gateway.call_by(calls)
            report = self._offer_ports(report, question.leader)
        elif self._topology.call_in:
            self._background(self.gateway.call_in_again())
        self._tell(events.EndpointReady(report))
        self.gateway.begin_attempt()

    def _offer_ports(self, report: NodeReport, leader: str) -> NodeReport:
        """Return the report with the ports that the launcher's programs can have here."""
        is_shared = bool(self._topology.job_id)
        return offer(self._spec, self._draft.launch.port, report, leader, is_shared)

    def _why_not_ready(self) -> Outcome | None:
        """Return why this node cannot take part, or cannot start the launcher's programs."""
        return self._not_ready or checks.launcher(self._facts, self._draft.launch)

    def _busy_with(self, first: Any) -> str:
        """Return why a new session, which begins with this message, may not replace the present
        one. A leader answers any."""
        return (
            self.machine.busy(first, time.monotonic()) if isinstance(self.machine, Worker) else ""
        )

    async def _resolve(self, node: Node) -> None:
        def update(state: str) -> None:
            self._tell(events.NameState(node.host, state))

        found = await resolve(node.where, None, update)
        update("")
        if node.rank != self._topology.me:
            greet(found)  # it calls this node

    def _answer_roll_call(self, action: actions.AnswerRollCall) -> None:
        members = with_interface(
            self._draft.members, self._topology.me, self._spec, self._facts, [action.address]
        )
        not_ready = self._why_not_ready()
        try:
            if not_ready is None:
                self._programs.prepare(members, action.env)
        except EntrypointError as error:
            not_ready = error.outcome
        own = members.reports[self._topology.me]
        state = self.machine.state
        lost = min(time.monotonic() - state.leader_lost, own.leader_lost)
        own = replace(own, not_ready=not_ready, leader_lost=lost, history=state.history)
        own = self._admission.report(own)
        own = self._offer_ports(own, action.leader)
        self._perform(actions.Answer(node_info(own, time.time())))

    def _write_files(self, action: actions.WriteFiles) -> None:
        self._writing = self._background(self._write(action.files))

    async def _write(self, files: Iterable[tuple[str, str]]) -> None:
        """Write files into the log folder, in a thread: it may be on a slow network disk."""
        folder = Path(self._topology.log_dir)

        def put_all() -> None:
            make_folders((str(folder),))
            with explained(folder, "ENTRYPOINT_LOG_DIR"):
                for name, text in files:
                    put(folder / name, text.encode(), 0o644)

        try:
            await in_thread(put_all)
        except EntrypointError as error:
            self._log(str(error))
        else:
            self._log(f"wrote {' and '.join(f'{folder}/{name}' for name, _ in files)}")

    async def _await_launchers(self) -> None:
        await self._programs.ranks.programs.gone()
        self._tell(events.LaunchersGone())

    async def close(self, stays: bool) -> None:
        """Nothing of ours outlives us: processes, socket, files. But the gateway `stays` open for
        another attempt."""
        if self._waiting:
            self._waiting.close()
        if self._alarm:
            self._alarm.cancel()
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_WRITE_LIMIT)
        self._background.cancel()
        # The sessions of a job that has succeeded end with this process: the ends of the workers'
        # containers take time that worker-0's own end would wait for.
        outcome = self.machine.outcome
        kept: Set[int] = set()
        if stays:
            kept = self.gateway.end_attempt(self.machine.state.is_released)
        else:
            self.gateway.stop(ends_calls=outcome is None or bool(outcome.status))
        self._stack_requests.close()
        await self._respondent.close()
        await self._programs.close(kept)
        if not stays:
            await self.gateway.ended()
        self._observer.close()
        self._agents.close()
        if not stays:
            self._run_dir.close()


_ACTIONS: Mapping[type, Callable[[Loop, Any], object]] = {
    actions.Log: lambda loop, action: loop._log(action.text),
    actions.ShowStacks: lambda loop, action: loop._stack_requests.answer(action.lines, action.why),
    actions.WriteFiles: Loop._write_files,
    actions.ShowWaiting: Loop._show_waiting,
    actions.OpenEndpoint: lambda loop, action: loop._background(loop._open_endpoint()),
    actions.Resolve: Loop._resolve_names,
    actions.Call: lambda loop, action: loop.gateway.call(action.node),
    actions.CloseSession: lambda loop, action: loop.gateway.end_session(action.node),
    actions.StopCalling: Loop._stop_calling,
    actions.Send: Loop._send,
    actions.Answer: lambda loop, action: loop.gateway.send(action.message),
    actions.AnswerRollCall: Loop._answer_roll_call,
    actions.ReportPhases: lambda loop, action: loop.gateway.send(
        loop._observer.phases(time.monotonic())
    ),
    actions.Prepare: lambda loop, action: loop._admission.hold(lambda: loop._prepare(action)),
    actions.ShowLine: lambda loop, action: loop._programs.show_line(),
    actions.AnswerAgent: lambda loop, action: loop._agents.answer(action.node, action.status),
    actions.CheckOutputProgress: Loop._check_output_progress,
    actions.AwaitLaunchers: lambda loop, action: loop._background(loop._await_launchers()),
    # The observer has seen it.
    actions.Entered: lambda loop, action: None,
    actions.EndNode: lambda loop, action: loop._driver.over.set_result(action.outcome),
}
