"""Reports what the programs and ranks of this node do: what the keeper reports becomes messages to
the leader."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrypoint.base.errors import HostError
from entrypoint.base.model import Facts, Plan
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.failure import Failures, ProgramExit, ended
from entrypoint.output.log import Callbacks
from entrypoint.ranks import command_line, orders
from entrypoint.ranks.keeping import Failure, KeeperProcess, Keeping, last_lines
from entrypoint.ranks.limits import NodeLimits
from entrypoint.system import proc
from entrypoint.system.cgroups import Processes
from entrypoint.system.threads import rest

if TYPE_CHECKING:
    from entrypoint.ranks.diagnosis import Diagnostician

# seconds between two reads of the count of refused processes, which version 1 cgroups do not
# announce
_LOOK = 0.5
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
# What became of output, by the event; more than one rank may say it.
_LOST = {
    "lost": "is lost, {} bytes at least | nobody reads our output, or the launcher does not end",
    "late": "may be lost, {} bytes at most | the launcher began to end and passes on only a part",
}
# the last line of a launcher's own script that cannot start it
_SCRIPT_ERROR = re.compile(r"[a-z_]{1,40}\.(?:sh|py): (EP650 [^|]+ \| [^|]+ \| [^|]+)")


class ProgramReports:
    """The programs and ranks that were started here, and what is reported of them. `note` gets
    their changes."""

    is_stopping = False
    # Ends that such a launcher causes, until its own end; None if there is none.
    held_ends: list[messages.RankEnd] | None = None
    _met = False  # whether a rank of this node's launcher has started, in an elastic job
    _has_warned_of_copies = False
    diagnostician: Diagnostician | None = None  # once a rank or program has failed

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
        # Whether ranks report by themselves, and not this node's programs.
        self.by_ranks = draft.launch.ranks.kind.by_daemons
        # Whether the end of rank 0, which is here, is the job's success.
        self._ends_with_first = draft.launch.ends_with_first and draft.topology.is_leader
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._note = note
        self.keeping = Keeping(keeper, self._on_report, self._keeper_lost)
        self.programs = self.keeping.kinds[orders.PROGRAM]
        self.ranks = self.keeping.kinds[orders.RANK]  # that a launcher starts
        self.topology = draft.topology  # of this attempt, once its number is known
        self.running: dict[int, str] = {}  # number -> name of programs that have not ended
        # Gets the pid of a launcher that ends its ranks itself.
        self.launcher_ends: Callable[[int], object] = lambda launcher: None
        # of programs' ranks, until the same rank starts again
        self.failed_ranks: dict[int, tuple[ProgramExit, Failure]] = {}
        self.limits = NodeLimits(draft.topology.log_dir)

    def _keeper_lost(self) -> None:
        """Report that the keeper has ended, and all ranks with it: it was killed."""
        detail = "all programs and ranks of this node ended with it"
        hint = "find out what sends signals to all processes of this user, or uses up the memory"
        error = HostError("EP434 the keeper of this node's ranks was killed", detail, hint)
        self._background(_raise(error))

    def _on_report(self, report: Any) -> None:
        """Handle a report of the keeper."""
        launch = self._draft.launch
        match report:
            case orders.StartedAs(kind, number):
                if not (kind == orders.PROGRAM and self.by_ranks):
                    command_line.store(self.topology, launch, number, report)
            case orders.DaemonEnded(name, status):
                if self.by_ranks:  # otherwise a rank has started its own MPI job
                    self._tell(messages.Daemon(name, status, self.limits.why(name, status)))
            case orders.Report(orders.DAEMON, _, "end", status):
                self._tell(messages.DaemonStarted(status))
            case orders.Report(orders.PROGRAM, number, event, value):
                if not self._is_of_output(event, value):
                    self._on_program(event, number, value)
            case orders.Report(orders.RANK, number, event, value):
                if not self._is_of_output(event, value):
                    (self._on_rank if self.by_ranks else self._on_program_rank)(
                        event, number, value
                    )

    def _on_program(self, event: str, number: int, value: int) -> None:
        """Handle a report about a program of this node."""
        if event in ("start", "output", "end") and not self.by_ranks:
            name = self.running.get(number, f"program {number}")
            self._note(events.RankChanged(name, event))
        if event == "end" and number in self.running:
            self.ended(number, value)

    def _on_rank(self, event: str, number: int, value: int) -> None:
        """Handle a report of a rank that an MPI has started."""
        name = f"rank {number}"
        if event in ("start", "output", "end"):
            self._note(events.RankChanged(name, event))
        if event == "launcher" and self.held_ends is None:
            self.held_ends = []
            self.launcher_ends(value)
        elif event == "start":
            self._tell(messages.RankStart(number, value))
            # mpirun itself gets no signal: a rank may start after the stop
            if self.is_stopping:
                self.ranks.signal(signal.SIGTERM, number)
        elif event == "end":
            failure = Failure(name, value, self.ranks.last_output(number))
            tail = last_lines(failure.lines)
            end = messages.RankEnd(number, value, tail, self.limits.why(name, value))
            self._diagnose(failure)
            if self.held_ends is not None and not self.is_stopping:
                # it is an effect of what the launcher is about to report
                self.held_ends.append(end)
            else:
                self._tell(end)

    def _on_program_rank(self, event: str, rank: int, value: int) -> None:
        """Handle a report of a rank that a program of this node started, and may restart."""
        if event in ("start", "output", "end"):
            self._note(events.RankChanged(f"rank {rank}", event))
        if event == "start":
            self.failed_ranks.pop(rank, None)
            if self._draft.launch.min_nodes is not None and not self._met:
                self._met = True
                self._tell(messages.Met())
        elif event == "end" and value:
            failure = Failure(f"rank {rank}", value, self.ranks.last_output(rank))
            self.failed_ranks[rank] = self._exit(failure), failure
        elif event == "end" and self._ends_with_first and not (rank or self.failed_ranks):
            self._tell(messages.Ended(0, "rank 0", "rank 0 exited with 0", (), last=True))

    def _exit(self, failure: Failure) -> ProgramExit:
        """Return the end of a rank or program, with the reason if this node knows one."""
        name, status = failure.name, failure.status
        reason = ended(name, status, self.limits.why(name, status))
        return ProgramExit(status, name, reason, last_lines(failure.lines))

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
            self._log(
                f"warning: EP416 the copies of the ranks' output are incomplete | {detail} | {hint}"
            )
        return True

    def log_lost(self, size: int, event: str = "lost") -> None:
        """Warn that so many bytes of output are lost."""
        self._log(f"warning: EP628 output of the ranks {_LOST[event].format(size)}")

    def ended(self, number: int, status: int, reason: str = "") -> None:
        """Report the end of a program."""
        # a launcher's last lines are those of its ranks
        lines = () if self.by_ranks else self.programs.last_output(number)
        failure = Failure(self.running.pop(number), status, lines)
        end = self._exit(failure)
        own = end.tail and _SCRIPT_ERROR.fullmatch(end.tail[-1])
        if own:
            end = replace(end, reason=own[1], tail=())
        elif reason:
            end = replace(end, reason=reason)
        if status:
            ends = [end for end, _ in self.failed_ranks.values()]
            end = Failures([*ends, end]).cause() or end
            if not (self.by_ranks or own):
                for _, of_rank in self.failed_ranks.values():
                    self._diagnose(of_rank)
                self._diagnose(failure)
        is_first = self._ends_with_first and not number and not status
        self._tell(messages.Ended(**vars(end), last=is_first or not self.running))

    def _diagnose(self, failure: Failure) -> None:
        """Find out why a rank or program has failed, unless we have ended it."""
        is_ours = self.is_stopping and failure.status - 128 in _STOP_SIGNALS
        if not failure.status or is_ours:
            return
        if self.diagnostician is None:
            # What judges failures is loaded only if there is one.
            from entrypoint.ranks.diagnosis import Diagnostician
            from entrypoint.ranks.evidence import NodeProbe

            probe = NodeProbe(self._facts, self._draft.topology, self.limits)
            self.diagnostician = Diagnostician(probe, self._callbacks)
        self.diagnostician.failed(failure, self._draft.launch.names_nodes)

    async def watch_limit(self, slots: int, limit: float) -> None:
        """Report if the kernel refuses a process while ranks start: it may be a rank, which nobody
        else would report.

        It may have `slots` ranks, and they may take `limit` seconds to start.
        """
        processes = Processes()
        ends = time.monotonic() + limit
        while not self.is_stopping and self.ranks.count < slots and time.monotonic() < ends:
            await rest(_LOOK)
            if reason := processes.refused():
                self._log(f"warning: EP609 {reason}")
                self._tell(messages.Limit(reason))
                return

    def written(self) -> int:
        """Return the bytes that the programs of this node have written so far."""
        pids = (self.keeping.pid, *self.programs.alive.values())
        return sum(proc.number(f"/proc/{pid}/io", "wchar:") or 0 for pid in pids)


async def _raise(error: Exception) -> None:
    raise error
