"""A worker: answers the roll call, and stays until it is released or its leader is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from entrypoint import __version__
from entrypoint.base.errors import ConfigError, UnavailableError
from entrypoint.base.history import History
from entrypoint.base.model import Outcome, Plan
from entrypoint.base.phases import Phase
from entrypoint.base.text import count
from entrypoint.job import actions, events, messages
from entrypoint.job.contact import Contact
from entrypoint.job.failure import difference, lost, stopped
from entrypoint.job.history import follow
from entrypoint.job.state import JobState, Machine
from entrypoint.job.waits import KILL_MARGIN, Misdirected
from entrypoint.plan.members import is_team, team_of
from entrypoint.spec import JobSpec

_LEADER = 0


class Worker(Machine):
    """A node that follows. `handle` takes what happened and when, and returns what to do."""

    _leader_name = ""  # which leader we have answered
    _token = ""  # what it has given to this node alone
    _refused = 0  # logins that had not this job's keys
    _has_stopped = False  # whether nothing of the job runs here any more
    _stays = False  # whether the leader may not have read our last message yet
    _own: Outcome | None = None  # this node's own failure, of which the leader was told
    _has_failed = False  # whether a program of this node has failed on its own

    def __init__(
        self, spec: JobSpec, draft: Plan, history: History, leader_lost: float = -math.inf
    ) -> None:
        self.state = state = JobState(spec, draft, history)
        state.leader_lost = leader_lost
        self._spec = spec
        self._draft = draft
        self._topology = draft.topology
        self._me = state.me
        self._leader = draft.topology.leader.name
        self._contact = Contact(spec.timeouts.heartbeat, len(draft.topology.nodes))
        self._misdirected = Misdirected(draft.topology)
        self._missing: dict[str, str] = {}  # what is waited for before the start -> why
        self._scheduler = state.scheduler
        self._act = state.scheduler.act
        self._after = state.scheduler.after

    # -- the machine

    def handle(self, event: Any, now: float) -> list[Any]:
        """Return what is to be done, now that this happened at `now` (seconds)."""
        return self._scheduler.step(lambda: _HANDLERS[type(event)](self, event), self._give_up, now)

    def busy(self, message: Any, now: float) -> str:
        """Return why a session with this first message may not replace the present one, or "".

        Before the start the same leader may, which has the token of this node, and any where that
        one is gone. Nobody takes a running job's node: it must first end, with what it runs."""
        self._scheduler.now = now
        if self._takes_part() or self.outcome is not None:
            return messages.RUNS if self.state.has_started else messages.TAKEN
        if not self._contact.is_there(self._scheduler.now):
            return ""
        is_hello = isinstance(message, messages.Hello)
        if is_hello and message.leader == self._leader_name and message.rank != self._me:
            return self._misdirected.words
        return "" if is_hello and message.token == self._token else messages.TAKEN

    def _tell_leader(self, message: Any) -> None:
        self._act(actions.Send(_LEADER, message))

    def _decide(self, outcome: Outcome) -> None:
        """The job's result, unless it is known already."""
        if self.outcome is None:
            self.state.outcome = outcome
            self._finish()

    # -- roll call

    def _on_started(self, event: events.Started) -> None:
        self.state.enter(Phase.KEYS)
        self._act(actions.OpenEndpoint())

    def _on_keys_ready(self, event: events.KeysReady) -> None:
        if self.outcome is None:
            self.state.enter(Phase.SSHD)

    def _on_endpoint_ready(self, event: events.EndpointReady) -> None:
        if self.state.phase is Phase.SSHD:  # its leader may have called before
            self.state.enter(Phase.ROLL_CALL)
        self._contact.heard = self._scheduler.now
        self._miss(self._leader, "it has not called yet")
        # An answer needs neither name, but one without an address is often why no call comes.
        self._act(actions.Resolve((_LEADER, self._me)))
        self._after(self._spec.timeouts.peers, self._out_of_time, "roll call")

    def _miss(self, what: str, why: str) -> None:
        self._missing[what] = why
        self._act(actions.ShowWaiting(what, why, peers=False))

    def _on_name_state(self, event: events.NameState) -> None:
        if not self.state.has_started:
            self._miss(f"the name {event.host}", event.state)

    def _on_unreached(self, event: events.Unreachable) -> None:
        """A login to this node failed; it may be the leader with another key."""
        if not self.state.has_started:
            self._refused += 1
            self._miss(self._leader, event.why)
            if self.state.of(_LEADER) is Phase.MISSING:
                self.state.note(_LEADER, event.why)

    def _out_of_time(self) -> None:
        if self._contact.is_there(self._scheduler.now):
            # The leader has called and is still there: it gives up on its own and says why.
            self._after(self._contact.patience, self._out_of_time, "roll call")
            return
        seen = ", ".join(f"{what}: {why}" for what, why in self._missing.items() if why)
        do = f"see its log, or wait longer: {self._spec.setting('timeouts.peers')}, in seconds"
        if self._refused:
            seen += f"; {count(self._refused, 'login')} refused"
            do = "give all nodes the same secret and job name; see its log"
        raise UnavailableError(
            f"EP501 {self._leader} did not call within {self._spec.timeouts.peers:.0f}s", seen, do
        )

    # -- what the leader says

    def _on_heard(self, event: events.MessageReceived) -> None:
        if event.node == self._me:
            self._here(event.message)
            return
        self._contact.hear(self._scheduler.now)
        if self.outcome is not None and not isinstance(event.message, messages.Release):
            return  # this node is leaving; a leader that starts again finds the next one
        if why := self._wrong(event.message):
            self._on_lost(events.SessionLost(_LEADER, f"it sent an invalid message: {why}"))
            return
        _HANDLERS[type(event.message)](self, event.message)

    def _wrong(self, message: Any) -> str:
        """Return why the leader may not send this message now; "" if it may."""
        inquiry = self._draft.inquiry
        # A job that goes on without this node may be over when it comes.
        ends_without_start = (inquiry and inquiry.instead) or self._draft.admits_late
        holds = {
            messages.CALL: not self._takes_part(),
            messages.CALLED: not self.state.is_calling,
            messages.TEAM: is_team(self._topology, getattr(message, "replaced", ())),
            messages.STARTED: self.state.has_started,
            messages.RANKS: self._draft.launch.ranks.kind.report_ends,
            messages.INQUIRY: inquiry is not None and not self._takes_part(),
            messages.SUCCESS: self.state.has_started
            or ends_without_start
            or getattr(message, "status", 0) != 0,
            messages.WELL: not (self._has_failed and getattr(message, "status", 1) == 0),
        }
        return messages.wrong(message, messages.LEADER_SAYS, holds)

    def _hello(self, hello: messages.Hello) -> None:
        self.state.enter(Phase.ROLL_CALL, _LEADER)
        if why := self._misdirected.why(hello, self._scheduler.now):
            self._tell_leader(messages.Taken(why))
            self._contact.is_connected = False  # its session is nobody's, and may be replaced
            return
        if wrong := self._disagreement(hello):
            self._tell_leader(messages.Reject(*wrong))
            self._stay()
            self._decide(ConfigError(*wrong).outcome)
            return
        self._leader_name = hello.leader
        self._token = hello.token
        self._contact.limit = hello.heartbeat
        self.state.enter(Phase.FILES)
        self._act(actions.AnswerRollCall(hello.env, hello.address, hello.leader))
        self.state.enter(Phase.WAITING)
        self._miss(self._leader, "it waits for other nodes")

    def _disagreement(self, hello: messages.Hello) -> tuple[str, str, str] | None:
        """Return why this container and the leader's can't be one job: what, seen, do."""
        # The toolkit first: a hello of another version has nothing else to compare.
        mine = {
            "toolkit": __version__,
            "hosts": self._topology.hosts,
            "rank": self._me,
            "launcher": self._draft.task,
        }
        for name, value in mine.items():
            if getattr(hello, name) != value:
                here, there = self._topology.this.name, self._leader
                seen = difference(value, here, getattr(hello, name), there)
                return (
                    f"EP504 the nodes disagree on {name}",
                    seen,
                    "give all nodes the same image and the same spec",
                )
        return None

    def _start(self, message: messages.Start) -> None:
        if self._takes_part():
            return
        is_spare = self._me not in team_of(self._topology, message.replaced)
        self.state.enter(Phase.SPARE if is_spare else Phase.LAUNCHING)
        self.state.enter(Phase.RUNNING, _LEADER)
        self._scheduler.drop("roll call")
        self._act(actions.StopCalling())
        self.state.history = message.history
        role = (
            "this node waits as a spare"
            if is_spare
            else "starting"
            if self._draft.launch.programs
            else "this node's ranks are started from there"
        )
        self._scheduler.log(f"{self._leader} has reached all nodes; {role}")
        self._do(message)
        self._look_for_silence()

    def _question(self, message: messages.Question) -> None:
        self.state.enter(Phase.INQUIRY)
        self._miss(self._leader, "it asks all nodes first")
        self._do(message)

    def _do(self, message: Any) -> None:
        """An order for the programs of this node."""
        self._act(actions.Send(self._me, message))

    def _stop_here(self, message: messages.Stop) -> None:
        self.state.enter(Phase.ENDING, _LEADER)
        if not self._is_stopping():
            self.state.enter(Phase.ENDING)
            self._do(message)
        elif message.grace == 0:
            self._do(message)

    def _progressed(self, message: messages.Progressed) -> None:
        self.state.note_progress()
        self.state.step = max(self.state.step, message.step)

    def _is_stopping(self) -> bool:
        """Return whether the programs were told to stop."""
        return self.state.has_entered(Phase.ENDING)

    def _takes_part(self) -> bool:
        """Return whether this attempt has begun here, or ends: no leader can call this node any
        more."""
        return self.state.has_started or self._is_stopping()

    def _release(self, message: messages.Release) -> None:
        self.state.enter(Phase.ENDING, _LEADER)
        if not (unsure := self._contact.was_silent and not message.status):
            self.state.enter(Phase.RELEASED)
        self._act(actions.ReportPhases())  # before the last word: the leader does not wait for more
        self._tell_leader(messages.Goodbye(unsure))
        self._stay(self._contact.patience if unsure else KILL_MARGIN)
        if unsure:
            self._contact.was_silent = False  # what comes next, the leader says to this, or later
            self._decide(self._without_leader("after a silence, it did not confirm its success"))
            return
        # Also one that has decided alone and is still here: the job has one outcome.
        self.state.outcome = Outcome(**vars(message))
        self._finish()

    def _look_for_silence(self) -> None:
        """A leader that is silent for longer than the timeout is lost."""
        silent, due = self._contact.look(self._scheduler.now)
        if silent > self._contact.patience and self.outcome is None:
            outcome = self._without_leader(f"nothing heard of it for {silent:.0f}s")
            self.state.enter(Phase.LOST, _LEADER, outcome.reason)
            self._tell_failure(outcome)  # a frozen leader reads it when it wakes
            self._decide(outcome)
            return
        self._scheduler.at(due, self._look_for_silence)

    def _on_lost(self, event: events.SessionLost) -> None:
        self._contact.is_connected = False
        self._stay_no_longer()
        # Before the start it may come again: a leader calls until all have answered.
        why = event.why or "its session ended"
        if self.state.phase in (Phase.WAITING, Phase.INQUIRY):
            self.state.enter(Phase.ROLL_CALL)
        self.state.enter(Phase.LOST if self._takes_part() else Phase.MISSING, _LEADER, why)
        if not self._takes_part():
            self._miss(self._leader, why)
        elif self.outcome is None:
            self._decide(self._without_leader(why))

    def _without_leader(self, why: str) -> Outcome:
        """Return the outcome of an attempt whose leader is lost, which no other node replaces: this
        node's own failure if it had one."""
        from entrypoint.job.membership.team import without_leader  # only a failure needs it

        if self._scheduler.now - self._contact.heard > self._contact.limit:
            self.state.leader_lost = self._scheduler.now
        if self._own is not None:
            return self._own
        return lost(self._leader, why + without_leader(self._topology))

    # -- what happens here

    def _here(self, message: Any) -> None:
        if isinstance(message, messages.Reply) and self.state.phase is not Phase.INQUIRY:
            return  # to a leader that is gone
        if isinstance(message, messages.Stopped):
            self._has_stopped = True
            self.state.note_save(message.saved)  # in case that this node decides alone
            if self.state.phase is Phase.ENDING:
                self.state.enter(Phase.STOPPED)
        if isinstance(message, (messages.Ended, messages.RankEnd)) and not self._is_stopping():
            spoils = not (self._draft.admits_late or self._draft.launch.ends_with_first)
            self._has_failed |= spoils and message.status != 0
        if isinstance(message, messages.Progressed):
            self._progressed(message)  # another leader asks for it if this one is lost
        self._tell_leader(message)
        self._end_if_over()

    def _on_signalled(self, event: events.Signalled) -> None:
        if event.again:
            self.state.force = True
            self._tell_leader(messages.ForceStop())
            if self._is_stopping():
                self._do(messages.Stop(0))
        outcome = stopped("this node", event.signum)
        if self.state.has_started or self.state.phase is Phase.INQUIRY:
            self._give_up(outcome, stop=True)
        else:  # nothing runs here, and this node may come back: nobody else ends
            self._tell_failure(outcome, stop=True)
            self._stay()
            self._decide(outcome)

    def _give_up(self, outcome: Outcome, stop: bool = False) -> None:
        """The leader decides for all. If there is none, or it does not answer in time, this node
        decides alone."""
        if not self._contact.is_there(self._scheduler.now):
            self._decide(outcome)
            return
        self._own = self._own if stop else outcome
        self._tell_failure(outcome, stop)
        patience = self._spec.timeouts.grace + KILL_MARGIN + self._contact.patience
        self._after(patience, lambda: self._decide(outcome))

    def _tell_failure(self, outcome: Outcome, stop: bool = False) -> None:
        self._tell_leader(messages.Failed(outcome.status, outcome.reason, outcome.program, stop))

    # -- end

    def _stay(self, seconds: float = KILL_MARGIN) -> None:
        """Stay until the leader has read the last message and ends the session: our end ends sshd,
        before it has passed that on."""
        self._stays = self._contact.is_connected
        self._after(seconds, self._stay_no_longer)

    def _finish(self) -> None:
        """Stop the programs, with the grace. After a release there is none: they had it."""
        grace = 0 if self.state.is_released or self.state.force else self._spec.timeouts.grace
        if not self._is_stopping():
            if not self.state.is_released:
                self.state.enter(Phase.ENDING)
            self._do(messages.Stop(grace))
        self._end_if_over()

    def _stay_no_longer(self) -> None:
        self._stays = False
        self._end_if_over()

    def _end_if_over(self) -> None:
        outcome = self.outcome
        if outcome is None or not self._has_stopped or self._stays:
            return
        # without a leader, each worker decides alone whether to start again
        if not self.state.is_released:
            outcome = follow(outcome, self.state.next_history(), self._spec.restarts, None)
            outcome = self.state.with_save(outcome)
        self.state.end(outcome)


# What the leader orders this node's programs to do.
_ORDERS = (
    messages.StartDaemon,
    messages.Ping,
    messages.Signal,
    messages.Stacks,
    messages.ReleaseFailedRanks,
)
# By event, and by message of the leader.
_HANDLERS: Mapping[type, Callable[[Worker, Any], None]] = {
    events.Started: Worker._on_started,
    events.TimerFired: lambda worker, event: None,  # only time has passed
    events.KeysReady: Worker._on_keys_ready,
    events.EndpointReady: Worker._on_endpoint_ready,
    events.NameState: Worker._on_name_state,
    events.Unreachable: Worker._on_unreached,
    events.SessionLost: Worker._on_lost,
    events.MessageReceived: Worker._on_heard,
    events.RankChanged: lambda worker, event: worker.state.rank_changed(event.change),
    events.Signalled: Worker._on_signalled,
    events.Faulted: lambda worker, event: worker._give_up(event.outcome),
    **dict.fromkeys(_ORDERS, Worker._do),
    messages.Hello: Worker._hello,
    messages.Start: Worker._start,
    messages.Progressed: Worker._progressed,
    messages.Question: Worker._question,
    messages.Stop: Worker._stop_here,
    messages.Release: Worker._release,
}
