"""`check --all` as the leader holds it: once the roll call is over, every node that is there looks at itself.

Whatever ends the check waits until all have answered, or their time is over, so that there is a table in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from entrypoint.job import actions, messages
from entrypoint.job.outbox import Outbox
from entrypoint.job.state import JobState
from entrypoint.model import Outcome
from entrypoint.phases import Phase

MARGIN = 10.0  # seconds after a node's own limit until we do without its answer
_SIGNALLED = 128  # statuses from here on: somebody does not want to wait


class Inquiry:
    """One check of all nodes; a plan without a check needs none. `decide` is told how it ends."""

    def __init__(self, state: JobState, outbox: Outbox, decide: Callable[[Outcome], None]) -> None:
        self._state = state
        self._machine = state.scheduler
        self._draft = state.plan
        self._peers = state.peers
        self._talk = outbox
        self._decide = decide
        self._answers: dict[int, Any] = {}
        self._failed: Outcome | None = None  # what ended the roll call, or came later
        self._is_shown = False

    def begin(self, failed: Outcome | None = None) -> bool:
        """Have every node look at itself, or note what failed meanwhile. False where there is nothing to wait for."""
        check = self._draft.check
        if check is None or self._is_shown or (failed and failed.status >= _SIGNALLED):
            return False
        self._failed = self._failed or failed
        if not self._state.has_entered(Phase.INQUIRY):
            self._state.enter(Phase.INQUIRY)
            self._talk.tell_all(messages.Probe())
            # Later in this step: the loss of a node that ends the wait is itself a failure to be shown.
            then = partial(self._machine.after, 0, self._show)
            self._talk.expect(messages.ProbeResult, check.limit + MARGIN, then)
        return True

    def observed(self, node: int, message: messages.ProbeResult) -> None:
        """Take a node's answer. Raises Invalid if it is none."""
        check = self._draft.check
        assert check is not None
        assert check.read is not None
        self._answers[node] = check.read(message.seen, "probe_result.seen")
        self._talk.note(node, messages.ProbeResult)

    def _show(self) -> None:
        check = self._draft.check
        assert check is not None
        assert check.judge is not None
        self._is_shown = True
        me = self._draft.topology.me
        reports = {me: self._draft.members.reports[me]} | {node: peer.report for node, peer in self._peers.items()}
        made = check.judge(check, self._draft, self._answers, reports, self._failed)
        self._machine.act(actions.Print(made.text))
        self._decide(made.outcome)
