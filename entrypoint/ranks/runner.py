"""Starts the programs of this node, and executes the other orders of the leader."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from entrypoint.base.history import History
from entrypoint.base.kept import KeptForm
from entrypoint.base.model import Facts, File, Launch, Members, Plan
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.output.log import Callbacks
from entrypoint.plan import env_of_ranks, environment, form_of, session_env, settle
from entrypoint.plan.members import Replaced, team_of, with_report
from entrypoint.plan.ports import with_chosen
from entrypoint.ranks import command_line, orders
from entrypoint.ranks.keeping import KeeperProcess
from entrypoint.ranks.node_ranks import DaemonRanks, ProgramRanks
from entrypoint.ranks.placeholder import REQUESTS, WAITING
from entrypoint.ranks.stall.watch import RankWatcher
from entrypoint.ranks.stop import NodeStop
from entrypoint.spec import JobSpec
from entrypoint.system import checks, process
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import RunDir, make_folders

_COMMAND = 8 << 20  # bytes of a launcher's command line; the kernel takes fewer


class Programs:
    """The programs of the job on this node. `do` executes an order; reports go to the callback
    `tell`, and `note` is that of NodeRanks."""

    _leader_env: Mapping[str, str] | None = None
    command = ""  # the command line that was started, for the record
    _daemons = 0  # of an MPI that were asked for here

    def __init__(
        self,
        spec: JobSpec,
        facts: Facts,
        draft: Plan,
        places: tuple[RunDir, KeeperProcess],
        callbacks: Callbacks,
        note: Callable[[events.RankChanged], None],
    ) -> None:
        run_dir, keeper = places
        self._spec = spec
        self._facts = facts
        self._draft = draft
        self._topology = draft.topology  # of this attempt, once its number is known
        self._run_dir = run_dir
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._plan = draft  # until `prepare`
        self._members = draft.members
        self._replaced: Replaced = ()
        process.show(process.WAITING)  # an earlier attempt may have set STARTED
        kind = DaemonRanks if draft.launch.ranks.kind.by_daemons else ProgramRanks
        self.ranks = kind(facts, draft, keeper, callbacks, note)
        self.watcher = RankWatcher(spec.stall, facts, draft, callbacks, self.ranks)
        self._stop = NodeStop(self.ranks, self.watcher, callbacks)

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
                self._start_daemon(command)
            case messages.Ping(number):
                self.ranks.keeping.read()  # reports of ranks are sent before this answer
                self.watcher.tell_steps()
                failed, memory = len(self.ranks.failed_ranks), self.ranks.limits.memory.use()
                self._tell(messages.Pong(self.idle(), number, failed, memory))
            case messages.Signal(name):
                # a launcher would end
                self.ranks.without_launchers.signal(signal.Signals[name])
            case messages.Stacks():
                self._background(self.watcher.tell_stacks())
            case messages.Stop(grace):
                self._stop.begin(grace)
            case messages.ReleaseFailedRanks():
                self.ranks.keeping.send(orders.ReleaseRanks())
            case _:
                raise TypeError(f"this is no order: {message!r}")

    def prepare(
        self,
        members: Members,
        leader_env: Mapping[str, str] | None = None,
        port: int = 0,
        replaced: Replaced = (),
    ) -> Launch:
        """Settle the final plan and write its files: ranks may start here from now on. `port` and
        `replaced` as in messages.Start.

        A launcher that needs a rank table is prepared only at the start. Raises EntrypointError.
        """
        self._members = members
        self._leader_env = leader_env
        neighbours = members.reports[self._topology.me].neighbours
        self._take(messages.Start(self._topology.history, port, replaced, neighbours))
        return self._draft.launch if self._draft.launch.needs_rank_table else self._prepare()

    def _take(self, order: messages.Start) -> bool:
        """Return whether the plan changes by what the roll call has brought."""
        before = self._spec, self._topology, self._members, self._replaced
        self._spec = with_chosen(self._spec, self._plan.launch.port, order.port)
        known = History(order.history.attempt, earlier=order.history.earlier)
        self._topology = replace(self._topology, history=known)
        self._members = with_report(self._members, self._topology.me, neighbours=order.neighbours)
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
        self.watcher.launch = self._plan.launch
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
        self._log.attempt = order.history.number
        topology = self._draft.topology
        if topology.me not in team_of(topology, order.replaced):
            process.show(process.STARTED)  # it waits for as long as the job runs
            return
        if self.ranks.reports_ranks:
            slots = self._members.reports[topology.me].slots
            self._background(self.ranks.watch_limit(slots, self._spec.timeouts.launch))
        if self._take(order):
            self._prepare()
        if self._draft.launch.needs_rank_table:
            from entrypoint.ranks import rank_table

            limit = self._spec.timeouts.peers
            cards = await rank_table.wait(self._facts, topology, limit, self._log)
            self._members = replace(self._members, cards=cards)
            self._prepare()
        launch = self._plan.launch
        if process.is_pipe(1):
            # called when nobody can read it any more
            asyncio.get_running_loop().add_reader(1, self._reader_left)
        if path := self._spec.restarts.progress:
            from entrypoint.ranks.checkpoints import CheckpointWatch

            watch = CheckpointWatch(path, self._tell, self._log)
            self._stop.checkpoints = watch
            await watch.begin()
            self._background(watch.watch())
        process.show(process.STARTED)
        names = (
            program.label or (program.argv[0] if launch.becomes_program else self._plan.launcher)
            for program in launch.programs
        )
        self.ranks.expect(self._topology, names)
        self._begin()
        for number, _ in enumerate(launch.programs):
            self._start(number)
        if launch.programs:
            self.show_line()

    def _begin(self) -> None:
        """Have the keeper take ranks from launchers from now on."""
        launch, logs = self._plan.launch, self._spec.logs
        ranks = None
        if launch.ranks.form is not None:
            for name in (REQUESTS, WAITING):
                os.close(self._run_dir.pipe(name))
            ranks = replace(launch.ranks.form, env=tuple(env_of_ranks(self._facts, self._plan)))
        folder = str(self._run_dir.path)
        begin = orders.Begin(folder, ranks, logs.collapse == "yes", logs.format == "json")
        self.ranks.keeping.send(begin)

    def _start(self, number: int) -> None:
        """Start a program, unless this node stops."""
        if self.ranks.is_stopping:
            return
        plan = self._plan
        program = plan.launch.programs[number]
        env = environment(self._facts.env, (*plan.env, *program.env))
        unread = (
            None
            if self.ranks.reports_ranks
            else process.cannot_read(self._spec.command, plan.workdir)
        )
        if refused := unread or checks.program(self._facts, plan, program):
            self.ranks.ended(number, refused.status, refused.reason)
            return
        form = form_of(plan.launch, number, self._spec, self._topology)
        self.ranks.programs.start(
            orders.StartProgram(
                orders.PROGRAM, number, program.argv, _entries(env), plan.workdir, form
            )
        )

    def _start_daemon(self, command: str) -> None:
        """Start mpirun's daemon, which goes into the background."""
        if self.ranks.is_stopping:
            self._tell(messages.DaemonStarted(128 + signal.SIGTERM))
            return
        launcher = self._draft.launch.ranks.name
        env = session_env(self._facts, self._draft.topology, launcher)
        env["HOME"] = self._facts.home
        self._daemons += 1
        argv = ("/bin/sh", "-c", command)
        form = KeptForm(is_launcher=True, is_apart=True)
        self.ranks.keeping.send(
            orders.StartProgram(orders.DAEMON, self._daemons, argv, _entries(env), "/", form)
        )

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

    def _reader_left(self) -> None:
        """Log that nobody reads stdout; the job continues, since the launcher is not affected."""
        asyncio.get_running_loop().remove_reader(1)
        detail = "its reader has ended, as `| head` does"
        hint = "the job continues, and what it prints there is lost"
        self._log(f"warning: EP627 nobody reads stdout any more | {detail} | {hint}")

    async def close(self, spared: Set[int]) -> None:
        """End all processes of the job on this node but the keeper and these."""
        asyncio.get_running_loop().remove_reader(1)
        await self._stop.close(spared)


def _entries(env: Mapping[str, str]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(f"{name}={value}") for name, value in env.items())
