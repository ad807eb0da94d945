"""Reports what the programs and ranks of this node do: what supervisors and exit statuses show
becomes messages to the leader."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from entrypoint.base.model import Facts, Plan
from entrypoint.base.supervised import OF_PROGRAM
from entrypoint.base.values import replace
from entrypoint.job import events, messages
from entrypoint.job.failure import Failures, ProgramExit, ended
from entrypoint.output.log import Callbacks
from entrypoint.output.merger import LineMerger
from entrypoint.ranks.limits import NodeLimits
from entrypoint.ranks.reaper import Reaper
from entrypoint.ranks.reports import Failure, Ranks, last_lines
from entrypoint.system import proc, process
from entrypoint.system.cgroups import Processes
from entrypoint.system.nodesocket import NodeSocket
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

    merger: LineMerger | None = None  # if the plan merges lines of ranks
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
        node: NodeSocket,
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
        self._read = node.read
        self.ranks = Ranks(node, self._on_report)
        self.program_ranks = Ranks(node, self._on_program_rank, OF_PROGRAM)
        self.started: list[asyncio.subprocess.Process] = []  # of this node, or their supervisors
        self.running: dict[int, str] = {}  # number -> name of programs that have not ended
        # Gets the pid of a launcher that ends its ranks itself.
        self.launcher_ends: Callable[[int], object] = lambda launcher: None
        # of programs' ranks, until the same rank starts again
        self.failed_ranks: dict[int, tuple[ProgramExit, Failure]] = {}
        self.starting = asyncio.Lock()  # held while a program is started
        self.limits = NodeLimits(draft.topology.log_dir)
        self._reaper = Reaper(self._daemon_ended)

    async def wait_for(self, program: asyncio.subprocess.Process, number: int) -> None:
        status = process.exit_status(await program.wait())
        if self.merger is not None and self.by_ranks:
            # the launcher has written all output, and the merger may not have passed it on
            await self.merger.ended()
        self._read()  # its supervisor, or a rank's, may have reported the end
        if number in self.running:  # otherwise its supervisor has reported it
            self.ended(number, status)

    def _on_report(self, event: str, number: int, value: int) -> None:
        """Handle a report of a supervisor about its program or rank."""
        if self._is_of_output(event, value):
            return
        if event == "launcher":
            if self.held_ends is None:
                self.held_ends = []
                self.launcher_ends(value)
            return
        name = f"rank {number}" if self.by_ranks else self.running.get(number, f"program {number}")
        self._note(events.RankChanged(name, event))
        if event == "output":
            return
        if not self.by_ranks:
            if event == "end" and number in self.running:
                self.ended(number, value)
        elif event == "start":
            self._tell(messages.RankStart(number, value))
            # mpirun itself gets no signal: a rank may start after the stop
            if self.is_stopping:
                process.kill_group(value, signal.SIGTERM)
        else:
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
        if self._is_of_output(event, value):
            return
        self._note(events.RankChanged(f"rank {rank}", event))
        if event == "start":
            self.failed_ranks.pop(rank, None)
            if self._draft.launch.min_nodes is not None and not self._met:
                self._met = True
                self._tell(messages.Met())
        elif event == "end" and value:
            failure = Failure(f"rank {rank}", value, self.program_ranks.last_output(rank))
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
        # a launcher has no supervisor
        lines = () if self.by_ranks else self.ranks.last_output(number)
        failure = Failure(self.running.pop(number), status, lines)
        end = self._exit(failure)
        own = end.tail and _SCRIPT_ERROR.fullmatch(end.tail[-1])
        if own:
            end = replace(end, reason=own[1], tail=())
        elif reason:
            end = replace(end, reason=reason)
        self._read(OF_PROGRAM)  # the last reports of its ranks may be unread
        if status:
            ends = [end for end, _ in self.failed_ranks.values()]
            end = Failures([*ends, end]).cause() or end
            if not (self.by_ranks or own):
                for _, of_rank in self.failed_ranks.values():
                    self._diagnose(of_rank)
                self._diagnose(failure)
        is_first = self._ends_with_first and not number and not status
        message = messages.Ended(**vars(end), last=is_first or not self.running)
        has_ended = not self.running and not status
        if has_ended and self.merger is not None and not self.by_ranks:
            self._background(self._tell_after_output(message, self.merger))
        else:
            self._tell(message)

    async def _tell_after_output(self, message: messages.Ended, merger: LineMerger) -> None:
        await merger.ended()
        self._tell(message)

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

    def _daemon_ended(self, name: str, wait: int) -> None:
        if not self.by_ranks:
            return  # a rank has started its own MPI job
        status = process.exit_status(os.waitstatus_to_exitcode(wait))
        self._tell(messages.Daemon(name, status, self.limits.why(name, status)))

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
        size = sum(
            proc.number(f"/proc/{program.pid}/io", "wchar:") or 0 for program in self.started
        )
        return size + (self.merger.written if self.merger else 0)

    async def gone(self) -> None:
        """Return when the started programs have ended, and their lines are passed on."""
        for program in self.started:
            await program.wait()
        if self.merger is not None:
            await self.merger.ended()

    def close(self) -> None:
        """Stop watching."""
        self.ranks.close()
        self.program_ranks.close()
        self._reaper.close()
