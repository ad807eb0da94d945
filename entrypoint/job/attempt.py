"""An attempt, as its leader sees it: from the team that the roll call has found to the ends of
ranks and programs.

`Leader` calls `prepare` when enough nodes are there, and tells what happens to nodes: `admit` one
that comes late, `lose` one. It asks whether a message is `wrong`, whether the attempt `holds` an
outcome back, and what it `may_run` at the end. All other events and messages come by `handlers`;
what the parts decide goes back by the callback that all parts of the leader share.
"""

from __future__ import annotations

from typing import Any

from entrypoint.base.errors import RetryError
from entrypoint.base.model import Facts, Members, Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.text import count
from entrypoint.job import actions, events, messages
from entrypoint.job.ends import EndMonitor
from entrypoint.job.inquiry import InquiryDriver
from entrypoint.job.membership.quorum import Refuse
from entrypoint.job.outbox import Handlers, Part, Shared
from entrypoint.job.progress import ProgressMonitor
from entrypoint.job.relay import SignalRelay
from entrypoint.job.stall.detector import StallDetector
from entrypoint.plan.members import clock_warnings, interface_words, with_interface, with_neighbours
from entrypoint.plan.ports import choose


class Attempt(Part):
    """One attempt's launch, progress and ends."""

    _port = 0  # at which the programs meet; 0: the planned one

    def __init__(self, shared: Shared, facts: Facts) -> None:
        super().__init__(shared)
        self._roster = self._membership.roster
        self._facts = facts
        self._members = self._state.plan.members  # assumed until the roll call is over
        self._launch = self._state.plan.launch
        self._has_reports = self._launch.ranks.kind.report_ends
        self._inquiry = InquiryDriver(shared, self.start)
        self._monitor = EndMonitor(shared)
        self.verdict = self._monitor.verdict
        self.ranks = self._monitor.ranks
        self._stalls = StallDetector(shared)
        self._progress = ProgressMonitor(shared)
        self._signals = SignalRelay(shared)

    @property
    def handlers(self) -> Handlers:
        """Handlers by event, and by message of a node."""
        return {
            events.Prepared: self.begin,
            events.RankChanged: lambda event: self._state.rank_changed(event.change),
            events.DaemonWanted: self._start_daemon,
            events.StacksWanted: lambda event: self._stalls.demand(),
            messages.RankStart: self._rank_start,
            messages.RankEnd: self._monitor.rank,
            messages.Ended: self._monitor.program,
            messages.Met: self._membership.participants.meet,
            messages.Diagnosis: self.verdict.add,
            messages.Progressed: lambda *_: self._progress.heard(),
            messages.Grew: lambda *_: self._stalls.grew(),
            messages.Signal: self._signals.relay,
            messages.DaemonStarted: lambda node, it: self.ranks.daemon_started(node, it.status),
            messages.Daemon: self.ranks.daemon,
            messages.Limit: self.ranks.limit,
            messages.Pong: self._pong,
            messages.Steps: self._steps,
            messages.RankStacks: self._stalls.take,
            messages.Reply: self._inquiry.answered,
        }

    def wrong(self, node: int, message: Any) -> str:
        """Return why that worker may not send this message; "" if it may."""
        if not messages.WORKER_SAYS[type(message)]:
            return ""
        host, rank = self._topology.name(node), getattr(message, "rank", 0)
        is_start = isinstance(message, messages.RankStart)
        holds = {
            messages.CALL: False,  # the answer to it comes as Answered or Rejected
            messages.STARTED: self._state.has_started,
            messages.WORKS: self._roster.works(node),
            messages.RANKS: self._has_reports,
            messages.OWN_RANK: is_start or self.ranks.runs_on(rank, host),
            messages.OWN_RANKS: self.ranks.run_on(message, host),
            messages.OWN_PROGRAM: self._launch.completion != "leader",
            messages.ELASTIC: self._membership.participants.meets,
            messages.ASKED: self._inquiry.has_asked(node, getattr(message, "number", 0)),
            messages.CHECKING: self._peers[node].report.checking,
        }
        return messages.wrong(message, messages.WORKER_SAYS, holds)

    # -- the launch

    def prepare(self, seconds: float) -> None:
        """Enough nodes are there, after so many seconds: see whether they can run one job together.
        A `check` asks them instead."""
        if self._inquiry.begin(True, self._members):
            return
        state, roster, quorum = self._state, self._roster, self._membership.quorum
        state.enter(Phase.FILES)
        local = [peer.local for peer in self._peers.values()]
        members = with_interface(roster.members(), state.me, self._spec, self._facts, local)
        chosen = quorum.choose(members)
        if isinstance(chosen, Refuse):
            self._decide(chosen.outcome)
            return
        self._members = members = with_neighbours(members, roster.works)
        working = Members(tuple(it for it in members.reports if roster.works(it.rank)))
        self._port, lines = choose(self._launch.port, self._topology, working)
        if exhausted := state.take_history(quorum.unknown):
            self._decide(exhausted)
            return
        clocks = clock_warnings(self._topology, members)
        for line in (*clocks, *interface_words(self._spec, members), *lines, *chosen.lines):
            self._scheduler.log(line)
        self._scheduler.log(self._summary(seconds))
        self._scheduler.act(actions.Prepare(members, self._port, roster.team.replaced))

    def _summary(self, seconds: float) -> str:
        """Return how many nodes and slots are here, and how long that took."""
        working = self._roster.working
        nodes, here = len(self._topology.nodes), len(self._peers) + 1
        which = f"all {nodes}" if here == nodes else f"{here} of {nodes}"
        slots = sum(self._members.reports[node].slots for node in working)
        waiting = here - len(working)
        also = f", {count(waiting, 'spare')} among them" if waiting else ""
        return f"{which} nodes are here{also}, {slots} slots, after {seconds:.1f}s"

    def begin(self, event: events.Prepared) -> None:
        """The ranks' files are written: start, or ask the nodes first. Others may come late."""
        self.ranks.heard.asked = event.asked
        self._membership.participants.start(event.awaited, self._scheduler.now)
        if self._state.plan.mode == "coordinated":
            for node in self._roster.absent():
                self._scheduler.act(actions.Call(node))
        if not self._inquiry.begin(False, self._members):
            self.start()

    def start(self) -> None:
        """Every node that is there starts its part."""
        reports, names = self._roster.reports(), self._topology.name
        working = self._roster.working
        self.ranks.heard.slots = {names(node): reports[node].slots for node in working}
        self._monitor.runs_here = True
        for node in [*self._peers, self._state.me]:
            self.admit(node)
        if self._has_reports:
            self._scheduler.after(self._spec.timeouts.launch, self.ranks.out_of_time)
        else:
            self._progress.begin()
        self._stalls.begin()

    def admit(self, node: int) -> None:
        """Tell a node to start its part. Nodes report their ranks only under an MPI."""
        state, roster = self._state, self._roster
        if roster.works(node):
            has_reports = node == state.me or self._has_reports
            state.enter(Phase.LAUNCHING if has_reports else Phase.RUNNING, node)
        else:
            state.enter(Phase.SPARE, node, roster.team.reasons.get(node, ""))
        neighbours = self._members.reports[node].neighbours
        start = messages.Start(state.history, self._port, roster.team.replaced, neighbours)
        self._outbox.tell(node, start)
        self._progress.tell(node)

    # -- what is heard of it

    def _rank_start(self, node: int, message: messages.RankStart) -> None:
        host = self._topology.name(node)
        if other := self.ranks.started(message.rank, host):
            summary = f"EP619 {other} and {host} both report that rank {message.rank} runs there"
            do = "see the logs of both: one of them reports a rank that is not its own"
            raise RetryError(summary, hint=do)
        # Once all ranks of the job run, no node launches any more.
        run_all = self.ranks.heard.all_started()
        if run_all:
            self._progress.begin()
            self._monitor.settle_by_first()
        for each in self._roster.here if run_all else {node} - {self._state.me}:
            if self._state.of(each) is Phase.LAUNCHING:
                self._state.enter(Phase.RUNNING, each)

    def _pong(self, node: int, message: messages.Pong) -> None:
        self._monitor.pong(node, message)
        self._outbox.pong(node, message.number)
        self._peers.pong(node, message.memory, self._scheduler.now)
        if self._roster.works(node):
            self._stalls.heard(node, message.idle)

    def _steps(self, node: int, message: messages.Steps) -> None:
        self._stalls.take(node, message)
        self._progress.steps(self._stalls.steps.reached())

    def _start_daemon(self, event: events.DaemonWanted) -> None:
        # Here, too: mpirun may not know this node by the name that the hostfile has for it.
        is_there = event.node == self._state.me or self._peers.is_alive(event.node)
        command = event.command if is_there and self._state.outcome is None else ""
        self.ranks.start_daemon(event.node, command)

    # -- its end

    def lose(self, node: int, why: str, goes_on: bool) -> None:
        """A node is lost, and the attempt goes on without it, or ends."""
        self._inquiry.lose(node, why)
        if goes_on:
            self._stalls.lose(node)

    def holds(self, outcome: Outcome) -> bool:
        """Return whether this is not the outcome yet: rank 0 has succeeded before it, or the nodes
        are to answer first."""
        return self._monitor.holds(outcome) or self._inquiry.begin(True, self._members, outcome)

    def may_run(self) -> bool:
        """Return whether programs may run on some node, though none has failed."""
        serves = self._launch.awaited is not None or self._launch.ends_with_first
        return self._monitor.runs_here or serves or bool(self._membership.participants.late())
