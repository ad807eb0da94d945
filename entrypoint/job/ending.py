"""From the job's outcome to the leader's end: all nodes stop, get the outcome, and leave."""

from __future__ import annotations

from entrypoint.base import heartbeat
from entrypoint.base.model import Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.text import some
from entrypoint.job import actions, messages
from entrypoint.job.outbox import Part, Shared
from entrypoint.job.verdict import Verdict
from entrypoint.job.waits import KILL_MARGIN

# Seconds in which the launcher has to pass on something of the ranks' last output: it is waited for
# while that flows.
_PASS_ON = 1.0
# A launcher that has lost the daemon of a node stays without an end, with little left to pass on.
_PASS_ON_LOST = 0.3
# Where our own output is full, and its reader has to take something first. After a program's end it
# has `timeouts.grace`.
_UNREAD = 5.0
_LOOK = 0.1  # seconds between two looks at that
_NAMED = 8  # silent nodes named in one line


class Ending(Part):
    """The end of one attempt."""

    _outcome: Outcome | None = None
    _late = False  # whether only silent nodes have not left yet
    _passed = -1  # bytes that the launchers had written when that changed last,
    _moved = 0.0  # and when that was

    def __init__(self, shared: Shared, verdict: Verdict) -> None:
        super().__init__(shared)
        self._verdict = verdict

    def begin(self, outcome: Outcome, running: bool) -> None:
        """Stop what still runs on all nodes at once, then release every node with the outcome."""
        self._outcome = outcome
        if not running:
            self._release()
            return
        grace = self._spec.timeouts.grace
        for node in (self._topology.me, *self._peers.alive()):
            self._state.enter(Phase.ENDING, node)
        self._talk.tell_all(messages.Stop(0 if self._state.force else grace))
        self._talk.expect(messages.Stopped, grace + KILL_MARGIN, self._release_failed_ranks)

    def force(self) -> None:
        """Force stop: wait neither for the grace nor for silent nodes."""
        if self._state.force:
            return
        self._state.force = True
        if self._talk.is_open(messages.Stopped):
            self._talk.tell_all(messages.Stop(0))
        if self._passed >= 0:
            self.launchers_gone()
        if self._late:
            self._talk.end(messages.Goodbye)

    def _release_failed_ranks(self) -> None:
        # Supervisors of failed ranks stay until now: when one leaves, the launcher's daemon passes
        # nothing on.
        self._talk.tell_all(messages.ReleaseFailedRanks())
        # The ranks' last output is still on its way through these daemons, so they are not told to
        # end.
        self._machine.act(actions.AwaitLaunchers())
        self._passed = 0
        self._moved = self._machine.now
        self._machine.act(actions.CheckOutputProgress())

    def progress(self, written: int, read: bool) -> None:
        """What the launchers have written so far, and whether our output has room."""
        now, before = self._machine.now, self._passed
        if before < 0 or self._state.is_released:
            return  # an earlier question's answer
        self._passed = written
        if written != before:
            self._moved = now
        elif now - self._moved >= (self._pass_on() if read else self._unread()):
            self.launchers_gone()
            return
        self._machine.after(
            _LOOK, lambda: self._machine.act(actions.CheckOutputProgress()), "launchers"
        )

    def _pass_on(self) -> float:
        """Seconds in which the launcher has to pass on something."""
        lost = any(peer.lost for peer in self._peers.values())
        return _PASS_ON_LOST if lost else _PASS_ON

    def _unread(self) -> float:
        """Seconds in which the reader of our output has to take something."""
        failed = self._outcome is not None and self._outcome.program
        return max(_UNREAD, self._spec.timeouts.grace) if failed else _UNREAD

    def launchers_gone(self) -> None:
        """The launchers have passed on all output, or they pass on nothing."""
        self._machine.drop("launchers")
        if not self._state.is_released:
            self._release()

    def _release(self) -> None:
        assert self._outcome is not None
        self._outcome = self._verdict.conclude(self._outcome)
        release = messages.Release(**vars(self._outcome))
        for node, peer in self._peers.items():
            self._talk.tell(node, release)
            if not peer.lost:
                self._state.enter(Phase.RELEASED, node)
        self._state.enter(Phase.RELEASED)
        self._talk.note(self._topology.me, messages.Goodbye)
        # Wait for the answer: a message that was only sent is lost if its connection ends.
        self._talk.expect(messages.Goodbye, KILL_MARGIN, self._await_the_silent)

    def arrive(self, node: int) -> None:
        """A node of an elastic job has answered only now. Before the others are told the outcome,
        it is one of them."""
        if self._state.is_released and self._outcome is not None:
            self._machine.act(actions.Send(node, messages.Release(**vars(self._outcome))))
            self._state.enter(Phase.RELEASED, node)

    def left(self, node: int) -> None:
        """It has got the outcome. If none was told, it is lost when its session ends."""
        if self._state.is_released:
            self._state.enter(Phase.ENDED, node)
            del self._peers[node]
            self._talk.note(node, messages.Goodbye)

    def _await_the_silent(self) -> None:
        nodes = self._topology.nodes
        silent = [
            nodes[node].name
            for node in self._peers.alive()
            if not self._talk.has_said(node, messages.Goodbye)
        ]
        if not silent or self._state.force:
            self._end()
            return
        # A frozen node may wake again; it should then learn how the job ended.
        limit = heartbeat.patience(self._spec.timeouts.heartbeat, len(self._topology.nodes))
        self._machine.log(
            f"EP618 the result is known; waiting {limit:.0f}s at most for {some(silent, _NAMED)} to"
            " receive it"
        )
        self._late = True
        self._talk.expect(messages.Goodbye, limit, self._end)

    def _end(self) -> None:
        assert self._outcome is not None
        self._state.end(self._outcome)
