"""The ends of ranks and programs as nodes report them, until one of them is the job's."""

from __future__ import annotations

from entrypoint.base.model import Outcome
from entrypoint.job import messages
from entrypoint.job.failure import (
    KILLED,
    Failures,
    ProgramExit,
    ended,
    everywhere,
    lost,
    of_program,
    on_node,
)
from entrypoint.job.launch import LaunchMonitor
from entrypoint.job.outbox import Part, Shared
from entrypoint.job.verdict import Verdict


class EndMonitor(Part):
    """Decides by the ends of ranks and programs."""

    # Whether this node's own programs may run.
    runs_here = False
    # Whether all were asked again after this node was suspended.
    _asked = False
    # The success of the first rank, from when it is known until it is the outcome; when that was;
    # the answer of a node after which it reports nothing older; and what would have been the
    # outcome meanwhile.
    _first: ProgramExit | None = None
    _known = 0.0
    _answer = ""
    _held: Outcome | None = None

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._launch = self._state.plan.launch
        self._participants = self._membership.participants
        self.verdict = Verdict(shared)
        self._failures = Failures()
        # node -> ranks of its programs that have failed, which their launcher reports, or restarts
        self.failed: dict[int, int] = {}
        self.ranks = LaunchMonitor(shared, self._failures, self.settle)

    def rank(self, node: int, message: messages.RankEnd) -> None:
        """A rank has ended on that node."""
        host = self._topology.name(node)
        if self._is_too_late(node, message.status):
            return
        if message.status:
            self.verdict.failed(node)
        self.ranks.heard.end(message.rank, message.status)
        if self.ranks.heard.all_well():
            self.ranks.all_well()
        elif message.rank == message.status == 0:
            self.settle_by_first()
        elif message.status != 0:
            rank = f"rank {message.rank}"
            reason = ended(rank, message.status, message.why)
            end = on_node(ProgramExit(message.status, rank, reason, message.tail), host, host)
            seconds = self._failures.of_rank(end)
            self._participants.failed()
            self._settle_in(seconds, end)
            if seconds is not None and end.status == KILLED:
                # A rank that failed before, and is why the launcher killed this one, is known then.
                self._outbox.await_reports(lambda: self.settle(end))

    def settle_by_first(self) -> None:
        """With `success: first`, the job has succeeded once every rank has started and rank 0 has
        ended with 0, unless another one is reported to have failed before."""
        heard = self.ranks.heard
        if self._launch.ends_with_first and heard.all_started() and heard.ended.get(0) == 0:
            self._settle_first(heard.placed[0], "rank 0")

    def _settle_first(self, host: str, what: str) -> None:
        """The first rank has ended well: a success, unless another one has failed before that,
        whose report may be on its way."""
        if self._first is None:
            self._first = ProgramExit(0, what, f"{what} on {host} exited with 0 (success: first)")
            self._known = self._scheduler.now
            self._answer = self._outbox.await_reports(self._conclude_first)

    def _conclude_first(self) -> None:
        end, self._first = self._first, None
        if end is not None and not any(self.failed.values()):
            self.settle(end)
        elif self._held is not None:
            self._decide(self._held)

    def _is_too_late(self, node: int, status: int) -> bool:
        """Return whether this is a failure after the first rank's success."""
        if not status or self._first is None or any(self.failed.values()):
            return False
        return self._held is not None or self._outbox.has_said(node, self._answer)

    def pong(self, node: int, message: messages.Pong) -> None:
        """A node has answered, with the number of ranks that have failed there."""
        if not self._is_too_late(node, message.failed):
            self.failed[node] = message.failed

    def holds(self, outcome: Outcome) -> bool:
        """Return whether the first rank's success is known: then no loss, stop or fault of a node
        is the outcome, but only a program that has failed before. If the nodes may have lost this
        one then, they do not hear of the success."""
        if self._peers.may_be_lost(self._known - self._peers.limit):
            self._first = None
        if self._first is None or outcome.program:
            return False
        self._held = self._held or outcome
        return True

    def program(self, node: int, message: messages.Ended) -> None:
        """A program of that node has ended."""
        end = ProgramExit(message.status, message.what, message.reason, message.tail)
        if node == self._state.me:
            self.runs_here = self.runs_here and not message.last
        if self._is_too_late(node, message.status):
            return
        if message.status:
            self.verdict.failed(node)
        if self._launch.completion == "leader":
            if self._launch.ranks.kind.report_ends:
                self.ranks.launcher_ended(end)
            else:
                self.settle(end)
            return
        host, members = self._topology.name(node), self._participants
        is_alone = bool(end.status) and not members.counts(node)
        if message.last:
            members.ended(node)
        if is_alone:
            alone = f"{host} has not joined the others, which continue without it"
            self._scheduler.log(f"EP621 {alone}: {end.reason}")
            return
        if end.status:
            end = on_node(end, host, host if self._peers else "")
            others_run = bool(members.awaited) or not message.last
            members.failed()
            self._settle_in(self._failures.of_program(end, others_run), end)
        elif not self._launch.ends_with_first:
            self._ended_well(end, host)
        elif node == self._state.me and message.last:
            self._settle_first(host, end.what)

    def _ended_well(self, end: ProgramExit, host: str) -> None:
        members = self._participants
        if not members.is_over():
            return
        where = ""
        if self._peers:
            counted = filter(members.counts, self._membership.roster.working)
            nodes = [self._topology.nodes[node] for node in counted]
            where = everywhere(nodes, self._launch.awaited)
        end = on_node(end, host, where)
        if members.late():
            # Their launchers may have met the others.
            self._outbox.await_reports(lambda: self._settle_unless_met(end))
        else:
            self.settle(end)

    def _settle_unless_met(self, end: ProgramExit) -> None:
        """All that count have ended, unless one has met them meanwhile, and has to end, too."""
        if not self._participants.is_over():
            return
        if self._participants.is_short():  # one of those that worker-0 has met was lost just before
            names = [self._topology.name(node) for node in self._membership.roster.losses]
            why = "worker-0 has ended, and too few others have met it"
            self._decide(lost(names[0] if names else "a node", why))
        else:
            self.settle(end)

    def _settle_in(self, seconds: float | None, end: ProgramExit) -> None:
        if seconds is not None:
            self._scheduler.after(seconds, lambda: self.settle(end))

    def settle(self, end: ProgramExit) -> None:
        """The outcome is the cause, or this end if nothing failed. Its last lines are shown."""
        if self._state.outcome is not None:
            return
        if self._peers.stood_still(self._scheduler.now) and not self._asked:
            self._asked = True  # the others may have counted this node as lost meanwhile
            self._outbox.ask_all_they_know(lambda: self.settle(end))
            return
        cause = self._failures.cause() or end
        self.verdict.show_last_lines(cause)
        self._decide(of_program(cause))
