"""From the job's outcome to the leader's end: all nodes stop, get the outcome, and leave.

An outcome that nobody could be told is not the outcome. A worker that hears nothing of its leader
ends with 75, and so does a leader that finds, before it has told the outcome or while nobody has
acknowledged it, that its workers may have done so:

    it was suspended for longer than they wait;
    a worker says that it has lost its leader;
    no worker is left, and one of them was silent: who of the two is cut off, neither can know;
    the outcome is a success, and a node that works is lost.

With `success: first`, the success of rank 0 stands in all cases but the first.
"""

from __future__ import annotations

import math

from entrypoint.base.errors import RetryError
from entrypoint.base.model import Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.text import one_line, some
from entrypoint.base.values import replace
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
_LOOK = 0.1  # seconds between two readings of that
_NAMED = 8  # silent nodes named in one line
_REASON = 1000  # characters of an outcome that nobody was told, in the reason of the one instead


class Ending(Part):
    """The end of one attempt."""

    _outcome: Outcome | None = None
    _late = False  # whether only silent nodes have not left yet
    _passed = -1  # bytes that the launchers had written when that changed last,
    _moved = 0.0  # and when that was
    began = math.inf  # when the outcome was decided
    _has_peers = False  # whether there were workers to tell it to,
    _is_told = False  # whether one of them has got it
    _asked = ""  # the answer that all give after this node was suspended; "": it was not
    # The outcome of the workers that have lost this leader, and whether it is the job's now.
    _denied: Outcome | None = None
    _has_given_way = False

    def __init__(self, shared: Shared, verdict: Verdict) -> None:
        super().__init__(shared)
        self._verdict = verdict
        self._unheard: dict[int, Outcome] = {}  # nodes that were silent for too long

    def begin(self, outcome: Outcome, running: bool) -> None:
        """Stop what still runs on all nodes at once, then release every node with the outcome."""
        self._outcome = outcome
        self.began = self._scheduler.now
        self._has_peers = bool(self._peers)
        if not running:
            self._release()
            return
        grace = self._spec.timeouts.grace
        for node in (self._topology.me, *self._peers.alive()):
            self._state.enter(Phase.ENDING, node)
        self._outbox.tell_all(messages.Stop(0 if self._state.force else grace))
        self._outbox.expect(messages.Stopped, grace + KILL_MARGIN, self._release_failed_ranks)

    def force(self) -> None:
        """Force stop: wait neither for the grace nor for silent nodes."""
        if self._state.force:
            return
        self._state.force = True
        if self._outbox.is_open(messages.Stopped):
            self._outbox.tell_all(messages.Stop(0))
        if self._passed >= 0:
            self.launchers_gone()
        self._outbox.end(self._asked)
        if self._late:
            self._outbox.end(messages.Goodbye)

    def _release_failed_ranks(self) -> None:
        # Only now do launchers hear of failed ranks: when the first one leaves, its daemon stops to
        # pass output on.
        self._outbox.tell_all(messages.ReleaseFailedRanks())
        # The ranks' last output is still on its way through these daemons, so they are not told to
        # end.
        self._scheduler.act(actions.AwaitLaunchers())
        self._passed = 0
        self._moved = self._scheduler.now
        self._scheduler.act(actions.CheckOutputProgress())

    def progress(self, written: int, read: bool) -> None:
        """Take the number of bytes that the launchers have written so far, and whether our output
        has room."""
        now, before = self._scheduler.now, self._passed
        if before < 0 or self._state.is_released:
            return  # an earlier question's answer
        self._passed = written
        if written != before:
            self._moved = now
        elif now - self._moved >= self._patience(read):
            self.launchers_gone()
            return
        self._scheduler.after(
            _LOOK, lambda: self._scheduler.act(actions.CheckOutputProgress()), "launchers"
        )

    def _patience(self, read: bool) -> float:
        """Seconds in which the launcher has to pass on something; or, if our output is not read,
        its reader has to take something."""
        if read:
            return _PASS_ON_LOST if any(peer.lost for peer in self._peers.values()) else _PASS_ON
        failed = self._outcome is not None and self._outcome.program
        return max(_UNREAD, self._spec.timeouts.grace) if failed else _UNREAD

    def launchers_gone(self) -> None:
        """The launchers have passed on all output, or they pass on nothing."""
        self._scheduler.drop("launchers")
        if not self._state.is_released and not self._asked:
            self._release()

    def lose(self, node: int, outcome: Outcome) -> None:
        """A node is lost, whose own outcome is this one if it still runs."""
        if self._scheduler.now - self._peers[node].heard > self._peers.limit:
            self._unheard[node] = outcome
        is_needed = self._membership.participants.ends_with(node)
        if self._is_success and is_needed and not self._state.is_released:
            self.deny(outcome)

    def deny(self, outcome: Outcome) -> None:
        """A worker has lost this leader, or all are lost: the outcome is this one."""
        if not self._is_first() or self._peers.may_be_lost(self.began):
            self._denied = self._denied or outcome

    @property
    def _is_success(self) -> bool:
        return self._outcome is not None and not self._outcome.status

    def _is_first(self) -> bool:
        """Return whether the first rank's success is the outcome, whatever one other node does."""
        return self._is_success and self._state.plan.launch.ends_with_first

    def _gives_way(self) -> bool:
        """Take the outcome of workers that have lost this leader; False if they have not."""
        gap = self._peers.suspension(self.began)
        if gap and self._has_peers:
            self._denied = RetryError(gap).outcome
        elif len(self._unheard) > self._is_first() and not self._peers.alive():
            self._denied = self._denied or next(iter(self._unheard.values()))
        if self._denied is None or self._has_given_way:
            return False
        self._has_given_way = True
        denied, before = self._denied, self._outcome.reason if self._outcome else ""
        if before != denied.reason:
            reason = f"{denied.reason} | it was ending: {one_line(before, _REASON)}"
            denied = replace(denied, reason=reason)
        # They boot again, also where the job was asked to stop: the next attempt tells them.
        self._outcome = self._verdict.conclude(denied, None)
        return True

    def _release(self) -> None:
        assert self._outcome is not None
        if self._peers.may_be_lost(self.began) and not self._asked:
            # A worker that has lost this leader says so.
            self._asked = self._outbox.ask_all_they_know(self._release)
            return
        if not self._gives_way():
            self._outcome = self._verdict.conclude(self._outcome, self._state.stop)
        self._outcome = self._state.with_save(self._outcome)
        self._tell(*self._peers)
        for node, peer in self._peers.items():
            if not peer.lost:
                self._state.enter(Phase.RELEASED, node)
        self._state.enter(Phase.RELEASED)
        self._outbox.note(self._topology.me, messages.Goodbye)
        # Wait for the answer: a message that was only sent is lost if its connection ends.
        self._outbox.expect(messages.Goodbye, KILL_MARGIN, self._await_the_silent)

    def _tell(self, *nodes: int) -> None:
        release = messages.Release(**vars(self._outcome))
        for node in nodes:
            self._scheduler.act(actions.Send(node, release))

    def arrive(self, node: int) -> None:
        """A node of an elastic job has answered only now. Before the others are told the outcome,
        it is one of them."""
        if self._state.is_released:
            self._tell(node)
            self._state.enter(Phase.RELEASED, node)

    def left(self, node: int, unsure: bool) -> None:
        """It has got the outcome, which now stands: one that is `unsure` is told so."""
        self._state.enter(Phase.ENDED, node)
        self._is_told = True
        del self._peers[node]
        if unsure:
            self._tell(node)
        self._outbox.note(node, messages.Goodbye)

    def _await_the_silent(self) -> None:
        silent = [
            self._topology.name(node)
            for node in self._peers.alive()
            if not self._outbox.has_said(node, messages.Goodbye)
        ]
        if not silent or self._state.force:
            self._end()
            return
        # A frozen node may wake again; it should then learn how the job ended.
        limit = self._peers.patience
        self._scheduler.log(
            f"EP618 the result is known; waiting {limit:.0f}s at most for {some(silent, _NAMED)} to"
            " receive it"
        )
        self._late = True
        self._outbox.expect(messages.Goodbye, limit, self._end)

    def _end(self) -> None:
        assert self._outcome is not None
        is_another = not self._is_told and self._gives_way()
        if is_another or self._is_success:
            # A silent node reads it after what it was told first, and knows that this one stands.
            self._tell(*self._peers)
        self._state.end(self._outcome)
