"""The life of an attempt on worker-0, its leader, from the job's keys to the result. Read it first.

    _begin           every node derives the job's keys and starts sshd           KEYS, SSHD
    _endpoint_ready  the leader calls the workers; each answers with its report  ROLL_CALL
    _complete        enough are there, says `membership`: the leader compares
                     the reports, fills the places, and writes the ranks' files  FILES
    _prepared        `netcheck` may ask the nodes first                          INQUIRY
    _start_all       every node starts its part, or waits as a spare             LAUNCHING, SPARE
    _lose            a node is lost: the others go on without it, or the
                     attempt ends                                                RUNNING
    _decide          the outcome is known: every node stops what it runs         ENDING
    Ending           asks `Verdict` for the cause and whether another attempt
                     follows, and tells all nodes                                RELEASED, ENDED

With `again` in the outcome, every node boots the next attempt, whose team is
`membership.next_team()`; else it exits with the status. `Leader` calls these steps as events and
messages arrive; `Worker` is the other nodes' side.
"""

from __future__ import annotations

from entrypoint.base.model import Facts, Members, Outcome, Plan
from entrypoint.base.phases import Phase
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.job import actions, events, messages
from entrypoint.job.ending import Ending
from entrypoint.job.ends import EndMonitor
from entrypoint.job.failure import lost
from entrypoint.job.heartbeat import Heartbeat
from entrypoint.job.history import History
from entrypoint.job.inquiry import InquiryDriver
from entrypoint.job.launch import NO_LOGIN
from entrypoint.job.membership import GoOn, Refuse, of_job
from entrypoint.job.membership.team import Team
from entrypoint.job.outbox import Outbox, Shared
from entrypoint.job.progress import ProgressMonitor
from entrypoint.job.relay import SignalRelay
from entrypoint.job.rollcall import RollCall
from entrypoint.job.stall.detector import StallDetector
from entrypoint.job.state import JobState
from entrypoint.job.verdict import Verdict
from entrypoint.plan.members import clock_warnings, interface_words, with_interface, with_neighbours
from entrypoint.plan.ports import choose
from entrypoint.spec import JobSpec


