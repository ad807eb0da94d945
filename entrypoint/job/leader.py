"""The leader, worker-0: the life of an attempt, from the job's keys to the result. Read it first.

    _begin           every node derives the job's keys and starts sshd           KEYS, SSHD
    _endpoint_ready  the leader calls the workers; each answers with its report  ROLL_CALL
    RollCall.look    enough are there, says `membership`
    Attempt.prepare  the leader compares the reports, fills the places, and
                     writes the ranks' files                                     FILES
           .begin    `netcheck` may ask the nodes first                          INQUIRY
           .start    every node starts its part, or waits as a spare             LAUNCHING, SPARE
    _lose            a node is lost: the others go on without it, or the
                     attempt ends                                                RUNNING
    _decide          the outcome is known: every node stops what it runs         ENDING
    Ending           asks `Verdict` for the cause and whether another attempt
                     follows, and tells all nodes                                RELEASED, ENDED

With `again` in the outcome, every node boots the next attempt, whose team is
`membership.roster.next_team()`; else it exits with the status. The leader's own node is one of the
members: it gets the same orders and reports like the others. `Worker` is the other nodes' side.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from entrypoint.base.errors import RetryError
from entrypoint.base.history import History
from entrypoint.base.model import Facts, Outcome, Plan
from entrypoint.base.phases import Phase
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.base.wire import Invalid
from entrypoint.job import actions, events, messages
from entrypoint.job.attempt import Attempt
from entrypoint.job.ending import Ending
from entrypoint.job.failure import lost, stopped
from entrypoint.job.heartbeat import Heartbeat
from entrypoint.job.launch import NO_LOGIN
from entrypoint.job.membership import of_job
from entrypoint.job.membership.participants import GoOn, TakeIn
from entrypoint.job.membership.quorum import Refuse
from entrypoint.job.membership.team import Team
from entrypoint.job.outbox import Handlers, Outbox, Shared
from entrypoint.job.peers import Peer
from entrypoint.job.rollcall import RollCall
from entrypoint.job.state import JobState, Machine
from entrypoint.spec import JobSpec


class Leader(Machine):
    """The node that decides. `handle` takes what happened and when, and returns what to do."""

    def __init__(
        self, spec: JobSpec, facts: Facts, draft: Plan, history: History, team: Team | None = None
    ) -> None:
        self.state = state = JobState(spec, draft, history)
        self.membership = members = of_job(state, team)
        self._roster = members.roster
        self._participants = members.participants
        self._peers = state.peers
        self._scheduler = state.scheduler
        self._act = state.scheduler.act
        self._log = state.scheduler.log
        self._host = state.topology.name
        self._outbox = outbox = Outbox(state)
        shared = Shared(state, outbox, members, self._decide)
        self._attempt = Attempt(shared, facts)
        self._roll_call = RollCall(shared, self._attempt.prepare)
        self._heartbeat = Heartbeat(shared, self._lose)
        self._ending = Ending(shared, self._attempt.verdict)

    @cached_property
    def _handlers(self) -> Handlers:
        """Handlers by event, and by message of a node."""
        return {
            **self._attempt.handlers,
            events.Started: self._begin,
            events.TimerFired: lambda event: None,  # only time has passed
            events.KeysReady: self._keys_ready,
            events.EndpointReady: self._endpoint_ready,
            events.NameState: self._roll_call.named,
            events.Unreachable: self._roll_call.unreached,
            events.Rejected: self._roll_call.rejected,
            events.Answered: self._on_answered,
            events.Alive: lambda event: self._peers.hear(event.node, self._scheduler.now),
            events.SessionLost: lambda event: self._gone(event.node, event.why),
            events.MessageReceived: self._on_heard,
            events.LeaderCalled: self._roll_call.called,
            events.LaunchersGone: lambda event: self._ending.launchers_gone(),
            events.OutputProgress: self._progress,
            events.Signalled: self._on_signalled,
            events.Faulted: lambda event: self._decide(event.outcome),
            messages.Failed: self._failed,
            messages.ForceStop: lambda *_: self._force_stop(stopped("the job", 15)),
            messages.Stopped: self._stopped,
            messages.Goodbye: self._goodbye,
            messages.Checking: self._roll_call.checking,
            messages.Checked: self._roll_call.checked,
        }

    # -- the machine

    def handle(self, event: Any, now: float) -> list[Any]:
        """Return what is to be done, now that this happened at `now` (seconds)."""
        return self._scheduler.step(lambda: self._on(event), self._decide, now)

    def _on(self, event: Any) -> None:
        self._peers.notice_own_gap(self._scheduler.now)
        if self.outcome is None or type(event) not in _UNDECIDED:
            self._handlers[type(event)](event)

    # -- the phases

    def _begin(self, event: events.Started) -> None:
        if self.state.plan.mode == "coordinated":
            self.state.enter(Phase.KEYS)
            self._act(actions.OpenEndpoint())
        else:
            self.state.enter(Phase.FILES)
            self._act(actions.Prepare(self.state.plan.members))

    def _keys_ready(self, event: events.KeysReady) -> None:
        if self.state.is_calling:
            self.state.enter(Phase.SSHD)

    def _endpoint_ready(self, event: events.EndpointReady) -> None:
        if self.state.is_calling:
            self.state.enter(Phase.ROLL_CALL)
            self._roll_call.begin(event.report)
            self._heartbeat.begin()

    def _decide(self, outcome: Outcome) -> None:
        """Set the job's outcome, unless it is set already."""
        if self.outcome is not None:
            return
        self._roll_call.close()
        if self._attempt.holds(outcome):
            return
        self.state.outcome = outcome
        self._roster.note_present()
        self._ending.begin(outcome, outcome.status != 0 or self._attempt.may_run())

    def _stop(self, outcome: Outcome) -> None:
        """Somebody asked us to stop. Nodes between two attempts hear it when they have answered."""
        self.state.stop = self.state.stop or outcome
        if not self.state.is_calling:
            self._decide(outcome)
        else:
            self._roll_call.look()

    def _force_stop(self, outcome: Outcome) -> None:
        """Force stop, after a second signal on some node: nobody takes that for a leave."""
        self.state.stop = self.state.stop or outcome
        self._ending.force()
        self._decide(self.state.stop)

    def _stopped(self, node: int, message: messages.Stopped) -> None:
        self._roster.stop(node)
        self.state.note_save(message.saved)
        self._outbox.note(node, messages.Stopped)

    # -- nodes that come and go

    def _on_answered(self, event: events.Answered) -> None:
        node = event.node
        self._peers[node] = Peer(event.report, event.local, self._scheduler.now)
        self.membership.quorum.answer(event.report, self._scheduler.now)
        self.state.enter(Phase.WAITING, node)
        if self.state.is_calling:
            self._roll_call.answered(event.report)
        elif self.outcome is not None:
            self._ending.arrive(node)
        else:
            match self._participants.arrive(node, event.report):
                case TakeIn(words):
                    self._log(f"{self._host(node)} {words}")
                    if self.state.has_started:
                        self._attempt.admit(node)
                case Refuse(outcome):
                    self._turn_away(node, outcome)

    def _gone(self, node: int, why: str) -> None:
        if self._peers.is_alive(node):
            self._lose(node, why)
        elif node not in self._peers and not self._participants.needs(node):
            self.state.enter(Phase.LOST, node)
            self._act(actions.Call(node))  # should it come back

    def _lose(self, node: int, why: str) -> None:
        peer, host = self._peers[node], self._host(node)
        if self.state.is_calling:
            del self._peers[node]
            self._outbox.forget(node=node)
            self._roll_call.lost(node, why)
            return
        peer.lost = True
        seen = self._peers.silence(node, self._scheduler.now)
        outcome = lost(host, why or seen)
        since = min(self._scheduler.now, self._ending.began) - self._peers.limit
        if own_gap := "" if why else self._peers.suspension(since):
            outcome = replace(outcome, reason=own_gap, cause=None)
        self._ending.lose(node, outcome)
        self._outbox.lose(node)
        self._attempt.ranks.daemon_started(node, NO_LOGIN)
        self.state.enter(Phase.LOST, node, outcome.reason)
        if not self.state.is_released:
            self._log(outcome.reason)  # log it now: the last line comes only after the grace
        answer = self._participants.lose(node, outcome, bool(own_gap), self._scheduler.now)
        self._attempt.lose(node, why or seen, isinstance(answer, GoOn))
        if isinstance(answer, GoOn):
            self._outbox.forget(node=node)
            self._log(f"the job continues with {count(answer.left, 'node')}")
            self._act(actions.Call(node))  # should it come back
        else:
            self._decide(answer)

    def _turn_away(self, node: int, outcome: Outcome) -> None:
        """A spare, or a node of an elastic job that has not met the others, has failed. They go on
        without it."""
        is_spare = not self._roster.works(node)
        what = "a spare leaves" if is_spare else f"{self._host(node)} cannot join"
        self._log(f"{what}: {outcome.reason}")
        self._outbox.tell(node, messages.Release(**vars(outcome)))
        self.state.enter(Phase.RELEASED, node)
        self._participants.leave(node)
        self._outbox.lose(node)

    def _goodbye(self, node: int, message: messages.Goodbye) -> None:
        """A node has got the outcome, or was rejected."""
        if self.state.is_released and self._peers.is_alive(node):
            self._ending.left(node, message.unsure)
        else:
            self._end_session(node)

    def _end_session(self, node: int, why: str = "") -> None:
        """End the session of a node, which is lost with it."""
        self._act(actions.CloseSession(node))
        self._gone(node, why)

    # -- what they say

    def _on_heard(self, event: events.MessageReceived) -> None:
        node, message = event.node, event.message
        if node != self.state.me:
            if not self._peers.hear(node, self._scheduler.now):
                if isinstance(message, messages.Goodbye):  # of one that was rejected
                    self._goodbye(node, message)
                return
            if why := self._attempt.wrong(node, message):
                self._reject(node, why)
                return
        # Others answer a question that was asked earlier.
        if take := self._handlers.get(type(message)):
            try:
                take(node, message)
            except Invalid as error:
                self._reject(node, str(error))

    def _reject(self, node: int, why: str) -> None:
        """Treat a node as failed that has sent an invalid message, or one that it may not send."""
        why = f"it sent an invalid message: {why}"
        if node == self.state.me:
            raise RetryError(f"EP602 {self._host(node)} is lost: {why}")
        self._end_session(node, why)

    def _failed(self, node: int, message: messages.Failed) -> None:
        self.state.note(node, message.reason)
        is_lost = message.status == RetryError.status
        own_gap = is_lost and self._peers.stood_still(self._scheduler.now)
        words = own_gap or f"{self._host(node)}: {message.reason}"
        outcome = Outcome(message.status, words, message.program)
        if self.outcome is not None and is_lost and node != self.state.me:
            self._ending.deny(outcome)
        elif self._participants.can_turn_away(node):
            self._turn_away(node, outcome)
        elif message.stop:
            self._told_to_stop(node, outcome)
        else:
            self._decide(outcome)

    def _told_to_stop(self, node: int, own: Outcome) -> None:
        """A worker was told to stop, and has this outcome. It leaves, if the job can go on in
        another attempt, or has not started this one; else all stop."""
        members = self._participants
        if not self.state.is_calling and members.may_leave(own.status):
            outcome = members.depart(node, self._scheduler.now)
            if self.outcome is None:
                self._log(outcome.reason)
            self._decide(outcome)
        elif self.state.has_started or node in self._roster.asked:
            self._stop(own)
        elif self.outcome is None:
            members.depart(node, self._scheduler.now)
            self._end_session(node, "it has left")

    # -- what happens here

    def _progress(self, event: events.OutputProgress) -> None:
        part = self._attempt.ranks if self.outcome is None else self._ending
        part.progress(event.written, event.read)

    def _on_signalled(self, event: events.Signalled) -> None:
        outcome = stopped("the job", event.signum)
        if event.again:
            self._force_stop(outcome)
        has_begun = self._roster.earlier.has_run or self.state.has_entered(Phase.INQUIRY)
        if has_begun or self.outcome is not None:
            self._stop(outcome)
        else:  # this node may come back; the others wait for it
            self.state.outcome = outcome
            self._roll_call.close()
            self.state.end(outcome)


# What counts only until the outcome is known.
_UNDECIDED = (events.LeaderCalled, events.Prepared)
