"""The gates of the nodes as the leader knows them: which it waits for before it starts an attempt,
and which nodes have not passed."""

from __future__ import annotations

from collections.abc import Callable, Container, Set

from entrypoint.job import actions, messages
from entrypoint.job.failure import unhealthy
from entrypoint.job.state import JobState
from entrypoint.model import Members, NodeReport, Outcome
from entrypoint.values import replace

MARGIN = 10.0  # seconds after a gate's own limits until its result is not awaited any more


class Gates:
    """What nodes report of the checks that their answers to the roll call have announced."""

    def __init__(self, state: JobState, look: Callable[[], None]) -> None:
        """`look`: asks again whether all nodes are there."""
        self._state = state
        self._machine = state.scheduler
        self._limit = state.spec.gate.limit + MARGIN
        self._look = look
        # node whose result is awaited -> until when, the oldest first: one deadline is for all
        self._awaited: dict[int, float] = {}
        # node -> its answer to the roll call, once it has reported the result that this announced
        self._reported: dict[int, NodeReport] = {}
        self._failed: dict[int, Outcome] = {}

    def is_open(self, nodes: Container[int] | None = None) -> bool:
        """Whether a result is awaited, of these nodes; None: of any."""
        return any(nodes is None or node in nodes for node in self._awaited)

    @property
    def failed(self) -> Set[int]:
        """The nodes that have not passed."""
        return self._failed.keys()

    def has_announced(self, node: int) -> bool:
        """Whether a peer has announced a result that it has not reported yet."""
        peer = self._state.peers.get(node)
        if peer is None or not peer.report.checking:
            return False
        return self._reported.get(node) is not peer.report

    def answered(self, report: NodeReport) -> None:
        """A node has answered the roll call, this one included; what it said before is void."""
        self.forget(report.rank)
        if report.checking:
            self._awaited[report.rank] = self._machine.now + self._limit
            self._wait()
            self._show(report.rank, "it checks itself")

    def forget(self, node: int) -> None:
        """A node is lost, and answers again if it comes back."""
        self._failed.pop(node, None)
        self._close(node)

    def checking(self, node: int, message: messages.Checking) -> None:
        """Show what a node's gate waits for."""
        if node in self._awaited:
            self._show(node, message.why)

    def checked(self, node: int, message: messages.Checked) -> bool:
        """A node's gate has ended. Return whether that is known too late: the node is not healthy,
        starts nothing, and the roll call has ended without its result."""
        if peer := self._state.peers.get(node):
            self._reported[node] = peer.report
        if node in self._awaited:
            self._close(node)
            self._show(node, "")
            if message.problem:
                self._failed[node] = unhealthy(message.problem)
            self._look()
        elif message.problem:  # it starts nothing then
            name = self._state.topology.name(node)
            self._machine.log(
                f"EP466 {name} reported a failed health check after the start: {message.problem}"
            )
            return not self._state.is_calling and self._state.works(node)
        return False

    def members(self, own: NodeReport) -> Members:
        """Return what is known of all nodes, of which those are not ready that have not passed.
        `own`: this node's report."""
        state = self._state
        reports = {report.rank: report for report in state.plan.members.reports}
        reports |= state.peers.reports() | {state.me: own}
        for node, outcome in self._failed.items():
            reports[node] = replace(reports[node], not_ready=outcome)
        return Members(tuple(report for _, report in sorted(reports.items())))

    def _wait(self) -> None:
        """Look again when the time of the oldest is over."""
        if self._awaited and self._state.is_calling:
            self._machine.at(next(iter(self._awaited.values())), self._give_up, "gates")

    def _give_up(self) -> None:
        """Await those no longer whose time is over."""
        if not self._state.is_calling:
            return
        for node in [node for node, until in self._awaited.items() if until <= self._machine.now]:
            self._close(node)
            self._show(node, "")
            self._machine.log(
                f"warning: EP466 {self._state.topology.name(node)} has not reported whether it is"
                f" healthy | nothing within {self._limit:.0f}s | see its log; the job starts"
                " without its result"
            )
        self._wait()
        self._look()

    def _close(self, node: int) -> None:
        self._awaited.pop(node, None)

    def _show(self, node: int, why: str) -> None:
        """Show what is waited for. A node says it of itself in its own log."""
        if node != self._state.me:
            self._machine.act(actions.ShowWaiting(self._state.topology.name(node), why))
            self._state.note(node, why)
