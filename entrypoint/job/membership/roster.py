"""The nodes of one attempt: who is there, who works, what each has reported, who was lost; and what
the next attempt is left of that."""

from __future__ import annotations

from collections.abc import Set

from entrypoint.base.model import Members, NodeReport
from entrypoint.base.values import replace
from entrypoint.job.failure import unhealthy
from entrypoint.job.membership.earlier import EarlierAttempts
from entrypoint.job.membership.team import Team
from entrypoint.job.state import JobState


class Roster:
    """The nodes as the leader knows them. Others read it, and tell it what happens by its verbs."""

    # Nodes that are asked before the start.
    asked: Set[int] = frozenset()
    # Nodes that were there when the outcome was known.
    _present: Set[int] = frozenset()
    # Who works: changed by `seat` and by what is held against nodes.
    team: Team

    def __init__(self, state: JobState, team: Team | None) -> None:
        self._state = state
        self.seat(team or Team.planned(state.topology))
        self.earlier = EarlierAttempts(state, self.team.may_run)
        self._own = state.plan.members.reports[state.me]  # this node's report
        # Nodes that were lost after the roll call, or have left, and why.
        self.losses: dict[int, str] = {}
        # Nodes on which nothing runs any more.
        self._stopped: set[int] = set()

    def works(self, node: int) -> bool:
        """Return whether this node works, and is no spare."""
        return node in self._works

    @property
    def here(self) -> set[int]:
        """This node and those that have answered."""
        return {self._state.me, *self._state.peers}

    @property
    def working(self) -> list[int]:
        """The nodes that are there and work, by their places."""
        here = self.here
        return [node for node in self.team.nodes if node in here]

    def absent(self) -> set[int]:
        """The nodes that may come later than the start."""
        nodes = self._state.topology.nodes if self._state.plan.admits_late else ()
        return set(range(len(nodes))) - self.here

    def reports(self) -> dict[int, NodeReport]:
        """Return what the nodes that are there have answered."""
        return {self._state.me: self._own} | self._state.peers.reports()

    def members(self) -> Members:
        """Return what is known of all nodes."""
        reports = {it.rank: it for it in self._state.plan.members.reports} | self.reports()
        return Members(tuple(report for _, report in sorted(reports.items())))

    # -- what happens

    def report(self, report: NodeReport) -> None:
        """A node reports of itself, this one included; what it said before is void."""
        self.losses.pop(report.rank, None)
        self._stopped.discard(report.rank)
        if report.rank == self._state.me:
            self._own = report
        else:
            self._state.peers[report.rank].report = report

    def check(self, node: int, problem: str) -> None:
        """A node has checked itself. `problem`: "" if it is healthy."""
        peer = self._state.peers.get(node)
        report = replace(peer.report if peer else self._own, checking=False)
        if problem:
            report = replace(report, not_ready=unhealthy(problem))
        self.report(report)

    def ask(self, members: Members, all_nodes: bool) -> dict[int, NodeReport]:
        """Return the reports of the nodes that a feature asks: all, or those that work."""
        reports = {self._state.me: members.reports[self._state.me]} | self._state.peers.reports()
        reports = {it: reports[it] for it in reports if all_nodes or self.works(it)}
        self.asked = frozenset(reports)
        return reports

    def lose(self, node: int, why: str, now: float) -> None:
        """A node is lost after the roll call. `why`: "" if that is not held against it."""
        state, works = self._state, self.works(node)
        if state.has_started and works and node not in self._stopped:
            self.earlier.lose(node, now)
        if why:
            self.losses[node] = why
            if state.outcome is None and works:
                self.replace_next(node, why)

    def stop(self, node: int) -> None:
        """A node has ended all that it ran."""
        self._stopped.add(node)

    def depart(self, node: int, why: str, is_early: bool) -> None:
        """A node was told to stop, and leaves the job to the others. `is_early`: soon after the
        start."""
        self.losses[node] = why
        self.team = self.team.leave(node, why, is_early)

    def note_present(self) -> None:
        """The outcome is known: those that are there now are expected in the next attempt."""
        self._present = self.here - self.losses.keys()

    # -- the team

    def seat(self, team: Team) -> None:
        """These nodes work from now on."""
        self.team = team
        self._works = frozenset(team.nodes)

    def replace_next(self, node: int, why: str) -> None:
        """The next attempt is to do without this node, if others wait."""
        self.team = self.team.lose(node, why)

    def fault(self, node: int, why: str) -> None:
        """A node is to blame for a failure of the job."""
        self.team = self.team.fault(node, why)

    def next_team(self) -> Team:
        """Return the team as this attempt leaves it, for the next one."""
        team = self.team.without(self.losses, self._present - self.losses.keys())
        return replace(team, may_run=self.earlier.may_run)
