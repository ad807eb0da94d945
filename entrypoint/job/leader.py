"""The leader, worker-0: holds the roll call, starts the job, and decides how the job has ended.

Its own node is one of the members: it gets the same orders and reports like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from entrypoint import heartbeat
from entrypoint.errors import RetryError
from entrypoint.job import actions, events, messages
from entrypoint.job.assembly import assemble
from entrypoint.job.ending import Ending
from entrypoint.job.ends import EndMonitor
from entrypoint.job.failure import ended, lost, unhealthy
from entrypoint.job.history import History
from entrypoint.job.inquiry import InquiryDriver
from entrypoint.job.launch import NO_LOGIN
from entrypoint.job.outbox import Outbox
from entrypoint.job.peers import Peer
from entrypoint.job.progress import ProgressMonitor
from entrypoint.job.relay import SignalRelay
from entrypoint.job.rollcall import RollCall
from entrypoint.job.stall.detector import StallDetector
from entrypoint.job.state import JobState
from entrypoint.job.team import Team
from entrypoint.job.verdict import Verdict
from entrypoint.model import Facts, NodeReport, Outcome, Plan
from entrypoint.phases import Phase
from entrypoint.spec import JobSpec
from entrypoint.text import count
from entrypoint.values import replace
from entrypoint.wire import Invalid


class Leader:
    """The node that decides. `handle` takes what happened and when, and returns what to do."""

    def __init__(
        self, spec: JobSpec, facts: Facts, draft: Plan, history: History, team: Team | None = None
    ) -> None:
        self.state = state = JobState(spec, draft, history)
        if team is not None:
            state.set_team(team)
        self._spec = spec
        self._facts = facts
        self._draft = draft
        self._topology = draft.topology
        self._me = state.me
        self._peers = state.peers
        self._heartbeat_timeout = spec.timeouts.heartbeat
        self._machine = state.scheduler
        self._act = state.scheduler.act
        self._log = state.scheduler.log
        self._after = state.scheduler.after
        self._talk = Outbox(state)
        self._tell = self._talk.tell
        self._roll_call = RollCall(state, self._look_complete)
        self._verdict = Verdict(state)
        self._monitor = EndMonitor(state, self._talk, self._verdict, self._decide)
        self._ends = self._monitor.nodes
        self._ranks = self._monitor.ranks
        self._stalls = StallDetector(state, self._talk, self._decide)
        self._progress_made = ProgressMonitor(state, self._talk)
        self._ending = Ending(state, self._talk, self._verdict)
        self._inquiry = InquiryDriver(state, self._talk, self._decide, self._begin_job)
        self._relay = SignalRelay(state, self._talk)
        self._own_report = draft.members.reports[self._me]
        self._members = draft.members  # assumed until the roll call is over
        self._port = 0  # at which the programs meet; 0: the planned one
        # nodes whose end is the job's; None: all that are there
        self._awaited: tuple[int, ...] | None = None
        # who was there when the outcome was known
        self._present: frozenset[int] = frozenset()
        self._later: set[int] = set()  # nodes that have answered in a later attempt than the first

    # -- the machine

    @property
    def outcome(self) -> Outcome | None:
        """The first outcome decided."""
        return self.state.outcome

    @property
    def wake(self) -> float:
        """When `handle` is to be called at the latest."""
        return self._machine.wake

    def handle(self, event: Any, now: float) -> list[Any]:
        """What is to be done, now that this happened at `now` (seconds)."""
        return self._machine.step(lambda: self._on(event), self._decide, now)

    def _on(self, event: Any) -> None:
        self._peers.notice_own_gap(self._machine.now)
        if self.outcome is None or type(event) not in _UNDECIDED:
            _HANDLERS[type(event)](self, event)

    @property
    def _here(self) -> set[int]:
        """This node and those that have answered."""
        return {self._me, *self._peers}

    def _host(self, node: int) -> str:
        return self._topology.name(node)

    def _decide(self, outcome: Outcome) -> None:
        """Set the job's outcome, unless it is set already."""
        if self.outcome is None:
            self._roll_call.close()
            if self._inquiry.begin(True, self._members, outcome):
                return  # it decides once more, when the answers are judged
            self.state.outcome = outcome
            others = self._draft.launch.ends.awaited is not None or bool(self._ends.late())
            self._present = frozenset(self._here - self.state.lost().keys())
            has_ranks = self._monitor.runs_here or outcome.status != 0 or others
            self._ending.begin(outcome, has_ranks)

    def _stop(self, outcome: Outcome) -> None:
        """Somebody asked us to stop. Nodes between two attempts hear it when they have answered."""
        self.state.stop = self.state.stop or outcome
        if not self.state.is_calling:
            self._decide(outcome)
        else:
            self._roll_call.stop()
            self._look_complete()

    def _hurry(self) -> None:
        """Force stop, after a second signal on some node."""
        self._ending.force()
        if self.state.stop:
            self._decide(self.state.stop)

    def _has_run(self) -> bool:
        """Whether this is not the job's first attempt, as far as the nodes know that are there.

        Then a stop of one node stops all; before, the others wait for that node to come back.
        """
        return self.state.history.attempt > 1 or any(node in self._peers for node in self._later)

    # -- roll call

    def _on_began(self, event: events.Started) -> None:
        if self._draft.mode == "coordinated":
            self.state.enter(Phase.KEYS)
            self._act(actions.OpenEndpoint())
        else:
            self.state.enter(Phase.FILES)
            self._act(actions.Prepare(self._draft.members))

    def _on_keys_ready(self, event: events.KeysReady) -> None:
        if self.state.is_calling:
            self.state.enter(Phase.SSHD)

    def _on_door_opened(self, event: events.EndpointReady) -> None:
        if not self.state.is_calling:
            return
        self.state.enter(Phase.ROLL_CALL)
        self._own_report = event.report
        self._roll_call.begin(event.report)
        self._beat()
        self._machine.at(self._peers.next_look(self._machine.now), self._look_for_silent)

    def _on_name_state(self, event: events.NameState) -> None:
        if self.state.is_calling:
            self._act(actions.ShowWaiting(f"the name {event.host}", event.state, peers=False))
        if not event.state:
            self._roll_call.own_name = True
            self._look_complete()

    def _on_unreached(self, event: events.Unreachable) -> None:
        if self.state.is_calling:
            self._roll_call.unreached(self._topology.nodes[event.node], event, self._machine.now)

    def _on_disagreed(self, event: events.Rejected) -> None:
        if not self.state.is_calling:
            words = f"{event.summary} | {event.detail} | {event.hint}"
            self._log(f"{self._host(event.node)} cannot join: {words}")
            return
        self._roll_call.disagreed(self._topology.nodes[event.node], event)
        self._look_complete()

    def _on_answered(self, event: events.Answered) -> None:
        self._peers[event.node] = Peer(event.report, event.local, self._machine.now)
        (self._later.add if event.report.attempt > 1 else self._later.discard)(event.node)
        self.state.enter(Phase.WAITING, event.node)
        if self.state.has_started:
            if self.outcome is None:
                self._take_in(event.node, event.report)
            else:
                self._ending.came(event.node)
            return
        if not self.state.is_calling:
            if self._can_do_without(event.node):
                self._take_in(event.node, event.report)
            return
        self._roll_call.answered(event.report)
        self._look_complete()

    def _take_in(self, node: int, report: NodeReport) -> None:
        """A node of an elastic job comes later than the others, or comes back."""
        if self._topology.spares:
            waits = "waits as a spare"
            if report.not_ready:
                waits = f"cannot work: {report.not_ready.reason}"
            self._log(f"{self._host(node)} is here, and {waits}")
            if self.state.has_started:
                self._start(node)
            return
        if report.not_ready:
            self._turn_away(node, report.not_ready)
            return
        if not self.state.has_started:
            self._log(f"{self._host(node)} is here, too, and starts with the others")
            return
        self._ends.join(node)
        self._log(f"{self._host(node)} joins: {count(len(self._ends.awaited), 'node')}")
        self._start(node)

    def _turn_away(self, node: int, outcome: Outcome) -> None:
        """A spare, or a node of an elastic job that has not met the others, has failed. They go on
        without it."""
        what = f"{self._host(node)} cannot join" if self.state.works(node) else "a spare leaves"
        self._log(f"{what}: {outcome.reason}")
        self._tell(node, messages.Release(**vars(outcome)))
        self.state.enter(Phase.RELEASED, node)
        del self._peers[node]
        self._talk.lose(node)
        self._ends.leave(node)

    def _look_complete(self) -> None:
        call = self._roll_call
        if self.state.is_calling and call.is_complete(len(self._peers)):
            self._complete()

    def _complete(self) -> None:
        """All are here, or enough: see whether they can run one job together."""
        if self.state.stop:
            self._decide(self.state.stop)
            return
        self._roll_call.close()
        if self._inquiry.begin(True, self._members):
            return
        self.state.enter(Phase.FILES)
        reported = self._roll_call.gates.members(self._own_report)
        assembly = assemble(self.state, self._facts, reported)
        members = self._members = assembly.members
        if assembly.refusal:
            self._decide(assembly.refusal)
            return
        if exhausted := self.state.take_history():
            self._decide(exhausted)
            return
        self._port = assembly.port
        for line in assembly.lines:
            self._log(line)
        self._log(self._roll_call.summary(members, self._here))
        self._act(actions.Prepare(members, self._port, self.state.team.replaced))

    def _on_prepared(self, event: events.Prepared) -> None:
        self._ranks.heard.asked = event.asked
        self._awaited = self._nodes_at(event.awaited)
        may_come = self._topology.spares or self._draft.launch.start.min_nodes
        if may_come and self._draft.mode == "coordinated":
            for node in set(range(len(self._topology.nodes))) - self._here:
                self._act(actions.Call(node))
        if not self._inquiry.begin(False, self._members):
            self._begin_job()

    def _begin_job(self) -> None:
        reports = {self._me: self._own_report} | self._peers.reports()
        working = list(filter(self._here.__contains__, self.state.team.nodes))
        self._ranks.heard.slots = {self._host(node): reports[node].slots for node in working}
        awaited = working if self._awaited is None else self._awaited
        # other nodes do not report
        self._ends.awaited = set(awaited) if self._peers else {self._me}
        self._monitor.runs_here = True
        for node in [*self._peers, self._me]:
            self._start(node)
        if self._draft.launch.ranks.reports == "ranks":
            self._after(self._spec.timeouts.launch, self._ranks.out_of_time)
        else:
            self._progress_made.begin()
        self._stalls.begin()

    def _start(self, node: int) -> None:
        """Tell a node to start its part. Nodes report their ranks only under an MPI."""
        has_reports = node == self._me or self._draft.launch.ranks.reports == "ranks"
        phase = Phase.LAUNCHING if has_reports else Phase.RUNNING
        team = self.state.team
        self.state.enter(
            phase if self.state.works(node) else Phase.SPARE, node, team.reasons.get(node, "")
        )
        self._tell(node, self.state.start(self._port, self._members.reports[node].beside))
        self._progress_made.tell(node)

    # -- heartbeat

    def _beat(self, part: int = 0) -> None:
        """Ping a part of the workers: each once in an interval."""
        ping, nodes = messages.Ping(0), len(self._topology.nodes)
        parts = heartbeat.parts(nodes)
        for node in filter(self._peers.is_alive, range(part, nodes, parts)):
            self._tell(node, ping)
        pause = heartbeat.interval(self._heartbeat_timeout, nodes) / parts
        self._after(pause, lambda: self._beat((part + 1) % parts))

    def _look_for_silent(self) -> None:
        for node in self._peers.look(self._machine.now):
            self._lose(node, "")
        self._machine.at(self._peers.next_look(self._machine.now), self._look_for_silent)

    def _on_lost(self, event: events.SessionLost) -> None:
        if self._peers.is_alive(event.node):
            self._lose(event.node, event.why)
        elif event.node not in self._peers and not self._counts(event.node):
            self.state.enter(Phase.LOST, event.node)
            self._act(actions.Call(event.node))  # should it come back

    def _lose(self, node: int, why: str) -> None:
        peer, host = self._peers[node], self._host(node)
        if self.state.is_calling:  # it is called again, should it come back
            del self._peers[node]
            self._talk.forget(node=node)
            self._roll_call.miss(self._topology.nodes[node], why or "answered, then went away")
            self._act(actions.Call(node))
            self._look_complete()  # the others may have waited for its gate alone
            return
        peer.lost = True
        self.state.may_run(node)
        self._talk.lose(node)
        self._ranks.daemon_started(node, NO_LOGIN)
        seen = self._peers.silence(node, self._machine.now)
        its_loss = lost(host, why or seen)
        own_gap = "" if why else self._peers.stood_still(self._machine.now)
        outcome = replace(its_loss, reason=own_gap, cause=None) if own_gap else its_loss
        self.state.enter(Phase.LOST, node, outcome.reason)
        if own_gap:
            self.state.missed.add(node)
        elif self.outcome is None and self.state.works(node):
            self.state.set_team(self.state.team.lose(node, outcome.reason))
        if not self.state.is_released:
            self._log(outcome.reason)  # say it now: the last line comes only after the grace
        goes_on = self._can_do_without(node)
        self._inquiry.lose(node, why or seen)
        if goes_on:
            self._ends.leave(node)
            del self._peers[node]
            self._talk.forget(node=node)
            self._stalls.lose(node)
            left = len(self._ends.awaited) if self.state.has_started else 1 + len(self._peers)
            left = self._topology.working if self._topology.spares else left
            self._log(f"the job goes on with {count(left, 'node')}")
            self._act(actions.Call(node))  # should it come back
            return
        self._decide(outcome)

    def _can_do_without(self, node: int) -> bool:
        """Whether this node does not count, or enough nodes of an elastic job are left that run."""
        least = self._draft.launch.start.min_nodes
        if not self._counts(node):
            return True
        if least is None or self.outcome is not None:
            return False
        if self.state.phase is Phase.INQUIRY:
            inquiry, left = self._draft.inquiry, 1 + len(self._peers) - (node in self._peers)
            return inquiry is not None and not inquiry.instead and left >= least
        left = len(self._ends.awaited) - (node in self._ends.awaited)
        return self.state.has_started and (not self._ends.counts(node) or left >= least)

    def _counts(self, node: int) -> bool:
        """Whether the job needs this node now: a spare of one that starts or runs may go."""
        is_needed = self.state.phase in _NEEDED or self.outcome is not None
        is_asked = self.state.phase is Phase.INQUIRY and self._inquiry.takes_part(node)
        return is_needed or is_asked or self.state.works(node)

    def _nodes_at(self, places: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if places is None else tuple(self.state.team.nodes[place] for place in places)

    # -- what members say

    def _on_heard(self, event: events.MessageReceived) -> None:
        if not self._peers.hear(event.node, self._machine.now) and event.node != self._me:
            if isinstance(event.message, messages.Goodbye):  # of one that was turned away
                self._goodbye(event.node)
            return
        if event.node != self._me and (why := self._wrong(event.node, event.message)):
            self._reject(event.node, why)
            return
        kind = type(event.message)
        if kind in _MESSAGES:  # others answer a question that was asked earlier
            _MESSAGES[kind](self, event.node, event.message)

    def _wrong(self, node: int, message: Any) -> str:
        """Why this is not for that worker to say; "" if it is."""
        if not messages.WORKER_SAYS[type(message)]:
            return ""
        launch, host, rank = self._draft.launch, self._host(node), getattr(message, "rank", 0)
        holds = {
            messages.CALL: False,  # the answer to it comes as Answered or Rejected
            messages.STARTED: self.state.has_started,
            messages.WORKS: self.state.works(node),
            messages.RANKS: launch.ranks.reports == "ranks",
            messages.OWN_RANK: (
                isinstance(message, messages.RankStart) or self._ranks.runs_on(rank, host)
            ),
            messages.OWN_RANKS: self._ranks.run_on(message, host),
            messages.OWN_PROGRAM: launch.ends.completion != "leader",
            messages.ELASTIC: launch.start.min_nodes is not None,
            messages.ASKED: self._inquiry.has_asked(node, getattr(message, "number", 0)),
            messages.CHECKING: self._roll_call.gates.has_announced(node),
        }
        return messages.wrong(message, messages.WORKER_SAYS, holds)

    def _reject(self, node: int, why: str) -> None:
        """A node has said what it may not: it has failed, as one that sends what is no message."""
        why = f"it sent an invalid message: {why}"
        if node == self._me:
            raise RetryError(f"EP602 {self._host(node)} is lost: {why}")
        self._end_session(node, why)

    def _checked(self, node: int, message: messages.Checked) -> None:
        """A node's gate has ended. If it is too late for this attempt, a spare may take the place
        of a worker in the next one; else the node's own failure, which follows, is the job's."""
        is_late = self._roll_call.gates.checked(node, message)
        has_next = self.state.history.attempt <= self._spec.restarts.most
        is_replaced = bool(self._topology.spares) and has_next and node != self._me
        if is_late and is_replaced and self.outcome is None:
            reason = unhealthy(message.problem).reason
            self.state.set_team(self.state.team.lose(node, reason))
            self._decide(replace(lost(self._host(node), reason), cause=None))

    def _reply(self, node: int, message: messages.Reply) -> None:
        try:
            self._inquiry.answered(node, message)
        except Invalid as error:
            self._reject(node, str(error))

    def _rank_start(self, node: int, message: messages.RankStart) -> None:
        host = self._host(node)
        if other := self._ranks.started(message.rank, host):
            summary = f"EP619 {other} and {host} both report that rank {message.rank} runs there"
            do = "see the logs of both: one of them reports a rank that is not its own"
            self._decide(RetryError(summary, hint=do).outcome)
        else:
            self._note_start(node)

    def _note_start(self, node: int) -> None:
        """A rank runs on that node. Once all ranks of the job do, no node launches any more."""
        run_all = self._ranks.heard.all_started()
        if run_all:
            self._progress_made.begin()
        for each in self._here if run_all else {node} - {self._me}:
            if self.state.of(each) is Phase.LAUNCHING:
                self.state.enter(Phase.RUNNING, each)

    def _failed(self, node: int, message: messages.Failed) -> None:
        self.state.note(node, message.reason)
        has_begun = self.state.has_started or self._has_run() or self._inquiry.takes_part(node)
        if message.stop and not has_begun:
            if self.outcome is None:  # it leaves before the start; we wait until it comes back
                self._end_session(node)
            return
        own_gap = message.status == RetryError.status and self._peers.stood_still(self._machine.now)
        words = own_gap or f"{self._host(node)}: {message.reason}"
        outcome = Outcome(message.status, words, message.program)
        if not self._counts(node):
            self._turn_away(node, outcome)
        elif message.stop:
            self._stop(outcome)
        elif self.state.has_started and self.outcome is None and not self._ends.counts(node):
            self._turn_away(node, outcome)
        else:
            self._decide(outcome)

    def _goodbye(self, node: int) -> None:
        """A node has got the outcome, or was turned away."""
        if self.state.is_released and self._peers.is_alive(node):
            self._act(actions.CloseSession(node))  # it stays until it sees that
            self._ending.left(node)
        else:
            self._end_session(node)

    def _end_session(self, node: int, why: str = "") -> None:
        """End the session of a node, which is lost with it."""
        self._act(actions.CloseSession(node))
        self._on_lost(events.SessionLost(node, why))

    def _on_daemon_wanted(self, event: events.DaemonWanted) -> None:
        # Here, too: mpirun may not know this node by the name that the hostfile has for it.
        is_there = event.node == self._me or self._peers.is_alive(event.node)
        command = event.command if is_there and self.outcome is None else ""
        self._ranks.start_daemon(event.node, command)

    def _daemon(self, node: int, message: messages.Daemon) -> None:
        if node != self._me or self._draft.launch.ranks.agents_stay:  # else mpirun itself runs here
            self._ranks.daemon(node, message)

    def _pong(self, node: int, message: messages.Pong) -> None:
        self._talk.pong(node, message.number)
        if self.state.works(node):
            self._stalls.heard(node, message.idle)

    def _steps(self, node: int, message: messages.Steps) -> None:
        self._stalls.take(node, message)
        self._progress_made.steps(self._stalls.steps.reached())

    def _progress(self, event: events.OutputProgress) -> None:
        part = self._ranks if self.outcome is None else self._ending
        part.progress(event.written, event.read)

    # -- the result

    def next_team(self) -> Team:
        """Return the team as this attempt leaves it, for the next one."""
        lost = self.state.lost()
        return self.state.team.without(lost, self._present - lost.keys())

    def _on_signalled(self, event: events.Signalled) -> None:
        if event.again:
            self._hurry()
        status = 128 + event.signum
        outcome = Outcome(status, f"EP611 {ended('the job', status)}")
        has_begun = (
            self.state.has_started or self._has_run() or self.state.has_entered(Phase.INQUIRY)
        )
        if has_begun or self.outcome is not None:
            self._stop(outcome)
        else:  # this node may come back; the others wait for it
            self.state.outcome = outcome
            self._roll_call.close()
            self.state.end(outcome)

    def _on_called(self, event: events.LeaderCalled) -> None:
        if isinstance(event.message, messages.Hello):
            self._roll_call.called(event.message, self._decide)


_HANDLERS: Mapping[type, Callable[[Leader, Any], object]] = {
    events.Started: Leader._on_began,
    events.TimerFired: lambda leader, event: None,  # only time has passed
    events.KeysReady: Leader._on_keys_ready,
    events.EndpointReady: Leader._on_door_opened,
    events.NameState: Leader._on_name_state,
    events.Unreachable: Leader._on_unreached,
    events.Rejected: Leader._on_disagreed,
    events.Answered: Leader._on_answered,
    events.Alive: lambda leader, event: leader._peers.hear(event.node, leader._machine.now),
    events.SessionLost: Leader._on_lost,
    events.MessageReceived: Leader._on_heard,
    events.LeaderCalled: Leader._on_called,
    events.Prepared: Leader._on_prepared,
    events.RankChanged: lambda leader, event: leader.state.rank_changed(event.change),
    events.LaunchersGone: lambda leader, event: leader._ending.launchers_gone(),
    events.DaemonWanted: Leader._on_daemon_wanted,
    events.StacksWanted: lambda leader, event: leader._stalls.demand(),
    events.OutputProgress: Leader._progress,
    events.Signalled: Leader._on_signalled,
    events.Faulted: lambda leader, event: leader._decide(event.outcome),
}
# In these phases, all nodes that are there are needed, spares too.
_NEEDED = (Phase.KEYS, Phase.SSHD, Phase.ROLL_CALL)
# What counts only until the outcome is known.
_UNDECIDED = (
    events.Started,
    events.KeysReady,
    events.EndpointReady,
    events.LeaderCalled,
    events.Prepared,
)
_MESSAGES: Mapping[type, Callable[[Leader, int, Any], None]] = {
    messages.RankStart: Leader._rank_start,
    messages.RankEnd: lambda leader, node, end: leader._monitor.rank(node, end),
    messages.Ended: lambda leader, node, message: leader._monitor.program(node, message),
    messages.Met: lambda leader, node, message: leader._ends.met.add(node),
    messages.Diagnosis: lambda leader, node, message: leader._verdict.add(node, message.cause),
    messages.Progressed: lambda leader, node, message: leader._progress_made.heard(),
    messages.Grew: lambda leader, node, message: leader._stalls.grew(),
    messages.Failed: Leader._failed,
    messages.Signal: lambda leader, node, message: leader._relay.came(node, message),
    messages.ForceStop: lambda leader, node, message: leader._hurry(),
    messages.DaemonStarted: lambda leader, node, message: leader._ranks.daemon_started(
        node, message.status
    ),
    messages.Daemon: Leader._daemon,
    messages.Limit: lambda leader, node, message: leader._ranks.limit(
        leader._host(node), message.reason
    ),
    messages.Pong: Leader._pong,
    messages.Steps: Leader._steps,
    messages.RankStacks: lambda leader, node, message: leader._stalls.take(node, message),
    messages.Stopped: lambda leader, node, message: leader._talk.note(node, messages.Stopped),
    messages.Goodbye: lambda leader, node, message: leader._goodbye(node),
    messages.Reply: Leader._reply,
    messages.Checking: lambda leader, *said: leader._roll_call.gates.checking(*said),
    messages.Checked: Leader._checked,
}