class Attempt:
    """The parts of an attempt, and its steps in their order."""

    def __init__(
        self, spec: JobSpec, facts: Facts, draft: Plan, history: History, team: Team | None = None
    ) -> None:
        self.state = state = JobState(spec, draft, history)
        self.membership = members = of_job(state, team)
        self._facts = facts
        self._peers = state.peers
        self._machine = state.scheduler
        self._act = state.scheduler.act
        self._log = state.scheduler.log
        self._talk = talk = Outbox(state)
        shared = Shared(state, talk, members, self._decide)
        self._roll_call = RollCall(shared, self._complete)
        verdict = Verdict(shared)
        self._monitor = EndMonitor(shared, verdict)
        self._ranks = self._monitor.ranks
        self._stalls = StallDetector(shared)
        self._progress_made = ProgressMonitor(shared)
        self._heartbeat = Heartbeat(shared, self._lose)
        self._signals = SignalRelay(shared)
        self._ending = Ending(shared, verdict)
        self._inquiry = InquiryDriver(shared, self._start_all)
        # What the nodes answer: assumed until the roll call is over.
        self._members = draft.members
        # At which the programs meet; 0: the planned one.
        self._port = 0

    def _begin(self, event: events.Started) -> None:
        if self.state.plan.mode == "coordinated":
            self.state.enter(Phase.KEYS)
            self._act(actions.OpenEndpoint())
        else:
            self.state.enter(Phase.FILES)
            self._act(actions.Prepare(self._members))

    def _keys_ready(self, event: events.KeysReady) -> None:
        if self.state.is_calling:
            self.state.enter(Phase.SSHD)

    def _endpoint_ready(self, event: events.EndpointReady) -> None:
        if self.state.is_calling:
            self.state.enter(Phase.ROLL_CALL)
            self._roll_call.begin(event.report)
            self._heartbeat.begin()

    def _complete(self) -> None:
        """All are here, or enough: see whether they can run one job together."""
        state, membership = self.state, self.membership
        self._roll_call.close()
        if self._inquiry.begin(True, self._members):
            return
        state.enter(Phase.FILES)
        local = [peer.local for peer in self._peers.values()]
        members = membership.members()
        members = with_interface(members, state.me, state.spec, self._facts, local)
        chosen = membership.choose(members)
        if isinstance(chosen, Refuse):
            self._decide(chosen.outcome)
            return
        self._members = members = with_neighbours(members, membership.works)
        working = Members(tuple(it for it in members.reports if membership.works(it.rank)))
        self._port, lines = choose(state.plan.launch.port, state.topology, working)
        if exhausted := state.take_history(membership.unknown):
            self._decide(exhausted)
            return
        clocks = clock_warnings(state.topology, members)
        for line in (*clocks, *interface_words(state.spec, members), *lines, *chosen.lines):
            self._log(line)
        self._log(self._roll_call.summary(members))
        self._act(actions.Prepare(members, self._port, membership.team.replaced))

    def _prepared(self, event: events.Prepared) -> None:
        self._ranks.heard.asked = event.asked
        self.membership.start(event.awaited)
        if self.state.plan.mode == "coordinated":
            for node in self.membership.absent():
                self._act(actions.Call(node))
        if not self._inquiry.begin(False, self._members):
            self._start_all()

    def _start_all(self) -> None:
        state, reports = self.state, self.membership.reports()
        working = self.membership.working
        self._ranks.heard.slots = {state.topology.name(it): reports[it].slots for it in working}
        self._monitor.runs_here = True
        for node in [*self._peers, state.me]:
            self._start(node)
        if state.plan.launch.ranks.kind.report_ends:
            self._machine.after(state.spec.timeouts.launch, self._ranks.out_of_time)
        else:
            self._progress_made.begin()
        self._stalls.begin()

    def _start(self, node: int) -> None:
        """Tell a node to start its part. Nodes report their ranks only under an MPI."""
        state, team = self.state, self.membership.team
        has_reports = node == state.me or state.plan.launch.ranks.kind.report_ends
        if self.membership.works(node):
            state.enter(Phase.LAUNCHING if has_reports else Phase.RUNNING, node)
        else:
            state.enter(Phase.SPARE, node, team.reasons.get(node, ""))
        neighbours, history = self._members.reports[node].neighbours, vars(state.history)
        start = messages.Start(
            **history, port=self._port, replaced=team.replaced, neighbours=neighbours
        )
        self._talk.tell(node, start)
        self._progress_made.tell(node)

    def _decide(self, outcome: Outcome) -> None:
        """Set the job's outcome, unless it is set already."""
        if self.state.outcome is not None or self._monitor.holds(outcome):
            return
        self._roll_call.close()
        if self._inquiry.begin(True, self._members, outcome):
            return  # it decides once more, when the answers are judged
        self.state.outcome = outcome
        launch = self.state.plan.launch
        serves = launch.awaited is not None or launch.ends_with_first
        others = serves or bool(self.membership.late())
        self.membership.note_present()
        has_ranks = self._monitor.runs_here or outcome.status != 0 or others
        self._ending.begin(outcome, has_ranks)

    # -- nodes that are gone

    def _lose(self, node: int, why: str) -> None:
        peer, host = self._peers[node], self.state.topology.name(node)
        if self.state.is_calling:
            del self._peers[node]
            self._talk.forget(node=node)
            self._roll_call.lost(node, why)
            return
        peer.lost = True
        seen = self._peers.silence(node, self._machine.now)
        outcome = lost(host, why or seen)
        since = min(self._machine.now, self._ending.began) - self._peers.limit
        if own_gap := "" if why else self._peers.suspension(since):
            outcome = replace(outcome, reason=own_gap, cause=None)
        self._ending.lose(node, outcome)
        self._talk.lose(node)
        self._ranks.daemon_started(node, NO_LOGIN)
        self.state.enter(Phase.LOST, node, outcome.reason)
        if not self.state.is_released:
            self._log(outcome.reason)  # say it now: the last line comes only after the grace
        answer = self.membership.lose(node, outcome, bool(own_gap), self._machine.now)
        self._inquiry.lose(node, why or seen)
        if isinstance(answer, GoOn):
            self._talk.forget(node=node)
            self._stalls.lose(node)
            self._log(f"the job continues with {count(answer.left, 'node')}")
            self._act(actions.Call(node))  # should it come back
        else:
            self._decide(answer.outcome)

    def _turn_away(self, node: int, outcome: Outcome) -> None:
        """A spare, or a node of an elastic job that has not met the others, has failed. They go on
        without it."""
        works = self.membership.works(node)
        what = f"{self.state.topology.name(node)} cannot join" if works else "a spare leaves"
        self._log(f"{what}: {outcome.reason}")
        self._talk.tell(node, messages.Release(**vars(outcome)))
        self.state.enter(Phase.RELEASED, node)
        self.membership.leave(node)
        self._talk.lose(node)
