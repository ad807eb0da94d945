"""The verdict on a failed job: the causes that nodes reported, and what follows from the first."""

from __future__ import annotations

from collections import Counter

from entrypoint.base.cause import Cause
from entrypoint.base.model import Outcome
from entrypoint.base.text import count
from entrypoint.base.values import replace
from entrypoint.job.failure import ProgramExit, by_class
from entrypoint.job.history import follow, no_progress, pays_off
from entrypoint.job.messages import CAUSES, Diagnosis
from entrypoint.job.outbox import Part, Shared

# The program's or its image's fault if all nodes have it; that node's fault if only one has it.
_OF_ALL_OR_ONE = ("gpu-init",)


class Verdict(Part):
    """The causes of one attempt, in the order in which they were reported."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._causes: list[tuple[int, Cause]] = []  # with the node that has reported it
        # nodes that have reported a failed end: the causes of others do not count
        self._failed: set[int] = set()
        self._count: Counter[int] = Counter()

    def add(self, node: int, message: Diagnosis) -> None:
        """A rank or program of this node has failed because of this."""
        cause = message.cause
        self._count[node] += 1
        if self._count[node] <= CAUSES:
            name = self._topology.name(self._place(cause, node))
            self._causes.append((node, replace(cause, node=name)))

    def failed(self, node: int) -> None:
        """A rank or program of this node has ended with another status than 0."""
        self._failed.add(node)

    def _place(self, cause: Cause, reporter: int) -> int:
        """Return the node of a failure: the one that reported it. The leader's own program may run
        on all nodes, as Ray's, and name another one by its address."""
        reports = self._peers.reports() if reporter == self._state.me else {}
        for node, report in reports.items():
            interface = report.interface.address if report.interface else ""
            where = self._topology.nodes[node].where
            if cause.node and cause.node in (where, report.address, interface):
                return node
        return reporter

    def _cause(self) -> Cause | None:
        """Return the cause of the job's failure; None if all that is known is that the program
        failed."""
        from entrypoint.causes.phrase import first_cause, is_known  # only a failure needs it

        causes = [cause for node, cause in self._causes if node in self._failed]
        cause = first_cause(causes)
        if cause is None or not is_known(cause):
            return None
        if cause.slug not in _OF_ALL_OR_ONE:
            return cause
        nodes = {other.node for other in causes if other.slug == cause.slug}
        if len(nodes) == 1 and self._topology.working > 1:  # spares do not run the program
            return replace(cause, blame="node", retry="elsewhere", certainty="high")
        return cause

    def show_last_lines(self, end: ProgramExit) -> None:
        """Log the last lines that a failed program has printed."""
        if end.tail:
            self._scheduler.log(f"last {count(len(end.tail), 'line')} of {end.what}:")
            for line in end.tail:
                self._scheduler.log(f"  | {line}")

    def conclude(self, outcome: Outcome, stop: Outcome | None) -> Outcome:
        """Return the outcome with its cause, and whether the job boots again after this attempt,
        unless somebody asked us to `stop`."""
        if outcome.program and outcome.status:
            outcome = replace(outcome, cause=self._cause())
        spec = self._spec
        outcome = self._membership.participants.conclude(outcome)
        then = self._state.next_history()
        followed = follow(outcome, then, spec.restarts, stop)
        if followed.again and not pays_off(then, spec.restarts):
            return no_progress(outcome, then, spec)
        if followed.again or spec.failures.status == "own":
            return followed
        return by_class(followed)
