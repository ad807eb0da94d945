"""The programs and ranks of this node: what the keeper reports of them becomes messages to the
leader.

`ProgramRanks` are the programs of the plan, and ranks that these start; `DaemonRanks` are those
that the daemons of an MPI start on all nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from entrypoint.base.errors import HostError
from entrypoint.base.kept import verdict_file
from entrypoint.base.model import Facts, Plan, Topology
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.failure import Failures, ProgramExit, ended
from entrypoint.output.log import Callbacks
from entrypoint.ranks import command_line, orders
from entrypoint.ranks.below import terminate_tree
from entrypoint.ranks.keeping import Failure, KeeperProcess, Keeping, KeptHere, last_lines
from entrypoint.ranks.limits import NodeLimits
from entrypoint.system import children, proc
from entrypoint.system.threads import rest

if TYPE_CHECKING:
    from entrypoint.ranks.diagnosis import Diagnostician

# seconds between two reads of the count of refused processes, which version 1 cgroups do not
# announce
_LOOK = 0.5
_WORD = 0.5  # seconds in which a report of the keeper has come
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
_CHANGES = ("start", "output", "end")  # reports that the phases of this node follow from
# What became of output, by the event; more than one rank may say it.
_LOST = {
    "lost": "is lost, {} bytes at least | nobody reads our output, or the launcher does not end",
    "late": "may be lost, {} bytes at most | the launcher began to end and passes on only a part",
}
# the last line of a launcher's own script that cannot start it
_SCRIPT_ERROR = re.compile(r"[a-z_]{1,40}\.(?:sh|py): (EP650 [^|]+ \| [^|]+ \| [^|]+)")


class NodeRanks:
    """Programs and ranks of this node in one attempt, and their reports. `note` gets the changes of
    programs and ranks."""

    is_stopping = False
    reports_ranks = False  # whether the job consists of ranks, and programs are their launchers
    _has_warned_of_copies = False
    _diagnostician: Diagnostician | None = None  # once a rank or program has failed

    def __init__(
        self,
        facts: Facts,
        draft: Plan,
        keeper: KeeperProcess,
        callbacks: Callbacks,
        note: Callable[[events.RankChanged], None],
    ) -> None:
        self._facts = facts
        self._draft = draft
        self._callbacks = callbacks
        # Whether the end of rank 0, which is here, is the job's success.
        self._ends_with_first = draft.launch.ends_with_first and draft.topology.is_leader
        self._tell = callbacks.tell
        self._note = note
        # done by a force stop, which skips the rest of the grace
        self._forced = asyncio.get_running_loop().create_future()
        self.keeping = Keeping(keeper, self._on_report, self._keeper_lost)
        self.programs = self.keeping.kinds[orders.PROGRAM]
        self.ranks = self.keeping.kinds[orders.RANK]  # that a launcher starts
        self._topology = draft.topology  # of this attempt, once its number is known
        self._running: dict[int, str] = {}  # number -> name of programs that have not ended
        # of programs' ranks, until the same rank starts again
        self.failed_ranks: dict[int, tuple[ProgramExit, Failure]] = {}
        self.limits = NodeLimits(draft.topology.log_dir)

    def expect(self, topology: Topology, names: Iterable[str]) -> None:
        """Note what is about to start in this attempt: programs of these names. A program that ends
        before the next one starts is not the last."""
        self._topology = topology
        self._running = dict(enumerate(names))

    # -- what the keeper reports

    def _keeper_lost(self) -> None:
        """Report that the keeper has ended, and all ranks with it: it was killed."""
        error = HostError(
            "EP434 the keeper of this node's ranks was killed",
            "all programs and ranks of this node ended with it",
            "find out what sends signals to all processes of this user, or uses up the memory",
        )
        self._callbacks.background(_raise(error))

    def _on_report(self, report: Any) -> None:
        match report:
            case orders.StartedAs(_, number):
                command_line.store(self._topology, self._draft.launch, number, report)
            case orders.DaemonEnded(name, status):
                if self.reports_ranks:  # otherwise a rank has started its own MPI job
                    self._tell(messages.Daemon(name, status, self.limits.why(name, status)))
            case orders.Report(orders.DAEMON, _, "end", status):
                self._tell(messages.DaemonStarted(status))
            case orders.Report(kind, number, event, value):
                if kind != orders.DAEMON and not self._is_of_output(event, value):
                    self._on_change(kind == orders.RANK, number, event, value)

    def _on_change(self, is_rank: bool, number: int, event: str, value: int) -> None:
        """Handle a report about a program or rank."""
        name = f"rank {number}" if is_rank else self._running.get(number, f"program {number}")
        if event in _CHANGES and (is_rank or not self.reports_ranks):
            self._note(events.RankChanged(name, event))
        if is_rank:
            self._on_rank(event, number, value)
        elif event == "end" and number in self._running:
            self.ended(number, value)

    def _on_rank(self, event: str, rank: int, value: int) -> None:
        """Handle a report about a rank that a launcher has started."""
        raise NotImplementedError

    def _failure(self, rank: int, status: int) -> Failure:
        verdict = verdict_file(self._topology.run_dir, orders.RANK, rank)
        return Failure(f"rank {rank}", status, self.ranks.last_output(rank), verdict)

    def _is_of_output(self, event: str, value: int) -> bool:
        """Note what became of a rank's output, if the event tells that."""
        if event in _LOST:
            self.log_lost(value, event)
        elif event == "log":
            self.limits.log_error = value
        elif event != "copy":
            return False
        elif not self._has_warned_of_copies:
            self._has_warned_of_copies = True
            detail = f"{self._draft.topology.log_dir}: {os.strerror(value)}"
            hint = "make room there, or set log_dir"
            self._callbacks.log(
                f"warning: EP416 the copies of the ranks' output are incomplete | {detail} | {hint}"
            )
        return True

    def log_lost(self, size: int, event: str = "lost") -> None:
        """Warn that so many bytes of output are lost."""
        self._callbacks.log(f"warning: EP628 output of the ranks {_LOST[event].format(size)}")

    def _exit(self, failure: Failure) -> ProgramExit:
        """Return the end of a rank or program, with the reason if this node knows one."""
        name, status = failure.name, failure.status
        reason = ended(name, status, self.limits.why(name, status))
        return ProgramExit(status, name, reason, last_lines(failure.lines))

    def ended(self, number: int, status: int, reason: str = "") -> None:
        """Report the end of a program."""
        # a launcher's last lines are those of its ranks
        lines = () if self.reports_ranks else self.programs.last_output(number)
        verdict = verdict_file(self._topology.run_dir, orders.PROGRAM, number)
        failure = Failure(self._running.pop(number), status, lines, verdict)
        end = self._exit(failure)
        own = end.tail and _SCRIPT_ERROR.fullmatch(end.tail[-1])
        if own:
            end = replace(end, reason=own[1], tail=())
        elif reason:
            end = replace(end, reason=reason)
        if status:
            ends = [end for end, _ in self.failed_ranks.values()]
            end = Failures([*ends, end]).cause() or end
            if not (self.reports_ranks or own):
                for _, of_rank in self.failed_ranks.values():
                    self._diagnose(of_rank)
                self._diagnose(failure)
        is_first = self._ends_with_first and not number and not status
        self._tell(messages.Ended(**vars(end), last=is_first or not self._running))

    def _diagnose(self, failure: Failure) -> None:
        """Find out why a rank or program has failed, unless we have ended it."""
        is_ours = self.is_stopping and failure.status - 128 in _STOP_SIGNALS
        if not failure.status or is_ours:
            return
        if self._diagnostician is None:
            # What judges failures is loaded only if there is one.
            from entrypoint.ranks.diagnosis import Diagnostician
            from entrypoint.ranks.evidence import NodeProbe

            probe = NodeProbe(self._facts, self._draft.topology, self.limits)
            self._diagnostician = Diagnostician(probe, self._callbacks)
        self._diagnostician.failed(failure, self._draft.launch.names_nodes)

    def written(self) -> int:
        """Return the bytes that the programs of this node have written so far."""
        pids = (self.keeping.pid, *self.programs.alive.values())
        return sum(proc.number(f"/proc/{pid}/io", "wchar:") or 0 for pid in pids)

    async def watch_limit(self, slots: int, limit: float) -> None:
        """Report if the kernel refuses a process while ranks start: it may be a rank, which nobody
        else would report.

        It may have `slots` ranks, and they may take `limit` seconds to start.
        """
        ends = time.monotonic() + limit
        while not self.is_stopping and self.ranks.count < slots and time.monotonic() < ends:
            await rest(_LOOK)
            if reason := self.limits.processes.refused():
                self._callbacks.log(f"warning: EP609 {reason}")
                self._tell(messages.Limit(reason))
                return

    # -- their stop

    @property
    def without_launchers(self) -> KeptHere:
        """Return the ranks, or the programs if no launcher starts any."""
        return self.ranks if self._draft.launch.ranks.kind.by_launcher else self.programs

    def force(self) -> None:
        """Have no wait go on for what is left of the grace."""
        if not self._forced.done():
            self._forced.set_result(None)

    def terminate(self) -> bool:
        """Begin the stop with SIGTERM. Return whether there is something whose end is awaited."""
        self.is_stopping = True
        return True

    async def gone(self) -> None:
        """Return when nothing runs any more that gets the grace."""
        await self.ranks.gone()

    def kill(self) -> None:
        """Send SIGKILL to what has not ended in the grace."""
        self.ranks.signal(signal.SIGKILL)

    async def wait(self, end: Coroutine[Any, Any, None], limit: float) -> bool:
        """Wait for this end; return whether it, or a force stop, came within `limit` seconds."""
        task = asyncio.ensure_future(end)
        done, _ = await asyncio.wait(
            {task, self._forced}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
        )
        task.cancel()
        return bool(done)

    async def settled(self, grace: float) -> None:
        """Return once the causes of all failures are reported, after so many seconds at most."""
        if self._diagnostician is not None and grace and not self._forced.done():
            await self._diagnostician.settled(grace)


