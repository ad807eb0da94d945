"""What leader and worker have in common: the run directory, sshd, the ranks of this node, signals, and one verdict."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from entrypoint.errors import EXIT_SOFTWARE, EntrypointError, OsError
from entrypoint.model import Facts, File, JobSpec, Outcome, Plan
from entrypoint.plan import environment
from entrypoint.run import keys as job_keys
from entrypoint.run import process
from entrypoint.run.attend import Attendant
from entrypoint.run.files import RunDir
from entrypoint.run.orphans import Reaper
from entrypoint.run.progress import Say
from entrypoint.run.ranks import Ranks
from entrypoint.run.sshd import Sshd

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
KILL_MARGIN = 2.0  # seconds after the grace for killed processes to be seen gone


class Node:
    """One container's part in the job. The first `decide` is the verdict; everything after it only ends things."""

    def __init__(self, spec: JobSpec, facts: Facts, draft: Plan, say: Say) -> None:
        self.spec, self.facts, self.draft, self.say = spec, facts, draft, say
        self.topology = topology = draft.topology
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._defect)
        self.verdict: asyncio.Future[Outcome] = loop.create_future()
        self.impatient = asyncio.Event()  # a second signal: skip the rest of the grace
        self.command: asyncio.subprocess.Process | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._signals = 0
        process.adopt_orphans()
        self._reaper = Reaper()
        # In place before anything slow: a signal that comes while we wait is a stop like any other.
        for signum in _STOP_SIGNALS:
            loop.add_signal_handler(signum, self._signalled, signum)
        self.run_dir = RunDir(topology.run_dir)
        self.ranks = Ranks(self.run_dir.pipe("ranks"), self.on_rank)
        self.attendant: Attendant | None = None
        self.sshd: Sshd | None = None
        self.keys: job_keys.Keys | None = None

    # -- to be told

    def decide(self, status: int, reason: str) -> None:
        """The job's result, unless it is known already."""
        if not self.verdict.done():
            self.verdict.set_result(Outcome(status, reason))

    def failed(self, error: Exception) -> None:
        """An error is the verdict: ours to say, or a defect of ours; never a silent wait."""
        if isinstance(error, EntrypointError):
            self.decide(error.status, str(error))
        else:
            self.decide(EXIT_SOFTWARE, f"a defect of ours: {type(error).__name__}: {error} | please report it")

    def _defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failed(context.get("exception") or RuntimeError(context["message"]))

    def on_rank(self, event: str, rank: int, value: int) -> None:
        """A rank of this node started (value: pid) or ended (value: status)."""
        raise NotImplementedError

    def on_signal(self, signum: int) -> None:
        """We are asked to stop."""
        raise NotImplementedError

    def _signalled(self, signum: int) -> None:
        self._signals += 1
        if self._signals > 1:
            self.impatient.set()
        name = signal.Signals(signum).name
        self.say(f"{name}: stopping" if self._signals == 1 else f"{name} again: not waiting for the grace to end")
        self.on_signal(signum)

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something beside the rest; an error of ours in it is the verdict."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.failed(error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- steps

    async def open_door(self, plan: Plan) -> None:
        """Make this node one that can be logged in to: keys, attendant's socket, sshd."""
        self.keys = job_keys.load(self.spec, self.topology)
        for name, content in self.keys.files().items():
            if any(file.name == name for file in plan.files):
                self.run_dir.write(name, content, 0o600)
        self.write(file for file in plan.files if file.name == "sshd_config")
        self.attendant = Attendant(self.on_leader, self.on_leader_lost)
        await self.attendant.open(self.run_dir)
        self.sshd = await Sshd.start(
            self.facts,
            self.run_dir.path / "sshd_config",
            self.spec.ssh.port,
            self.topology.this.address,
            self.on_sshd_line,
        )
        self.background(self.sshd.watch(self.on_sshd_died))

    def on_leader(self, message: dict[str, Any]) -> None:
        """A line from the leader; the leader itself gets none."""

    def on_leader_lost(self) -> None:
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

    async def start_command(self, plan: Plan) -> None:
        """Start this node's command, if it has one; its end goes to `on_command_end`."""
        self.run_dir.ready()
        argv = plan.launch.argv
        if argv is None or self.verdict.done():
            return
        try:
            self.command = await process.start(argv, self._command_env(plan), plan.workdir)
        except OSError as error:
            outcome = process.cannot_start(argv, error)
            self.on_command_end(outcome.status, outcome.reason)
            return
        self.background(self._wait_for_command(self.command, argv[0] if plan.launcher == "plain" else plan.launcher))

    def _command_env(self, plan: Plan) -> Mapping[str, str]:
        return environment(self.facts.env, (*plan.env, *plan.launch.env))

    async def _wait_for_command(self, command: asyncio.subprocess.Process, name: str) -> None:
        status = process.exit_status(await command.wait())
        self.on_command_end(status, process.ended(name, status))

    def on_command_end(self, status: int, reason: str) -> None:
        """This node's command ended."""
        raise NotImplementedError

    async def stop_programs(self, grace: float) -> None:
        """TERM to every program of this node, the whole grace (seconds) to save, then KILL.

        Where ranks report themselves the launcher is not told: it has less patience than the grace.
        """
        if self.draft.launch.wraps_ranks:
            self.ranks.signal(signal.SIGTERM)
            gone = asyncio.create_task(self.ranks.gone())
        elif self.command is not None and self.command.returncode is None:
            below = set(process.descendants(self.command.pid))
            process.kill_group(self.command.pid, signal.SIGTERM)
            gone = asyncio.create_task(self._command_gone(self.command, below))
        else:
            return
        hurry = asyncio.create_task(self._hurried())
        await asyncio.wait({gone, hurry}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        hurry.cancel()
        self.ranks.signal(signal.SIGKILL)

    async def _command_gone(self, command: asyncio.subprocess.Process, below: set[int]) -> None:
        """Return when the command is gone and all that it had started: they may need the grace more than it does."""
        await command.wait()
        # Its own process group was told to stop; what has another one, a launcher tells, if it is one and did.
        left = below & set(process.descendants(os.getpid()))  # orphans are ours
        process.kill(process.outside_group(left, command.pid), signal.SIGTERM)
        await process.gone(left)

    async def _hurried(self) -> None:
        await self.impatient.wait()

    async def close(self) -> None:
        """Nothing of ours outlives us: processes, socket, files."""
        for task in list(self._tasks):
            task.cancel()
        if self.attendant is not None:
            self.attendant.close()
        if self.sshd is not None:
            self.sshd.stop()
        process.sweep()
        if self.sshd is not None:
            await self.sshd.ended()
        if self.command is not None:
            await self.command.wait()
        self.ranks.close()
        self._reaper.close()
        self.run_dir.close()
