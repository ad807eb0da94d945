"""The leader, worker-0: what it makes of each event and message, in the order of attempt.py.

Its own node is one of the members: it gets the same orders and reports like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from entrypoint.base.errors import RetryError
from entrypoint.base.model import Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.wire import Invalid
from entrypoint.job import actions, events, messages
from entrypoint.job.attempt import Attempt
from entrypoint.job.failure import ended
from entrypoint.job.membership import Elastic, Refuse, TakeIn
from entrypoint.job.peers import Peer


class Leader(Attempt):
    """The node that decides. `handle` takes what happened and when, and returns what to do."""

    @cached_property
    def _handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Who takes which event."""
        return {
            events.Started: self._begin,
            events.TimerFired: lambda event: None,  # only time has passed
            events.KeysReady: self._keys_ready,
            events.EndpointReady: self._endpoint_ready,
            events.NameState: self._roll_call.named,
            events.Unreachable: self._roll_call.unreached,
            events.Rejected: self._roll_call.rejected,
            events.Answered: self._on_answered,
            events.Alive: lambda event: self._peers.hear(event.node, self._machine.now),
            events.SessionLost: self._on_lost,
            events.MessageReceived: self._on_heard,
            events.LeaderCalled: self._roll_call.called,
            events.Prepared: self._prepared,
            events.RankChanged: lambda event: self.state.rank_changed(event.change),
            events.LaunchersGone: lambda event: self._ending.launchers_gone(),
            events.DaemonWanted: self._on_daemon_wanted,
            events.StacksWanted: lambda event: self._stalls.demand(),
            events.OutputProgress: self._progress,
            events.Signalled: self._on_signalled,
            events.Faulted: lambda event: self._decide(event.outcome),
        }

    @cached_property
    def _routes(self) -> Mapping[type, Callable[[int, Any], object]]:
        """Who takes which message of a node."""
        return {
            messages.RankStart: self._rank_start,
            messages.RankEnd: self._monitor.rank,
            messages.Ended: self._monitor.program,
            messages.Met: self.membership.meet,
            messages.Diagnosis: self._monitor.verdict.add,
            messages.Progressed: lambda *_: self._progress_made.heard(),
            messages.Grew: lambda *_: self._stalls.grew(),
            messages.Failed: self._failed,
            messages.Signal: self._signals.relay,
            messages.ForceStop: lambda *_: self._force_stop(),
            messages.DaemonStarted: lambda node, it: self._ranks.daemon_started(node, it.status),
            messages.Daemon: self._ranks.daemon,
            messages.Limit: self._ranks.limit,
            messages.Pong: self._pong,
            messages.Steps: self._steps,
            messages.RankStacks: self._stalls.take,
            messages.Stopped: lambda node, _: self._talk.note(node, messages.Stopped),
            messages.Goodbye: lambda node, _: self._goodbye(node),
            messages.Reply: self._reply,
            messages.Checking: self._roll_call.checking,
            messages.Checked: self._roll_call.checked,
        }

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
            self._handlers[type(event)](event)

    def _host(self, node: int) -> str:
        return self.state.topology.name(node)

    def _stop(self, outcome: Outcome) -> None:
        """Somebody asked us to stop. Nodes between two attempts hear it when they have answered."""
        self.state.stop = self.state.stop or outcome
        if not self.state.is_calling:
            self._decide(outcome)
        else:
            self._roll_call.look()

    def _force_stop(self) -> None:
        """Force stop, after a second signal on some node."""
        self._ending.force()
        if self.state.stop:
            self._decide(self.state.stop)

    def _has_run(self) -> bool:
        """Whether this is not the job's first attempt, as far as the nodes know that are there.

        Then a stop of one node stops all; before, the others wait for that node to come back.
        """
        return self.state.history.attempt > 1 or bool(self.membership.earlier.may_run)

    # -- roll call

    def _on_answered(self, event: events.Answered) -> None:
        node = event.node
        self._peers[node] = Peer(event.report, event.local, self._machine.now)
        self.membership.answer(event.report, self._machine.now)
        self.state.enter(Phase.WAITING, node)
        if self.state.is_calling:
            self._roll_call.answered(event.report)
        elif self.outcome is not None:
            self._ending.arrive(node)
        else:
            match self.membership.arrive(node, event.report):
                case TakeIn(words):
                    self._log(f"{self._host(node)} {words}")
                    if self.state.has_started:
                        self._start(node)
                case Refuse(outcome):
                    self._turn_away(node, outcome)

    def _on_lost(self, event: events.SessionLost) -> None:
        if self._peers.is_alive(event.node):
            self._lose(event.node, event.why)
        elif event.node not in self._peers and not self.membership.needs(event.node):
            self.state.enter(Phase.LOST, event.node)
            self._act(actions.Call(event.node))  # should it come back

    # -- what members say

    def _on_heard(self, event: events.MessageReceived) -> None:
        if not self._peers.hear(event.node, self._machine.now) and event.node != self.state.me:
            if isinstance(event.message, messages.Goodbye):  # of one that was turned away
                self._goodbye(event.node)
            return
        if event.node != self.state.me and (why := self._wrong(event.node, event.message)):
            self._reject(event.node, why)
            return
        # Others answer a question that was asked earlier.
        if take := self._routes.get(type(event.message)):
            take(event.node, event.message)

    def _wrong(self, node: int, message: Any) -> str:
        """Why this is not for that worker to say; "" if it is."""
        if not messages.WORKER_SAYS[type(message)]:
            return ""
        launch, host, rank = self.state.plan.launch, self._host(node), getattr(message, "rank", 0)
        holds = {
            messages.CALL: False,  # the answer to it comes as Answered or Rejected
            messages.STARTED: self.state.has_started,
            messages.WORKS: self.membership.works(node),
            messages.RANKS: launch.ranks.kind.report_ends,
            messages.OWN_RANK: (
                isinstance(message, messages.RankStart) or self._ranks.runs_on(rank, host)
            ),
            messages.OWN_RANKS: self._ranks.run_on(message, host),
            messages.OWN_PROGRAM: launch.completion != "leader",
            messages.ELASTIC: isinstance(self.membership, Elastic),
            messages.ASKED: self._inquiry.has_asked(node, getattr(message, "number", 0)),
            messages.CHECKING: self._peers[node].report.checking,
        }
        return messages.wrong(message, messages.WORKER_SAYS, holds)

    def _reject(self, node: int, why: str) -> None:
        """A node has said what it may not: it has failed, as one that sends what is no message."""
        why = f"it sent an invalid message: {why}"
        if node == self.state.me:
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
            raise RetryError(summary, hint=do)
        # Once all ranks of the job run, no node launches any more.
        run_all = self._ranks.heard.all_started()
        if run_all:
            self._progress_made.begin()
            self._monitor.settle_by_first()
        for each in self.membership.here if run_all else {node} - {self.state.me}:
            if self.state.of(each) is Phase.LAUNCHING:
                self.state.enter(Phase.RUNNING, each)

    def _failed(self, node: int, message: messages.Failed) -> None:
        self.state.note(node, message.reason)
        has_begun = self.state.has_started or self._has_run() or node in self.membership.asked
        if message.stop and not has_begun:
            if self.outcome is None:  # it leaves before the start; we wait until it comes back
                self._end_session(node)
            return
        is_lost = message.status == RetryError.status
        own_gap = is_lost and self._peers.stood_still(self._machine.now)
        words = own_gap or f"{self._host(node)}: {message.reason}"
        outcome = Outcome(message.status, words, message.program)
        if self.outcome is not None and is_lost and node != self.state.me:
            self._ending.deny(outcome)
        elif self.membership.can_turn_away(node, message.stop):
            self._turn_away(node, outcome)
        elif message.stop:
            self._stop(outcome)
        else:
            self._decide(outcome)

    def _goodbye(self, node: int) -> None:
        """A node has got the outcome, or was turned away."""
        if self.state.is_released and self._peers.is_alive(node):
            self._ending.left(node)
        else:
            self._end_session(node)

    def _end_session(self, node: int, why: str = "") -> None:
        """End the session of a node, which is lost with it."""
        self._act(actions.CloseSession(node))
        self._on_lost(events.SessionLost(node, why))

    def _on_daemon_wanted(self, event: events.DaemonWanted) -> None:
        # Here, too: mpirun may not know this node by the name that the hostfile has for it.
        is_there = event.node == self.state.me or self._peers.is_alive(event.node)
        command = event.command if is_there and self.outcome is None else ""
        self._ranks.start_daemon(event.node, command)

    def _pong(self, node: int, message: messages.Pong) -> None:
        self._monitor.pong(node, message)
        self._talk.pong(node, message.number)
        if self.membership.works(node):
            self._stalls.heard(node, message.idle)

    def _steps(self, node: int, message: messages.Steps) -> None:
        self._stalls.take(node, message)
        self._progress_made.steps(self._stalls.steps.reached())

    def _progress(self, event: events.OutputProgress) -> None:
        part = self._ranks if self.outcome is None else self._ending
        part.progress(event.written, event.read)

    def _on_signalled(self, event: events.Signalled) -> None:
        if event.again:
            self._force_stop()
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


# What counts only until the outcome is known.
_UNDECIDED = (events.LeaderCalled, events.Prepared)
