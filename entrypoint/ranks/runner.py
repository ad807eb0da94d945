"""The programs and ranks of this node: orders in, reports out, both as the messages that nodes exchange."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from entrypoint.errors import EntrypointError
from entrypoint.job import messages
from entrypoint.job.failure import AwaitedEnds, ProgramExit, ended
from entrypoint.job.messages import LINE, LINES
from entrypoint.launchers import mpirun
from entrypoint.launchers._daemons import DAEMONS
from entrypoint.model import Facts, File, Launch, Members, Plan
from entrypoint.output.log import Callbacks
from entrypoint.output.merger import LineMerger
from entrypoint.plan import environment, session_env, settle, with_supervisor
from entrypoint.ranks import stacks
from entrypoint.ranks.below import terminate_tree
from entrypoint.ranks.reaper import Reaper
from entrypoint.ranks.reports import Ranks
from entrypoint.spec import JobSpec
from entrypoint.supervised import OF_PROGRAM
from entrypoint.system import checks, children, proc, process
from entrypoint.system.cgroups import Memory, Processes
from entrypoint.system.clock import rest
from entrypoint.system.files import RunDir, make_folders
from entrypoint.text import one_line
from entrypoint.values import replace

_LOOK = 0.5  # seconds between two looks at the count of refused processes, which version 1 cgroups do not announce
_GONE = 10.0  # seconds for killed programs to be gone: the kernel needs time to free much memory
_UNREAD = 5.0  # seconds for our reader to take something of the programs' last lines
_LAST_LOOK = 1.5  # seconds to show the stacks of programs whose grace is over, before they are killed


class Programs:
    """What runs on this node for the job. `do` takes an order; `tell` gets what happens."""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        draft: Plan,
        run_dir: RunDir,
        callbacks: Callbacks,
        note: Callable[[str, str, float], None],
    ) -> None:
        """`note` gets the event of each rank or program ("start", "output", "end"), its name, and the time."""
        self._spec = spec
        self._facts = facts
        self._draft = draft
        self._run_dir = run_dir
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._note = note
        self._plan = draft  # until `prepare`
        self._members = draft.members
        self._leader_env: Mapping[str, str] | None = None
        self._by_ranks = draft.launch.ranks.reports == "ranks"
        self._started: list[asyncio.subprocess.Process] = []  # programs of this node, or their supervisors
        self._running: dict[int, str] = {}  # those that have not ended: number -> what people call it
        self._ranks_started = 0  # by mpirun's daemon
        self._met = False  # whether a rank of this node's launcher has started, in an elastic job
        self._failed_ranks: dict[int, ProgramExit] = {}  # of programs' ranks, until the same rank starts again
        self._stopping: asyncio.Task[None] | None = None
        self._launcher_ends: asyncio.Task[None] | None = None  # it ends the ranks here by itself
        self._unsaid: list[messages.RankEnd] = []  # what came of that, until the launcher's own end is known
        self._force = asyncio.Event()  # force stop: skip the rest of the grace
        self._line_shown = False
        self._uniting: LineMerger | None = None  # what makes ranks' lines whole, where the plan has that
        self._copies_ended = False  # whether that was said
        process.show(process.WAITING)  # an earlier attempt may have shown that it started
        process.adopt_orphans()
        self._memory = Memory()
        self._processes = Processes()
        self._ranks = Ranks(run_dir, self._on_report)
        try:
            self._program_ranks = Ranks(run_dir, self._on_program_rank, OF_PROGRAM)
        except EntrypointError:
            self._ranks.close()
            raise
        self._reaper = Reaper(self._daemon_ended)

    @property
    def env(self) -> dict[str, str]:
        """The environment of this node's ranks, as far as it is known."""
        return environment(self._facts.env, self._plan.env)

    # -- orders

    def do(self, message: Any) -> None:
        """Carry out an order of the leader's."""
        match message:
            case messages.Start():
                self._background(self._start_all())
                if self._by_ranks:
                    self._background(self._watch_limit())
            case messages.StartDaemon(command):
                self._background(self._start_daemon(command))
            case messages.Ping(number):
                self._ranks.read()  # reports of ranks go before this answer
                self._program_ranks.read()
                self._tell(messages.Pong(self.idle(), number))
            case messages.Signal(name):
                # Not to the launcher of these ranks, which would end.
                ranks = self._program_ranks if self._draft.launch.ranks.reports == "both" else self._ranks
                ranks.signal(signal.Signals[name])
            case messages.Stacks():
                self._background(self._show_and_tell())
            case messages.Stop(grace) if self._stopping is None:
                for end in self._unsaid:
                    self._tell(end)
                self._stopping = self._background(self._stop(grace))
            case messages.Stop(grace):
                if grace == 0:
                    self._force.set()
            case messages.ReleaseFailedRanks():
                self._ranks.let_go()
            case _:
                raise TypeError(f"this is no order: {message!r}")

    def prepare(self, members: Members, leader_env: Mapping[str, str] | None = None) -> Launch:
        """Settle the final plan and write its files: ranks may start here from now on.

        A launcher that needs a rank table is prepared only at the start. Raises EntrypointError.
        """
        self._members = members
        self._leader_env = leader_env
        return self._draft.launch if self._draft.launch.start.needs_rank_table else self._prepare()

    def _prepare(self) -> Launch:
        self._plan = settle(self._spec, self._facts, self._draft.topology, self._members, self._leader_env)
        self.write(self._plan.files)
        make_folders(self._plan.launch.folders)
        self._run_dir.write("last-output", f"{time.monotonic():020.3f}\n\n\n", 0o600)
        self._log.follow(self._run_dir.path / "last-output")
        return self._plan.launch

    def write(self, files: Iterable[File]) -> None:
        """Write the plan's files, but for the keys, which are written where they are made."""
        for file in files:
            if file.text:
                self._run_dir.write(file.name, file.text, file.mode)

    async def _start_all(self) -> None:
        if self._draft.launch.start.needs_rank_table:
            from entrypoint.ranks import rank_table

            limit = self._spec.timeouts.peers
            cards = await rank_table.wait(self._facts, self._draft.topology, limit, self._log)
            self._members = replace(self._members, cards=cards)
            self._prepare()
        launch = self._plan.launch
        if process.is_pipe(1):
            asyncio.get_running_loop().add_reader(1, self._reader_left)  # called where nobody can read it any more
        process.show(process.STARTED)
        # Count all first: a program that ends before the next one starts is not the last.
        for number, program in enumerate(launch.programs):
            name = program.argv[0] if launch.start.becomes_program else self._plan.launcher
            self._running[number] = program.label or name
        if launch.ranks.unite:
            self._uniting = await LineMerger.start(launch.ranks.unite)
        for number, _ in enumerate(launch.programs):
            if self._stopping is None:
                await self._start(number)
        if self._uniting is not None:
            self._uniting.close()

    async def _start(self, number: int) -> None:
        plan, program = self._plan, self._plan.launch.programs[number]
        argv, env = program.argv, environment(self._facts.env, (*plan.env, *program.env))
        if not self._by_ranks:  # else each rank has a supervisor, wherever it runs
            argv = with_supervisor(self._plan.launch, number, self._spec, self._draft.topology)
        unread = None if self._by_ranks else process.cannot_read(self._spec.command, plan.workdir)
        if refused := unread or checks.program(self._facts, plan, program):
            self._ended(number, refused.status, refused.reason)
            return
        try:
            streams = self._uniting.streams if self._uniting else {}
            started = await children.start(argv, env, plan.workdir, supervised=not self._by_ranks, **streams)
        except OSError as error:
            outcome = process.cannot_start(program.argv, error, env)
            self._ended(number, outcome.status, outcome.reason)
            return
        self._started.append(started)
        self._background(self._wait_for(started, number))

    async def _start_daemon(self, command: str) -> None:
        """Start mpirun's daemon, which goes into the background and becomes our child."""
        status = 128 + signal.SIGTERM
        if self._stopping is None:
            env = {**session_env(self._facts, self._draft.topology), "HOME": self._facts.home}
            words, nothing = ("/bin/sh", "-c", command), asyncio.subprocess.DEVNULL
            try:
                started = await children.start(words, env, stdin=nothing, stdout=2)  # stdout is the job's
                status = process.exit_status(await started.wait())
            except OSError as error:
                status = process.cannot_start(words, error).status
        self._tell(messages.DaemonStarted(status))

    # -- reports

    async def _wait_for(self, program: asyncio.subprocess.Process, number: int) -> None:
        status = process.exit_status(await program.wait())
        if self._uniting is not None and self._by_ranks:
            await self._uniting.ended()  # the launcher has passed on all, and this may not have
        self._ranks.read()  # its supervisor, or a rank's, may have reported the end
        if number in self._running:  # else it has; a launcher has none, or it was killed, or could not start
            self._ended(number, status)

    def _on_report(self, event: str, number: int, value: int) -> None:
        """A supervisor reports of its program, a rank or one of this node: start, first output, end, end of copies."""
        if event in ("copy", "lost"):
            self._not_all(event, value)
            return
        if event == "launcher":
            if self._launcher_ends is None:
                self._launcher_ends = self._background(self._outlast_ranks(value))
            return
        what = f"rank {number}" if self._by_ranks else self._running.get(number, f"program {number}")
        self._note(event, what, time.monotonic())
        if event == "output":
            return
        if not self._by_ranks:
            if event == "end" and number in self._running:
                self._ended(number, value)
        elif event == "start":
            self._ranks_started += 1
            self._tell(messages.RankStart(number, value))
            if self._stopping is not None:  # mpirun is not told to stop: a rank may start later than that
                process.kill_group(value, signal.SIGTERM)
        else:
            end = messages.RankEnd(number, value, self._last_lines(str(number), value), self._why(value))
            if self._launcher_ends is not None and self._stopping is None:
                self._unsaid.append(end)  # it follows from what the launcher is about to say
            else:
                self._tell(end)

    def _on_program_rank(self, event: str, rank: int, value: int) -> None:
        """A report of a rank that a program of this node started. If it failed, the program fails or restarts it."""
        self._note(event, f"rank {rank}", time.monotonic())
        if event == "start":
            self._failed_ranks.pop(rank, None)
            if self._plan.launch.start.min_nodes is not None and not self._met:
                self._met = True
                self._tell(messages.Met())
        elif event in ("copy", "lost"):
            self._not_all(event, value)
        elif value:
            what, tail = f"rank {rank}", self._last_lines(f"{OF_PROGRAM}.{rank}", value)
            self._failed_ranks[rank] = ProgramExit(value, what, ended(what, value, self._why(value)), tail)

    def _not_all(self, event: str, value: int) -> None:
        """Not all that a rank prints is copied, for this error, or passed on: so many bytes are not."""
        if event == "lost":
            self._say_lost(value)
        elif not self._copies_ended:
            self._copies_ended = True
            where, do = self._draft.topology.log_dir, "make room there, or set log_dir"
            self._log(
                f"warning: EP416 not all that ranks print is copied any more | {where}: {os.strerror(value)} | {do}"
            )

    def _ended(self, number: int, status: int, reason: str = "") -> None:
        what = self._running.pop(number)
        tail = () if self._by_ranks else self._last_lines(str(number), status)  # a launcher has no supervisor
        end = ProgramExit(status, what, reason or ended(what, status, self._why(status)), tail)
        self._program_ranks.read()  # reports may still be in the pipe
        if status:
            end = AwaitedEnds(failures=[*self._failed_ranks.values(), end]).cause() or end
        message = messages.Ended(**vars(end), last=not self._running)
        if message.last and not status and self._uniting is not None and not self._by_ranks:
            self._background(self._tell_once_all_is_passed_on(message))
        else:
            self._tell(message)

    async def _tell_once_all_is_passed_on(self, message: messages.Ended) -> None:
        assert self._uniting is not None
        await self._uniting.ended()
        self._tell(message)

    def _last_lines(self, number: str, status: int) -> tuple[str, ...]:
        """The last lines of a failed program, as its supervisor saved them; nothing if it did not."""
        try:
            text = (self._run_dir.path / f"tail.{number}").read_bytes().decode("utf-8", "replace") if status else ""
        except OSError:
            return ()
        lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
        return tuple(one_line(line, LINE) for line in [line.rstrip() for line in lines if line.strip()][-LINES:])

    def _daemon_ended(self, name: str, wait: int) -> None:
        if not self._by_ranks:
            return  # a rank has started an MPI of its own
        status = process.exit_status(os.waitstatus_to_exitcode(wait))
        self._tell(messages.Daemon(name, status, self._why(status)))

    async def _watch_limit(self) -> None:
        """While ranks start: if the kernel refuses a process, it may be a rank, and nobody else would report it.

        A node that mpirun gives fewer ranks than it has slots watches for as long as ranks may take to start.
        """
        slots = self._members.reports[self._draft.topology.me].slots
        processes, ends = Processes(), time.monotonic() + self._spec.timeouts.launch
        while self._stopping is None and self._ranks_started < slots and time.monotonic() < ends:
            await rest(_LOOK)
            if reason := processes.refused():
                self._log(f"warning: EP609 {reason}")
                self._tell(messages.Limit(reason))
                return

    def _why(self, status: int) -> str:
        """What this container ran out of, where a program of it failed."""
        killed = (status == 128 + signal.SIGKILL and self._memory.oom_killed()) or ""
        return killed or (status != 0 and self._processes.refused()) or ""

    def idle(self) -> float:
        """Seconds since a rank of this node printed something, or since its programs were started."""
        try:
            # Not the file's own time: a clock may jump, and a file server has another one.
            return time.monotonic() - float((self._run_dir.path / "last-output").read_bytes()[:20])
        except (OSError, ValueError):
            return 0.0

    def show_line(self) -> None:
        """Say once how mpirun was started."""
        file = self._run_dir.path / mpirun.LINE
        if not self._line_shown and file.is_file() and (line := mpirun.shown(file.read_bytes())):
            self._line_shown = True
            self._log(f"started: {line}")

    def written(self) -> int:
        """Bytes that the programs of this node have written so far."""
        mine = sum(proc.number(f"/proc/{each.pid}/io", "wchar:") or 0 for each in self._started)
        return mine + (self._uniting.written if self._uniting else 0)

    async def gone(self) -> None:
        """Return when the programs that were started have ended, and their lines are passed on."""
        for program in self._started:
            await program.wait()
        if self._uniting is not None:
            await self._uniting.ended()

    def _reader_left(self) -> None:
        """Say that nobody reads stdout: no reason to end the job, and the launcher does not see it."""
        asyncio.get_running_loop().remove_reader(1)
        why, then = "its reader has ended, as `| head` does", "the job goes on, and what it prints there is lost"
        self._log(f"warning: EP627 nobody reads stdout any more | {why} | {then}")

    # -- end

    async def _stop(self, grace: float) -> None:
        """TERM to every program of this node, the whole grace (seconds) to save, then KILL; then say so.

        If ranks report by themselves, the launcher gets no signal: it would kill them before the grace ends.
        """
        gone = None
        if self._by_ranks:
            spawned = []
            if self._launcher_ends is None:  # else all have been told
                spawned = self._spawned()
                self._ranks.signal(signal.SIGTERM)
                for pid in spawned:
                    terminate_tree(pid)
            gone = asyncio.create_task(self._ranks_gone(spawned))
        elif groups := [program.pid for program in self._started if program.returncode is None]:
            running = set(groups) - self._ranks.leaving  # supervisors end leftovers
            below = {pid for group in running for pid in proc.descendants(group)}
            for group in running:
                process.kill_group(group, signal.SIGTERM)
            gone = asyncio.create_task(self._all_gone(groups, below))
        if gone:
            force = asyncio.create_task(self._force.wait())
            done, _ = await asyncio.wait({gone, force}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            force.cancel()
            if grace and not done:
                words = f"EP615 not all programs stopped within the grace of {grace:g}s"
                self._log(f"{words}; this is what they do, then they are killed")
                await self._show_stacks(_LAST_LOOK)
            self._ranks.kill()
        self._tell(messages.Stopped())

    async def _outlast_ranks(self, launcher: int) -> None:
        """The launcher ends the job by itself, and would be gone a second later; this gives ranks their grace.

        MPI ends ranks whose daemon is gone, so the daemon stands still until they have saved. Its own status, which
        says why, comes after that.
        """
        if not proc.is_below(launcher, os.getpid()):
            return
        proc.kill([launcher], signal.SIGSTOP)
        try:
            if self._stopping is None:
                self._ranks.signal(signal.SIGTERM)
            forced = asyncio.create_task(self._force.wait())
            ended = asyncio.create_task(self._ranks.ended())
            await asyncio.wait({ended, forced}, timeout=self._spec.timeouts.grace, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            forced.cancel()
        finally:
            proc.kill([launcher], signal.SIGCONT)

    def _spawned(self) -> list[int]:
        """The processes that a rank has started by MPI_Comm_spawn: MPI's daemon starts them, without a supervisor."""
        below = proc.below(os.getpid())
        daemons = {pid for pid, name, _ in below if name in DAEMONS} | {program.pid for program in self._started}
        supervisors = self._ranks.supervisors
        known = supervisors | {proc.state(pid)[1] for pid in supervisors}  # one may be apart (supervisor.py, --group)
        children = [(pid, fields) for pid, _, fields in below if int(fields[1]) in daemons - known]
        # What is in its parent's group is no process of the job, such as an agent.
        return [pid for pid, fields in children if int(fields[2]) == pid and pid not in known | daemons]

    async def _ranks_gone(self, spawned: list[int]) -> None:
        await self._ranks.gone()
        await children.gone({*spawned} & {*self._spawned()})  # one may be a rank's supervisor that has just started

    async def _all_gone(self, groups: list[int], below: set[int]) -> None:
        """Return when the programs and all that they started are gone: both may need the grace."""
        await self._ranks.ended()
        await children.gone(below & set(proc.descendants(os.getpid())))  # orphans are our children
        await children.gone(groups)  # supervisors stay until all output is passed on

    async def _show_and_tell(self) -> None:
        await self._show_stacks()
        self._tell(messages.StacksShown())

    async def _show_stacks(self, limit: float = 10.0) -> None:
        alive = self._program_ranks.alive or self._ranks.alive
        names = {} if self._by_ranks or self._program_ranks.alive else self._running
        programs = {names.get(number, f"rank {number}"): pid for number, pid in alive.items()}
        await stacks.show(programs, self._facts.env.get("PATH", ""), limit, self._log)

    async def _pass_last_on(self, uniting: LineMerger) -> None:
        """Wait for the last lines as long as somebody takes some; say what is lost."""
        if all(
            program.returncode is not None for program in self._started
        ):  # else a launcher that hangs holds its pipes
            await uniting.ended(_UNREAD)
        if lost := await uniting.give_up():
            self._say_lost(lost)

    def _say_lost(self, size: int) -> None:
        why = "nobody reads our output, or the launcher does not end"
        self._log(f"warning: EP628 output of the ranks is lost, {size} bytes at least | {why}")

    async def close(self) -> None:
        """Nothing that the job has started on this node outlives it."""
        asyncio.get_running_loop().remove_reader(1)
        if self._uniting is not None:
            await self._pass_last_on(self._uniting)
        if left := await children.end_all(_GONE):
            do = "see what their kernel waits for"
            words = f"EP616 killed programs are still there after {_GONE:g}s, with what they hold"
            self._log(f"{words} | {'; '.join(left)} | {do}")
        await self.gone()
        self._ranks.close()
        self._program_ranks.close()
        self._reaper.close()
