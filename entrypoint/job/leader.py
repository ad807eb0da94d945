"""The leader, worker-0: holds the roll call, starts the job, and decides how the job has ended.

Its own node is one of the members: it gets the same orders and reports like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from entrypoint import heartbeat
from entrypoint.errors import RetryError
from entrypoint.job import actions, events, messages
from entrypoint.job.ending import Ending
from entrypoint.job.ends import EndMonitor
from entrypoint.job.failure import ended, lost
from entrypoint.job.history import History
from entrypoint.job.inquiry import InquiryDriver
from entrypoint.job.launch import NO_LOGIN
from entrypoint.job.membership import Elastic, of_job
from entrypoint.job.membership.common import GoOn, Refuse, TakeIn
from entrypoint.job.membership.team import Team
from entrypoint.job.outbox import Outbox
from entrypoint.job.peers import Peer
from entrypoint.job.ports import choose
from entrypoint.job.progress import ProgressMonitor
from entrypoint.job.relay import SignalRelay
from entrypoint.job.rollcall import RollCall
from entrypoint.job.stall.detector import StallDetector
from entrypoint.job.state import JobState
from entrypoint.job.verdict import Verdict
from entrypoint.model import Facts, Members, Outcome, Plan
from entrypoint.phases import Phase
from entrypoint.plan.members import clock_warnings, interface_words, with_interface, with_neighbours
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
        self.membership = of_job(state, team)
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
        self._roll_call = RollCall(state, self.membership, self._complete, self._decide)
        self._verdict = Verdict(state, self.membership)
        self._monitor = EndMonitor(state, self._talk, self.membership, self._verdict, self._decide)
        self._ranks = self._monitor.ranks
        self._stalls = StallDetector(state, self._talk, self.membership, self._decide)
        self._progress_made = ProgressMonitor(state, self._talk)
        self._ending = Ending(state, self._talk, self._verdict)
        self._inquiry = InquiryDriver(
            state, self._talk, self.membership, self._decide, self._begin_job
        )
        self._relay = SignalRelay(state, self._talk)
        self._members = draft.members  # assumed until the roll call is over
        self._port = 0  # at which the programs meet; 0: the planned one
        # places of the nodes whose end is the job's; None: all that are there
        self._awaited: tuple[int, ...] | None = None

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

    def _host(self, node: int) -> str:
        return self._topology.name(node)

    def _decide(self, outcome: Outcome) -> None:
        """Set the job's outcome, unless it is set already."""
        if self.outcome is None:
            self._roll_call.close()
            if self._inquiry.begin(True, self._members, outcome):
                return  # it decides once more, when the answers are judged
            self.state.outcome = outcome
            others = self._draft.launch.ends.awaited is not None or bool(self.membership.late())
            self.membership.note_present()
            has_ranks = self._monitor.runs_here or outcome.status != 0 or others
            self._ending.begin(outcome, has_ranks)

    def _stop(self, outcome: Outcome) -> None:
        """Somebody asked us to stop. Nodes between two attempts hear it when they have answered."""
        self.state.stop = self.state.stop or outcome
        if not self.state.is_calling:
            self._decide(outcome)
        else:
            self._roll_call.look()

    def _hurry(self) -> None:
        """Force stop, after a second signal on some node."""
        self._ending.force()
        if self.state.stop:
            self._decide(self.state.stop)

    def _has_run(self) -> bool:
        """Whether this is not the job's first attempt, as far as the nodes know that are there.

        Then a stop of one node stops all; before, the others wait for that node to come back.
        """
        reports = self._peers.reports().values()
        return max(self.state.history.attempt, *(it.attempt for it in reports), 0) > 1

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
        self._roll_call.begin(event.report)
        self._beat()
        self._machine.at(self._peers.next_look(self._machine.now), self._look_for_silent)

    def _on_name_state(self, event: events.NameState) -> None:
        if self.state.is_calling:
            self._act(actions.ShowWaiting(f"the name {event.host}", event.state, peers=False))
        if not event.state:
            self._roll_call.name_found()

    def _on_unreached(self, event: events.Unreachable) -> None:
        if self.state.is_calling:
            self._roll_call.unreached(event)

    def _on_disagreed(self, event: events.Rejected) -> None:
        if not self.state.is_calling:
            words = f"{event.summary} | {event.detail} | {event.hint}"
            self._log(f"{self._host(event.node)} cannot join: {words}")
            return
        self._roll_call.rejected(event)

    def _on_answered(self, event: events.Answered) -> None:
        node = event.node
        self._peers[node] = Peer(event.report, event.local, self._machine.now)
        self.membership.answer(event.report, self._machine.now)
        self.state.enter(Phase.WAITING, node)
        if self.state.is_calling:
            self._roll_call.answered(event.report)
        elif self.outcome is not None:
            self._ending.came(node)
        else:
            match self.membership.arrive(node, event.report):
                case TakeIn(words, starts):
                    self._log(f"{self._host(node)} {words}")
                    if starts:
                        self._start(node)
                case Refuse(outcome):
                    self._turn_away(node, outcome)

    def _turn_away(self, node: int, outcome: Outcome) -> None:
        """A spare, or a node of an elastic job that has not met the others, has failed. They go on
        without it."""
        works = self.membership.works(node)
        what = f"{self._host(node)} cannot join" if works else "a spare leaves"
        self._log(f"{what}: {outcome.reason}")
        self._tell(node, messages.Release(**vars(outcome)))
        self.state.enter(Phase.RELEASED, node)
        self.membership.leave(node)
        self._talk.lose(node)

    def _complete(self) -> None:
        """All are here, or enough: see whether they can run one job together."""
        self._roll_call.close()
        if self._inquiry.begin(True, self._members):
            return
        self.state.enter(Phase.FILES)
        local = [peer.local for peer in self._peers.values()]
        members = self.membership.members()
        members = with_interface(members, self._me, self._spec, self._facts, local)
        chosen = self.membership.choose(members)
        if isinstance(chosen, Refuse):
            self._decide(chosen.outcome)
            return
        works = self.membership.works
        self._members = members = with_neighbours(members, works)
        working = Members(tuple(it for it in members.reports if works(it.rank)))
        port, lines = choose(self._draft.launch.port, self._topology, working)
        if exhausted := self.state.take_history(self.membership.unknown):
            self._decide(exhausted)
            return
        self._port = port
        clocks = clock_warnings(self._topology, members)
        for line in (*clocks, *interface_words(self._spec, members), *lines, *chosen.lines):
            self._log(line)
        self._log(self._roll_call.summary(members))
        self._act(actions.Prepare(members, port, self.membership.team.replaced))

    def _on_prepared(self, event: events.Prepared) -> None:
        self._ranks.heard.asked = event.asked
        self._awaited = event.awaited
        if self._draft.mode == "coordinated":
            for node in self.membership.absent():
                self._act(actions.Call(node))
        if not self._inquiry.begin(False, self._members):
            self._begin_job()

    def _begin_job(self) -> None:
        reports = self.membership.reports()
        working = self.membership.working
        self._ranks.heard.slots = {self._host(node): reports[node].slots for node in working}
        self.membership.start(self._awaited)
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
        phase = phase if self.membership.works(node) else Phase.SPARE
        team = self.membership.team
        self.state.enter(phase, node, team.reasons.get(node, ""))
        beside = self._members.reports[node].beside
        history = vars(self.state.history)
        self._tell(
            node, messages.Start(**history, port=self._port, replaced=team.replaced, beside=beside)
        )
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
        elif event.node not in self._peers and not self.membership.needs(event.node):
            self.state.enter(Phase.LOST, event.node)
            self._act(actions.Call(event.node))  # should it come back

    def _lose(self, node: int, why: str) -> None:
        peer, host = self._peers[node], self._host(node)
        if self.state.is_calling:
            del self._peers[node]
            self._talk.forget(node=node)
            self._roll_call.lost(node, why)
            return
        peer.lost = True
        self._talk.lose(node)
        self._ranks.daemon_started(node, NO_LOGIN)
        seen = self._peers.silence(node, self._machine.now)
        outcome = lost(host, why or seen)
        if own_gap := "" if why else self._peers.stood_still(self._machine.now):
            outcome = replace(outcome, reason=own_gap, cause=None)
            self.state.missed.add(node)
        self.state.enter(Phase.LOST, node, outcome.reason)
        if not self.state.is_released:
            self._log(outcome.reason)  # say it now: the last line comes only after the grace
        answer = self.membership.lose(node, outcome, self._machine.now)
        self._inquiry.lose(node, why or seen)
        if isinstance(answer, GoOn):
            self._talk.forget(node=node)
            self._stalls.lose(node)
            self._log(f"the job goes on with {count(answer.left, 'node')}")
            self._act(actions.Call(node))  # should it come back
        else:
            self._decide(answer.outcome)

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
            messages.WORKS: self.membership.works(node),
            messages.RANKS: launch.ranks.reports == "ranks",
            messages.OWN_RANK: (
                isinstance(message, messages.RankStart) or self._ranks.runs_on(rank, host)
            ),
            messages.OWN_RANKS: self._ranks.run_on(message, host),
            messages.OWN_PROGRAM: launch.ends.completion != "leader",
            messages.ELASTIC: isinstance(self.membership, Elastic),
            messages.ASKED: self._inquiry.has_asked(node, getattr(message, "number", 0)),
            messages.CHECKING: self.membership.has_announced(node),
        }
        return messages.wrong(message, messages.WORKER_SAYS, holds)

    def _reject(self, node: int, why: str) -> None:
        """A node has said what it may not: it has failed, as one that sends what is no message."""
        why = f"it sent an invalid message: {why}"
        if node == self._me:
            raise RetryError(f"EP602 {self._host(node)} is lost: {why}")
        self._end_session(node, why)

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
        for each in self.membership.here if run_all else {node} - {self._me}:
            if self.state.of(each) is Phase.LAUNCHING:
                self.state.enter(Phase.RUNNING, each)

    def _failed(self, node: int, message: messages.Failed) -> None:
        self.state.note(node, message.reason)
        has_begun = self.state.has_started or self._has_run() or node in self.membership.asked
        if message.stop and not has_begun:
            if self.outcome is None:  # it leaves before the start; we wait until it comes back
                self._end_session(node)
            return
        own_gap = message.status == RetryError.status and self._peers.stood_still(self._machine.now)
        words = own_gap or f"{self._host(node)}: {message.reason}"
        outcome = Outcome(message.status, words, message.program)
        if self.membership.can_turn_away(node, message.stop):
            self._turn_away(node, outcome)
        elif message.stop:
            self._stop(outcome)
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
        if self.membership.works(node):
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
        return self.membership.next_team()

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
            self._roll_call.called(event.message)


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
    messages.Met: lambda leader, node, message: leader.membership.meet(node),
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
    messages.Checking: lambda leader, *said: leader._roll_call.checking(*said),
    messages.Checked: lambda leader, *said: leader._roll_call.checked(*said),
}
