"""The programs and ranks of this node: orders in, reports out, both as the messages that nodes
exchange."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from entrypoint.job import events, messages
from entrypoint.job.failure import Failures, ProgramExit, ended
from entrypoint.launchers import _command_line as command_line
from entrypoint.model import Facts, File, Launch, Members, Plan
from entrypoint.output.lines import ATTEMPT
from entrypoint.output.log import Callbacks
from entrypoint.output.merger import LineMerger
from entrypoint.plan import environment, session_env, settle, with_supervisor
from entrypoint.plan.members import with_beside
from entrypoint.plan.team import team_of, with_attempt, with_chosen
from entrypoint.ranks.below import terminate_tree
from entrypoint.ranks.diagnosis import Diagnostician, Failure
from entrypoint.ranks.evidence import NodeProbe
from entrypoint.ranks.reaper import Reaper
from entrypoint.ranks.reports import Ranks, last_lines
from entrypoint.ranks.stall.watch import RankWatcher
from entrypoint.spec import JobSpec
from entrypoint.supervised import OF_PROGRAM
from entrypoint.system import checks, children, proc, process
from entrypoint.system.cgroups import Processes
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import RunDir, make_folders
from entrypoint.system.nodesocket import NodeSocket
from entrypoint.system.threads import rest
from entrypoint.values import replace

if TYPE_CHECKING:
    from entrypoint.ranks.checkpoints import CheckpointWatch

# seconds between two reads of the count of refused processes, which version 1 cgroups do not
# announce
_LOOK = 0.5
_GONE = 10.0  # seconds for killed programs to be gone: the kernel needs time to free much memory
_UNREAD = 5.0  # seconds for the reader of our output to take some of the programs' last lines
# seconds to show the stacks of programs whose grace is over, before they are killed
_LAST_LOOK = 1.5
_COMMAND = 8 << 20  # bytes of a launcher's command line; the kernel takes fewer
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
_OF_OUTPUT = ("copy", "log", "lost", "late")  # events
# of output, by the event
_LOST = {
    "lost": "is lost, {} bytes at least | nobody reads our output, or the launcher does not end",
    "late": "may be lost, {} bytes at most | the launcher began to end and passes on only a part",
}
# the last line of a launcher's own script that cannot start it
_SCRIPT_ERROR = re.compile(r"[a-z_]{1,40}\.(?:sh|py): (EP650 [^|]+ \| [^|]+ \| [^|]+)")


class Programs:
    """The programs of the job on this node. `do` executes an order; reports go to the callback
    `tell`, and changes of each rank or program to `note`."""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        draft: Plan,
        run_dir: RunDir,
        callbacks: Callbacks,
        note: Callable[[events.RankChanged], None],
    ) -> None:
        self._spec = spec
        self._facts = facts
        self._draft = draft
        self._topology = draft.topology  # of this attempt, once its number is known
        self._run_dir = run_dir
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._note = note
        self._plan = draft  # until `prepare`
        self._members = draft.members
        self._leader_env: Mapping[str, str] | None = None
        self._replaced: tuple[tuple[int, int], ...] = ()
        self._by_ranks = draft.launch.ranks.reports == "ranks"
        self._started: list[asyncio.subprocess.Process] = []  # of this node, or their supervisors
        self._running: dict[int, str] = {}  # number -> name of programs that have not ended
        self._ranks_started = 0  # by mpirun's daemon
        self._met = False  # whether a rank of this node's launcher has started, in an elastic job
        self._failed_ranks: dict[int, tuple[ProgramExit, Failure]] = {}  # of programs
        self._stopping: asyncio.Task[None] | None = None
        self._checkpoints: CheckpointWatch | None = None  # if the spec names them
        self._launcher_ends: asyncio.Task[None] | None = None  # if it ends the ranks itself
        self._held_ends: list[messages.RankEnd] = []  # that this causes, until its own end
        self._force = asyncio.Event()  # force stop: skip the rest of the grace
        self._has_warned_of_copies = False
        self.command = ""  # the command line that was started, for the record
        self._merger: LineMerger | None = None  # if the plan merges lines of ranks
        self._probe = NodeProbe(facts, draft.topology)
        self._diagnostician = Diagnostician(self._probe, callbacks)
        process.show(process.WAITING)  # an earlier attempt may have set STARTED
        self.node = NodeSocket(run_dir)
        self._ranks = Ranks(self.node, self._on_report)
        self._program_ranks = Ranks(self.node, self._on_program_rank, OF_PROGRAM)
        ranks = (self._ranks, self._program_ranks)
        self._watcher = RankWatcher(spec.stall, facts, draft, callbacks, ranks)
        self._reaper = Reaper(self._daemon_ended)

    @property
    def env(self) -> dict[str, str]:
        """The environment of this node's ranks, as far as it is known."""
        return environment(self._facts.env, self._plan.env)

    # -- orders

    def do(self, message: Any) -> None:
        """Execute an order of the leader."""
        match message:
            case messages.Start():
                self._background(self._start_all(message))
            case messages.StartDaemon(command):
                self._background(self._start_daemon(command))
            case messages.Ping(number):
                self._ranks.read()  # reports of ranks are sent before this answer
                self._program_ranks.read()
                self._watcher.tell_steps()
                self._tell(messages.Pong(self.idle(), number))
            case messages.Signal(name):
                # Not to the launcher of these ranks, which the signal would end.
                ranks = (
                    self._program_ranks
                    if self._draft.launch.ranks.reports == "both"
                    else self._ranks
                )
                ranks.signal(signal.Signals[name])
            case messages.Stacks():
                self._background(self._watcher.tell_stacks())
            case messages.Stop(grace) if self._stopping is None:
                for end in self._held_ends:
                    self._tell(end)
                self._stopping = self._background(self._stop(grace))
            case messages.Stop(grace):
                if grace == 0:
                    self._force.set()
            case messages.ReleaseFailedRanks():
                self._ranks.let_go()
            case _:
                raise TypeError(f"this is no order: {message!r}")

    def is_launcher(self, pid: int) -> bool:
        """Return whether this process is a launcher that runs here, or below one and below no
        rank."""
        return self._ranks.is_outside(pid)

    async def stacks_of_node(self) -> tuple[str, ...]:
        """Return what the ranks of this node do, for `entrypoint stacks`."""
        return await self._watcher.lines()

    def prepare(
        self,
        members: Members,
        leader_env: Mapping[str, str] | None = None,
        port: int = 0,
        replaced: tuple[tuple[int, int], ...] = (),
    ) -> Launch:
        """Settle the final plan and write its files: ranks may start here from now on. `port` and
        `replaced` as in messages.Start.

        A launcher that needs a rank table is prepared only at the start. Raises EntrypointError.
        """
        self._members = members
        self._leader_env = leader_env
        beside = members.reports[self._topology.me].beside
        self._take(messages.Start(self._topology.attempt, port, replaced, beside))
        return self._draft.launch if self._draft.launch.start.needs_rank_table else self._prepare()

    def _take(self, order: messages.Start) -> bool:
        """Return whether the plan changes by what the roll call has brought."""
        before = self._spec, self._topology, self._members, self._replaced
        self._spec = with_chosen(self._spec, self._plan.launch.port, order.port)
        self._topology = with_attempt(self._topology, order.attempt)
        self._members = with_beside(self._members, self._topology.me, order.beside)
        self._replaced = order.replaced
        return before != (self._spec, self._topology, self._members, self._replaced)

    def _prepare(self) -> Launch:
        self._plan = settle(
            self._spec,
            self._facts,
            self._topology,
            self._members,
            self._leader_env,
            self._replaced,
        )
        self._watcher.launch = self._plan.launch
        self.write(self._plan.files)
        make_folders(self._plan.launch.folders)
        self._run_dir.write("last-output", f"{time.monotonic():020.3f}\n\n\n", 0o600)
        self._log.follow(self._run_dir.path / "last-output")
        return self._plan.launch

    def write(self, files: Iterable[File]) -> None:
        """Write the plan's files, except the keys, which are written where they are generated."""
        for file in files:
            if file.text:
                self._run_dir.write(file.name, file.text, file.mode)

    async def _start_all(self, order: messages.Start) -> None:
        self._log.attempt = order.attempt
        topology = self._draft.topology
        if topology.me not in team_of(topology, order.replaced):
            process.show(process.STARTED)  # it waits for as long as the job runs
            return
        if self._by_ranks:
            self._background(self._watch_limit())
        if self._take(order):
            self._prepare()
        if self._spec.logs.format == "json":  # supervisors read it
            self._run_dir.write(ATTEMPT, str(order.attempt), 0o600)
        if self._draft.launch.start.needs_rank_table:
            from entrypoint.ranks import rank_table

            limit = self._spec.timeouts.peers
            cards = await rank_table.wait(self._facts, topology, limit, self._log)
            self._members = replace(self._members, cards=cards)
            self._prepare()
        launch = self._plan.launch
        if process.is_pipe(1):
            # called when nobody can read it any more
            asyncio.get_running_loop().add_reader(1, self._reader_left)
        if (path := self._spec.restarts.progress) and self._spec.restarts.most:
            from entrypoint.ranks.checkpoints import CheckpointWatch

            self._checkpoints = CheckpointWatch(path, self._tell, self._log)
            await self._checkpoints.begin()
            self._background(self._checkpoints.watch())
        process.show(process.STARTED)
        # Count all first: a program that ends before the next one starts is not the last.
        for number, program in enumerate(launch.programs):
            name = program.argv[0] if launch.start.becomes_program else self._plan.launcher
            self._running[number] = program.label or name
        if launch.ranks.unite:
            self._merger = await LineMerger.start(launch.ranks.unite)
        for number, _ in enumerate(launch.programs):
            if self._stopping is None:
                await self._start(number)
        if self._merger is not None:
            self._merger.close()
        self.show_line()

    async def _start(self, number: int) -> None:
        plan = self._plan
        program = plan.launch.programs[number]
        argv = program.argv
        env = environment(self._facts.env, (*plan.env, *program.env))
        if not self._by_ranks:  # otherwise each rank has a supervisor, wherever it runs
            argv = with_supervisor(plan.launch, number, self._spec, self._topology)
        unread = None if self._by_ranks else process.cannot_read(self._spec.command, plan.workdir)
        if refused := unread or checks.program(self._facts, plan, program):
            self._ended(number, refused.status, refused.reason)
            return
        try:
            streams = self._merger.streams if self._merger else {}
            started = await children.start(
                argv, env, plan.workdir, supervised=not self._by_ranks, **streams
            )
        except OSError as error:
            outcome = process.cannot_start(program.argv, error, env)
            self._ended(number, outcome.status, outcome.reason)
            return
        self._started.append(started)
        self._background(self._wait_for(started, number))

    async def _start_daemon(self, command: str) -> None:
        """Start mpirun's daemon, which goes into the background and becomes a child of this
        process."""
        status = 128 + signal.SIGTERM
        if self._stopping is None:
            launcher = self._draft.launch.ranks.name
            env = session_env(self._facts, self._draft.topology, launcher)
            env["HOME"] = self._facts.home
            argv = ("/bin/sh", "-c", command)
            try:
                started = await children.start(
                    argv, env, stdin=asyncio.subprocess.DEVNULL, stdout=2
                )  # stdout is the job's
                status = process.exit_status(await started.wait())
            except OSError as error:
                status = process.cannot_start(argv, error).status
        self._tell(messages.DaemonStarted(status))

    # -- reports

    async def _wait_for(self, program: asyncio.subprocess.Process, number: int) -> None:
        status = process.exit_status(await program.wait())
        if self._merger is not None and self._by_ranks:
            # the launcher has written all output, and the merger may not have passed it on
            await self._merger.ended()
        self._ranks.read()  # its supervisor, or a rank's, may have reported the end
        if number in self._running:  # otherwise its supervisor has reported it
            self._ended(number, status)

    def _on_report(self, event: str, number: int, value: int) -> None:
        """Handle a report of a supervisor about its program or rank."""
        if event in _OF_OUTPUT:
            self._note_lost_output(event, value)
            return
        if event == "launcher":
            if self._launcher_ends is None:
                self._launcher_ends = self._background(self._outlast_ranks(value))
            return
        name = (
            f"rank {number}" if self._by_ranks else self._running.get(number, f"program {number}")
        )
        self._note(events.RankChanged(name, event))
        self._watcher.saw(event, number, value, of_program=False)
        if event == "output":
            return
        if not self._by_ranks:
            if event == "end" and number in self._running:
                self._ended(number, value)
        elif event == "start":
            self._ranks_started += 1
            self._tell(messages.RankStart(number, value))
            # mpirun itself gets no signal: a rank may start after the stop
            if self._stopping is not None:
                process.kill_group(value, signal.SIGTERM)
        else:
            lines = self._ranks.last_output(number)
            tail = last_lines(lines)
            end = messages.RankEnd(number, value, tail, self._probe.why(name, value))
            self._diagnose(Failure(name, value, lines))
            if self._launcher_ends is not None and self._stopping is None:
                # it is an effect of what the launcher is about to report
                self._held_ends.append(end)
            else:
                self._tell(end)

    def _on_program_rank(self, event: str, rank: int, value: int) -> None:
        """Handle a report of a rank that a program of this node started, and may restart."""
        self._note(events.RankChanged(f"rank {rank}", event))
        self._watcher.saw(event, rank, value, of_program=True)
        if event == "start":
            self._failed_ranks.pop(rank, None)
            if self._plan.launch.start.min_nodes is not None and not self._met:
                self._met = True
                self._tell(messages.Met())
        elif event in _OF_OUTPUT:
            self._note_lost_output(event, value)
        elif value:
            name = f"rank {rank}"
            lines = self._program_ranks.last_output(rank)
            reason = ended(name, value, self._probe.why(name, value))
            end = ProgramExit(value, name, reason, last_lines(lines))
            self._failed_ranks[rank] = end, Failure(name, value, lines)

    def _note_lost_output(self, event: str, value: int) -> None:
        """Log what became of a rank's output, by the event."""
        if event in _LOST:
            self._log_lost(value, event)
        elif event == "log":
            self._probe.log_error = value
        elif not self._has_warned_of_copies:
            self._has_warned_of_copies = True
            detail = f"{self._draft.topology.log_dir}: {os.strerror(value)}"
            hint = "make room there, or set log_dir"
            self._log(
                f"warning: EP416 the copies of the ranks' output are incomplete | {detail} | {hint}"
            )

    def _ended(self, number: int, status: int, reason: str = "") -> None:
        name = self._running.pop(number)
        # a launcher has no supervisor
        lines = () if self._by_ranks else self._ranks.last_output(number)
        tail = last_lines(lines)
        if own := tail and _SCRIPT_ERROR.fullmatch(tail[-1]):
            reason = own[1]
            tail = ()
        reason = reason or ended(name, status, self._probe.why(name, status))
        end = ProgramExit(status, name, reason, tail)
        self._program_ranks.read()  # reports may still be in the pipe
        if status:
            failed = self._failed_ranks.values()
            end = Failures([*(end for end, _ in failed), end]).cause() or end
            if not (self._by_ranks or own):
                for failure in (*(failure for _, failure in failed), Failure(name, status, lines)):
                    self._diagnose(failure)
        message = messages.Ended(**vars(end), last=not self._running)
        if message.last and not status and self._merger is not None and not self._by_ranks:
            self._background(self._tell_after_output(message, self._merger))
        else:
            self._tell(message)

    async def _tell_after_output(self, message: messages.Ended, merger: LineMerger) -> None:
        await merger.ended()
        self._tell(message)

    def _diagnose(self, failure: Failure) -> None:
        """Find out why a rank or program has failed, unless we have ended it."""
        is_ours = self._stopping is not None and failure.status - 128 in _STOP_SIGNALS
        if failure.status and not is_ours:
            self._diagnostician.failed(failure, self._plan.launch.ends.names_nodes)

    def _daemon_ended(self, name: str, wait: int) -> None:
        if not self._by_ranks:
            return  # a rank has started its own MPI job
        status = process.exit_status(os.waitstatus_to_exitcode(wait))
        self._tell(messages.Daemon(name, status, self._probe.why(name, status)))

    async def _watch_limit(self) -> None:
        """Report if the kernel refuses a process while ranks start: it may be a rank, which nobody
        else would report.

        A node with fewer ranks than slots watches for as long as ranks may take to start.
        """
        slots = self._members.reports[self._draft.topology.me].slots
        processes = Processes()
        ends = time.monotonic() + self._spec.timeouts.launch
        while self._stopping is None and self._ranks_started < slots and time.monotonic() < ends:
            await rest(_LOOK)
            if reason := processes.refused():
                self._log(f"warning: EP609 {reason}")
                self._tell(messages.Limit(reason))
                return

    def idle(self) -> float:
        """Return the seconds since a rank of this node printed, or since its programs were
        started."""
        try:
            # Not the file's modification time: a clock may jump, and a file server has its own.
            when = read_regular(self._run_dir.path / "last-output", 20)
            return time.monotonic() - float(when)
        except (OSError, ValueError):
            return 0.0

    def show_line(self) -> None:
        """Log once, on the leader, what was started; mpirun's line once its script has it."""
        if self.command:
            return
        self.command, folder = command_line.of(self._plan.launch, self._spec.command), ""
        if any(program.script for program in self._plan.launch.programs):
            folder = str(self._run_dir.path)
            try:
                argv = read_regular(self._run_dir.path / command_line.RECORD, _COMMAND)
            except OSError:
                argv = b""  # not yet, or a rank has put something else there
            self.command = command_line.shown(argv)
            if self.command:
                self._run_dir.write(command_line.TEXT, f"{self.command}\n", 0o600)
        if self.command and self._topology.is_leader:
            self._log(command_line.started(self._plan, self.command, folder))

    def written(self) -> int:
        """Return the bytes that the programs of this node have written so far."""
        size = sum(
            proc.number(f"/proc/{program.pid}/io", "wchar:") or 0 for program in self._started
        )
        return size + (self._merger.written if self._merger else 0)

    async def gone(self) -> None:
        """Return when the started programs have ended, and their lines are passed on."""
        for program in self._started:
            await program.wait()
        if self._merger is not None:
            await self._merger.ended()

    def _reader_left(self) -> None:
        """Log that nobody reads stdout; the job continues, since the launcher is not affected."""
        asyncio.get_running_loop().remove_reader(1)
        detail = "its reader has ended, as `| head` does"
        hint = "the job continues, and what it prints there is lost"
        self._log(f"warning: EP627 nobody reads stdout any more | {detail} | {hint}")

    # -- end

    async def _stop(self, grace: float) -> None:
        """Send SIGTERM to every program of this node and SIGKILL after the grace (seconds), then
        report the stop.

        If ranks report by themselves, the launcher gets no signal: it would kill them before the
        grace ends.
        """
        gone: Coroutine[Any, Any, None] | None = None
        if self._checkpoints is not None:
            self._checkpoints.stop()
        if self._by_ranks:
            spawned = []
            if self._launcher_ends is None:  # otherwise all were signalled
                spawned = self._ranks.of_spawn(self._started)
                self._ranks.signal(signal.SIGTERM)
                for pid in spawned:
                    terminate_tree(pid)
            gone = self._ranks_gone(spawned)
        elif groups := [program.pid for program in self._started if program.returncode is None]:
            # these supervisors end leftovers themselves
            running = set(groups) - self._ranks.leaving
            below = {pid for group in running for pid in proc.descendants(group)}
            for group in running:
                process.kill_group(group, signal.SIGTERM)
            gone = self._all_gone(groups, below)
        if gone:
            in_time = await self._wait_unless_forced(gone, grace)
            if grace and not in_time:
                summary = f"EP615 not all programs stopped within the grace period of {grace:g}s"
                self._log(f"{summary}; their stacks follow, then they are killed")
                await self._watcher.show(_LAST_LOOK)
            self._ranks.kill()
        if grace and not self._force.is_set():
            await self._diagnostician.settled(grace)
        if self._checkpoints is not None:
            await self._checkpoints.end()
        self._watcher.tell_steps(of_all=True)
        self._tell(messages.Stopped())

    async def _outlast_ranks(self, launcher: int) -> None:
        """Give ranks their grace when the launcher itself ends the job, which would exit a second
        later.

        MPI ends ranks whose daemon is gone, so the daemon is suspended until they have saved. It
        reports its status, which tells the cause, after that.
        """
        if not proc.is_below(launcher, os.getpid()):
            return
        proc.kill([launcher], signal.SIGSTOP)
        try:
            if self._stopping is None:
                self._ranks.signal(signal.SIGTERM)
            await self._wait_unless_forced(self._ranks.ended(), self._spec.timeouts.grace)
        finally:
            proc.kill([launcher], signal.SIGCONT)

    async def _wait_unless_forced(self, end: Coroutine[Any, Any, None], limit: float) -> bool:
        """Wait for this end; return whether it, or a force stop, came within `limit` seconds."""
        tasks = {asyncio.ensure_future(end), asyncio.ensure_future(self._force.wait())}
        done, waiting = await asyncio.wait(
            tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED
        )
        for task in waiting:
            task.cancel()
        return bool(done)

    async def _ranks_gone(self, spawned: list[int]) -> None:
        await self._ranks.gone()
        # one may be a rank's supervisor that has just started
        left = self._ranks.of_spawn(self._started)
        await children.gone({*spawned} & {*left})

    async def _all_gone(self, groups: list[int], below: set[int]) -> None:
        """Return when the programs and all that they started are gone: both may need the grace
        period."""
        await self._ranks.ended()
        await children.gone(below & set(proc.descendants(os.getpid())))  # orphans are our children
        await children.gone(groups)  # supervisors stay until all output is passed on

    def _log_lost(self, size: int, event: str = "lost") -> None:
        self._log(f"warning: EP628 output of the ranks {_LOST[event].format(size)}")

    async def close(self) -> None:
        """End all processes of the job on this node, and close its pipes and sockets."""
        asyncio.get_running_loop().remove_reader(1)
        if self._merger is not None:
            # A launcher that hangs would hold its pipes.
            if all(program.returncode is not None for program in self._started):
                await self._merger.ended(_UNREAD)
            if lost := await self._merger.give_up():
                self._log_lost(lost)
        if killed := self._probe.untold_kill():
            self._log(f"warning: EP601 {killed}")
        if remaining := await children.end_all(_GONE):
            hint = "find out what the kernel waits for"
            summary = f"EP616 killed programs have not ended after {_GONE:g}s, with what they hold"
            self._log(f"{summary} | {'; '.join(remaining)} | {hint}")
        await self.gone()
        self._ranks.close()
        self._program_ranks.close()
        self.node.close()
        self._reaper.close()
