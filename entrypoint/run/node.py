"""What leader and worker have in common: the run directory, sshd, the ranks of this node, signals, and one verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from entrypoint.errors import EXIT_SOFTWARE, EntrypointError, OsError
from entrypoint.host import checks, ourselves, process, rank_table
from entrypoint.host import keys as job_keys
from entrypoint.host.files import RunDir, make_folders
from entrypoint.host.limits import Processes
from entrypoint.host.memory import Memory
from entrypoint.host.signals import Signals
from entrypoint.host.speaker import Speaker
from entrypoint.host.sshd import Sshd
from entrypoint.model import Facts, File, Members, Outcome, Plan
from entrypoint.plan import environment, kept, settle
from entrypoint.programs import stacks
from entrypoint.programs.orphans import Reaper
from entrypoint.programs.ranks import Ranks
from entrypoint.session import codec
from entrypoint.session.endpoint import Endpoint
from entrypoint.spec import JobSpec
from entrypoint.supervised import OF_PROGRAM
from entrypoint.verdict import End, Ends

KILL_MARGIN = 2.0  # seconds after the grace for killed processes to be seen gone


_LOOK = 0.5  # seconds between two looks at what the kernel of version 1 cgroups tells nobody of
_GONE = 10.0  # seconds for killed programs to be gone: taking much memory back takes the kernel its time
_LAST_LOOK = 1.5  # seconds for the stacks of programs that have used up their grace: less than KILL_MARGIN
_LAST = 20  # lines of a program that failed, which are shown
_LINE = 1000  # characters of each of them


def last_lines(tail: Path) -> tuple[str, ...]:
    """What a program that failed said last, as its supervisor wrote it down; nothing where it did not."""
    try:
        text = tail.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(codec.one_line(line, _LINE) for line in [line.rstrip() for line in lines if line.strip()][-_LAST:])


def short(value: object) -> str:
    """A value as part of a sentence."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Node:
    """One container's part in the job. The first `decide` is the verdict; everything after it only ends things."""

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        draft: Plan,
        unfit: Outcome | None,
        attempt: int,
        signals: Signals,
        say: Speaker,
    ) -> None:
        self.spec, self.facts, self.draft, self.unfit, self.say = spec, facts, draft, unfit, say
        self.attempt = attempt  # the leader's count, once it has said it
        self.stop: Outcome | None = None  # somebody asked us to stop, be the job's result known or not
        self.topology = topology = draft.topology
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._defect)
        self.verdict: asyncio.Future[Outcome] = loop.create_future()
        self.impatient = asyncio.Event()  # a second signal: skip the rest of the grace
        self._started: list[asyncio.subprocess.Process] = []  # programs of this node, or what keeps them
        self._running: dict[int, str] = {}  # those that have not ended: number -> what people call it
        self._tasks: set[asyncio.Task[Any]] = set()
        ourselves.show(ourselves.WAITING)  # where an attempt before had started
        process.adopt_orphans()
        self._reaper = Reaper(self._daemon_ended)
        signals.take(self._signalled, self.on_user_signal)
        self._plan = draft  # until `prepare`
        self.run_dir = RunDir(topology.run_dir)
        self.memory = Memory.watch()
        self.processes = Processes.watch()
        self.ranks = Ranks(self.run_dir, self._on_report)
        self.program_ranks = Ranks(self.run_dir, self._on_program_rank, OF_PROGRAM)
        self._failed_ranks: list[End] = []  # since a program last started its ranks
        self.endpoint: Endpoint | None = None
        self.sshd: Sshd | None = None
        self.keys: job_keys.Keys | None = None

    # -- to be told

    def decide(self, status: int, reason: str, program: bool = False, again: bool = False) -> None:
        """The job's result, unless it is known already."""
        if not self.verdict.done():
            self.verdict.set_result(Outcome(status, reason, program, again))

    def failed(self, error: Exception) -> None:
        """An error is the verdict: ours to say, or a defect of ours; never a silent wait."""
        if self.unfit:  # known before, and maybe its cause
            self.give_up(self.unfit)
        elif isinstance(error, EntrypointError):
            self.give_up(Outcome(error.status, str(error)))
        else:
            reason = f"a defect of ours: {type(error).__name__}: {error} | please report it"
            self.give_up(Outcome(EXIT_SOFTWARE, reason))

    def give_up(self, outcome: Outcome, stop: bool = False) -> None:
        """This node cannot go on, or was asked to stop, so the job cannot go on."""
        if stop:
            self.stop = self.stop or outcome
        self.decide(outcome.status, outcome.reason, outcome.program)

    def _defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failed(context.get("exception") or RuntimeError(context["message"]))

    def on_rank(self, event: str, rank: int, value: int, tail: tuple[str, ...], why: str) -> None:
        """A rank of this node started (value: pid), or ended (value: status; why, where that is known, and the last
        lines it printed, if it failed)."""
        raise NotImplementedError

    def on_daemon(self, name: str, status: int, why: str) -> None:
        """A daemon of mpirun's has ended on this node, and why, where that is known."""

    def on_limit(self, reason: str) -> None:
        """This node could not start a process."""

    def _daemon_ended(self, name: str, wait: int) -> None:
        status = process.exit_status(os.waitstatus_to_exitcode(wait))
        self.on_daemon(name, status, self._why(status))

    async def watch_limit(self) -> None:
        """While ranks are started: a process that the kernel refuses may be one of them, and nobody would say so."""
        processes, ends = Processes.watch(), time.monotonic() + self.spec.timeouts.launch
        while not self.verdict.done() and time.monotonic() < ends:
            await asyncio.wait({self.verdict}, timeout=_LOOK)
            if reason := processes.refused():
                self.say(f"warning: {reason}")
                self.on_limit(reason)
                return

    def _why(self, status: int) -> str:
        """What this container ran out of, where a program of it failed."""
        killed = (status == 128 + signal.SIGKILL and self.memory.oom_killed()) or ""
        return killed or (status != 0 and self.processes.refused()) or ""

    def on_signal(self, signum: int) -> None:
        """We are asked to stop."""
        raise NotImplementedError

    def on_user_signal(self, signum: int) -> None:
        """A signal came that is for the job's ranks."""
        raise NotImplementedError

    def pass_on(self, signum: int) -> None:
        """Give the ranks of this node a signal, and not what starts them, which would end by it."""
        (self.program_ranks if self.draft.launch.reports == "both" else self.ranks).signal(signum)

    def _signalled(self, signum: int, again: bool) -> None:
        if again:
            self.impatient.set()
        self.on_signal(signum)

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run something beside the rest; an error of ours in it is the verdict."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.failed(error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- steps

    async def open_door(self, plan: Plan) -> None:
        """Make this node one that can be logged in to: keys, endpoint's socket, sshd."""
        self.keys = job_keys.load(self.spec, self.topology)
        for name, content in self.keys.files().items():
            if any(file.name == name for file in plan.files):
                self.run_dir.write(name, content, 0o600)
        self.write(file for file in plan.files if file.name == "sshd_config")
        self.endpoint = Endpoint(self.on_leader, self.on_leader_lost, self.may_replace_leader)
        await self.endpoint.open(self.run_dir)
        self.sshd = await Sshd.start(
            self.facts,
            self.run_dir.path / "sshd_config",
            self.topology.this.ssh_port,
            self.topology.this.address,
            self.on_sshd_line,
        )
        self.background(self.sshd.watch(self.on_sshd_died))

    def on_leader(self, message: codec.Message) -> None:
        """A message from the leader; the leader itself gets none."""

    def may_replace_leader(self, hello: codec.Message) -> bool:
        """Whether who says this may take the place of the session that is there."""
        return True

    def on_leader_lost(self, why: str) -> None:
        """The leader's session ended."""

    def on_sshd_line(self, line: str) -> None:
        """A line of sshd's log."""

    def on_sshd_died(self, what: str) -> None:
        """sshd ended unasked."""
        self.decide(OsError.status, what)

    def write(self, files: Iterable[File]) -> None:
        """Write the plan's files, but for the keys, which are written where they are made."""
        for file in files:
            if file.text:
                self.run_dir.write(file.name, file.text, file.mode)

    def broken(self) -> Outcome | None:
        """Why this node cannot take part, or start what the launcher needs. A rank would not say it."""
        return self.unfit or checks.launcher(self.facts, self.draft.launch)

    def prepare(self, members: Members, leader_env: Mapping[str, str] | None = None) -> Plan:
        """Settle what this node will do, and write all that it needs: a rank may be started here from now on."""
        self._plan = plan = settle(self.spec, self.facts, self.topology, members, leader_env)
        self.write(plan.files)
        make_folders(plan.launch.folders)
        self.run_dir.write("said", f"{time.monotonic():020.3f}\n\n\n", 0o600)
        self.say.follow(self.run_dir.path / "said")
        return plan

    async def start(self, members: Members, leader_env: Mapping[str, str] | None = None) -> None:
        """Start this node's programs, where it has any; what waits for a rank table is prepared only now."""
        if self.draft.launch.needs_rank_table:
            cards = await rank_table.wait(self.facts, self.topology, self.spec.timeouts.peers, self.say)
            self.prepare(replace(members, cards=cards), leader_env)
        ourselves.show(ourselves.STARTED)
        # All of them first: one may have ended before the next is started, and is not the last.
        for number, program in enumerate(self._plan.launch.programs):
            self._running[number] = program.label or (
                program.argv[0] if self._plan.launch.becomes_program else self._plan.launcher
            )
        for number, _ in enumerate(self._plan.launch.programs):
            if self.verdict.done():
                return
            await self._start(self._plan, number)

    async def _start(self, plan: Plan, number: int) -> None:
        program = plan.launch.programs[number]
        argv, env = program.argv, environment(self.facts.env, (*plan.env, *program.env))
        if plan.launch.reports != "ranks":  # else each rank is kept, wherever it runs
            argv = kept(program, number, self.spec, self.topology)
        unread = None if plan.launch.reports == "ranks" else process.cannot_read(self.spec.command, plan.workdir)
        if refused := unread or checks.program(self.facts, plan, program):
            self._ended(number, refused.status, refused.reason)
            return
        try:
            started = await process.start(argv, env, plan.workdir, kept=plan.launch.reports != "ranks")
        except OSError as error:
            outcome = process.cannot_start(program.argv, error)
            self._ended(number, outcome.status, outcome.reason)
            return
        self._started.append(started)
        self.background(self._wait_for(started, number, plan.launch.reports != "ranks"))

    async def _wait_for(self, launcher: asyncio.subprocess.Process, number: int, is_supervisor: bool) -> None:
        status = process.exit_status(await launcher.wait())
        if not is_supervisor:
            self._ended(number, status, why=self._why(status))
            return
        self.ranks.read()  # what it said of its program
        if number in self._running:  # nothing: it was killed, or could not even start
            self._on_report("end", number, status)

    def _on_report(self, event: str, number: int, value: int) -> None:
        """A supervisor tells of its program: a rank, wherever its launcher put it, or a program of this node's."""
        tail, why = self._last_words(f"tail.{number}", event, value)
        if self.draft.launch.reports == "ranks":
            self.on_rank(event, number, value, tail, why)
        elif event == "end" and number in self._running:
            self._ended(number, value, why=why, tail=tail)

    def _on_program_rank(self, event: str, rank: int, value: int) -> None:
        """A rank that a program of this node started: its failure is why the program fails, or starts all again."""
        if event == "start":
            self._failed_ranks.clear()
        elif value:
            what = f"rank {rank}"
            tail, why = self._last_words(f"tail.{OF_PROGRAM}.{rank}", event, value)
            self._failed_ranks.append(End(value, what, process.ended(what, value, why), tail))

    def _last_words(self, file: str, event: str, value: int) -> tuple[tuple[str, ...], str]:
        """The last lines of what ended, where it failed, and why, where that is known."""
        tail = last_lines(self.run_dir.path / file) if event == "end" and value else ()
        return tail, self._why(value) if event == "end" else ""

    def _ended(self, number: int, status: int, reason: str = "", why: str = "", tail: tuple[str, ...] = ()) -> None:
        what = self._running.pop(number)
        end = End(status, what, reason or process.ended(what, status, why), tail)
        self.program_ranks.read()  # what they told before may still lie there
        if status:
            end = Ends(failures=[*self._failed_ranks, end]).cause() or end
        self.on_program_end(end, not self._running)

    def on_program_end(self, end: End, last: bool) -> None:
        """A program of this node ended; `last` where no other runs any more."""
        raise NotImplementedError

    async def stop_programs(self, grace: float) -> None:
        """TERM to every program of this node, the whole grace (seconds) to save, then KILL.

        Where ranks report themselves the launcher is not told: it has less patience than the grace.
        """
        if self.draft.launch.reports == "ranks":
            self.ranks.terminate()
            gone = asyncio.create_task(self.ranks.gone())
        elif groups := [program.pid for program in self._started if program.returncode is None]:
            running = set(groups) - self.ranks.leaving  # what the others left, their supervisors end
            below = {pid for group in running for pid in process.descendants(group)}
            for group in running:
                process.kill_group(group, signal.SIGTERM)
            gone = asyncio.create_task(self._programs_gone(groups, below))
        else:
            return
        hurry = asyncio.create_task(self._hurried())
        done, _ = await asyncio.wait({gone, hurry}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        hurry.cancel()
        if grace and not done:
            self.say(
                f"not all programs stopped within the grace of {grace:g}s; this is what they do, then they are killed"
            )
            await self.show_stacks(_LAST_LOOK)
        self.ranks.kill()

    async def _programs_gone(self, groups: list[int], below: set[int]) -> None:
        """Return when the programs are gone and all that they had started: what needs the grace may be the latter."""
        await self.ranks.ended()
        # Their own process groups were told to stop; what has another one, a launcher tells, if it is one and did.
        left = below & set(process.descendants(os.getpid()))  # orphans are ours
        process.kill(process.outside_groups(left, groups), signal.SIGTERM)
        await process.gone(left)
        await process.gone(groups)  # they stay until the last words are passed on

    def quiet(self) -> float:
        """Seconds since a rank of this node printed something, or since its programs were started."""
        try:
            # Not the file's own time: a clock may jump, and a file server has another one.
            return time.monotonic() - float((self.run_dir.path / "said").read_bytes()[:20])
        except (OSError, ValueError):
            return 0.0

    async def show_stacks(self, limit: float = 10.0) -> None:
        """Show what each program of this node is doing, within `limit` seconds."""
        alive = self.program_ranks.alive or self.ranks.alive
        names = {} if self.draft.launch.reports == "ranks" or self.program_ranks.alive else self._running
        programs = {names.get(number, f"rank {number}"): pid for number, pid in alive.items()}
        await stacks.show(programs, self.facts.env.get("PATH", ""), limit, self.say)

    async def _hurried(self) -> None:
        await self.impatient.wait()

    async def close(self) -> None:
        """Nothing of ours outlives us: processes, socket, files."""
        for task in list(self._tasks):
            task.cancel()
        if self.endpoint is not None:
            self.endpoint.close()
        if self.sshd is not None:
            self.sshd.stop()
        if left := await process.end_all(_GONE):
            do = "see what their kernel waits for"
            self.say(
                f"killed programs are still there after {_GONE:g}s, with what they hold | {'; '.join(left)} | {do}"
            )
        if self.sshd is not None:
            await self.sshd.ended()
        for program in self._started:
            await program.wait()
        self.ranks.close()
        self.program_ranks.close()
        self._reaper.close()
        self.run_dir.close()