class ProgramRanks(NodeRanks):
    """Programs of this node that are ranks, or start some and may restart them."""

    _met = False  # whether a rank of this node's launcher has started, in an elastic job

    def _on_rank(self, event: str, rank: int, value: int) -> None:
        if event == "start":
            self.failed_ranks.pop(rank, None)
            if self._draft.launch.min_nodes is not None and not self._met:
                self._met = True
                self._tell(messages.Met())
        elif event == "end" and value:
            failure = self._failure(rank, value)
            self.failed_ranks[rank] = self._exit(failure), failure
        elif event == "end" and self._ends_with_first and not (rank or self.failed_ranks):
            self._tell(messages.Ended(0, "rank 0", "rank 0 exited with 0", (), last=True))

    def terminate(self) -> bool:
        super().terminate()
        self.programs.signal(signal.SIGTERM)
        return bool(self.programs.alive)

    async def gone(self) -> None:
        await self.programs.gone()
        await super().gone()

    def kill(self) -> None:
        super().kill()
        self.programs.signal(signal.SIGKILL)


class DaemonRanks(NodeRanks):
    """Ranks that the daemons of an MPI start, which report by themselves. Their launcher gets no
    signal: it would kill them before the grace ends; nor SIGKILL, since it still passes on what
    they printed."""

    reports_ranks = True
    # Ends that the launcher causes which is about to end, until its own; None if none is.
    _held: list[messages.RankEnd] | None = None
    _spawned: Sequence[int] = ()  # processes of MPI_Comm_spawn that got SIGTERM

    def _on_rank(self, event: str, rank: int, value: int) -> None:
        if event == "launcher" and self._held is None:
            self._held = []
            self._callbacks.background(self._outlast(value))
        elif event == "start":
            self._tell(messages.RankStart(rank, value))
            # mpirun itself gets no signal: a rank may start after the stop
            if self.is_stopping:
                self.ranks.signal(signal.SIGTERM, rank)
        elif event == "end":
            failure = self._failure(rank, value)
            why = self.limits.why(failure.name, value)
            end = messages.RankEnd(rank, value, last_lines(failure.lines), why)
            self._diagnose(failure)
            if self._held is not None and not self.is_stopping:
                # it is an effect of what the launcher is about to report
                self._held.append(end)
            else:
                self._tell(end)

    def terminate(self) -> bool:
        for end in self._held or ():
            self._tell(end)
        if self._held is None:  # otherwise all were signalled
            self._spawned = self.keeping.spawned()
            self.ranks.signal(signal.SIGTERM)
            for pid in self._spawned:
                terminate_tree(pid)
        return super().terminate()

    async def gone(self) -> None:
        await super().gone()
        # One may be a rank's placeholder that has just started: the keeper's word on that, and on
        # its rank, may be on its way.
        while left := {*self._spawned}.intersection(self.keeping.spawned()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(children.gone(left), _WORD)
            await super().gone()

    async def _outlast(self, launcher: int) -> None:
        """Give ranks their grace when the launcher itself ends the job, which would exit a second
        later.

        MPI ends ranks whose daemon is gone, so the daemon is suspended until they have saved. It
        reports its status, which tells the cause, after that.
        """
        form = self._draft.launch.ranks.form
        if form is None or not proc.is_below(launcher, os.getpid()):
            return
        proc.kill([launcher], signal.SIGSTOP)
        try:
            if not self.is_stopping:
                self.ranks.signal(signal.SIGTERM)
            await self.wait(self.ranks.ended(), form.form.grace)
        finally:
            proc.kill([launcher], signal.SIGCONT)


async def _raise(error: Exception) -> None:
    raise error
