"""The team: the nodes that work in an attempt, and what one attempt leaves to the next one about
each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

from entrypoint.base.cause import REASON, Exclusion
from entrypoint.base.errors import HostError
from entrypoint.base.model import Outcome, Topology
from entrypoint.base.text import count, one_line
from entrypoint.base.values import field, frozen, replace
from entrypoint.job.messages import EXCLUDED

FAULTS = 2  # failures to blame on a node that never works again
_BLAMED = "elsewhere"  # what a cause says of a retry if its node is to blame
_ABSENT = "it did not answer the roll call in time"


def without_leader(topology: Topology) -> str:
    """Return why the loss of the leader ends an attempt, for the end of a sentence; "" if that is
    plain."""
    why = "; no spare leads instead: if it is only cut off, the job would run twice"
    return why if topology.spares else ""


@frozen
class Team:
    """The nodes that work, in the order of the places that they have in the job; what is held
    against nodes, carried from one attempt to the next; and who was there when the last one ended.
    """

    nodes: tuple[int, ...]
    # Who was there when the last attempt ended, or all: only these are waited for.
    expected: Set[int]
    faults: Mapping[int, int] = field(default_factory=dict)
    # Nodes that were replaced, or will be, and why.
    reasons: Mapping[int, str] = field(default_factory=dict)
    # Those of them that have left, in this attempt or the last one; whether soon after the start.
    left: Mapping[int, bool] = field(default_factory=dict)
    # As in earlier.EarlierAttempts.
    may_run: Mapping[int, tuple[float, bool]] = field(default_factory=dict)

    @classmethod
    def planned(cls, topology: Topology) -> Team:
        """Return the team of the first attempt: the first nodes."""
        return cls(tuple(range(topology.working)), frozenset(range(len(topology.nodes))))

    def lose(self, node: int, reason: str) -> Team:
        """Return the team after the loss of a node, which the next attempt replaces."""
        return replace(self, reasons={**self.reasons, node: reason})

    def leave(self, node: int, reason: str, is_early: bool) -> Team:
        """Return the team that does without a node, which was told to leave, and is not waited
        for."""
        left = {**self.left, node: is_early}
        return replace(self.lose(node, reason), expected=self.expected - {node}, left=left)

    def without(self, lost: Mapping[int, str], there: Set[int]) -> Team:
        """Return the team that the next attempt begins with. `lost`: nodes that were lost, also
        while this one ended, and why; `there`: the others."""
        team = self
        for node, reason in lost.items():
            if node in self.nodes and node not in self.reasons:
                team = team.lose(node, reason)
        left = {node: early for node, early in self.left.items() if node in lost}
        return replace(team, expected=there, left=left)

    def blame(self, topology: Topology, outcome: Outcome) -> Team:
        """Return the team after an attempt that failed."""
        cause = outcome.cause
        if cause is None or cause.retry != _BLAMED or not cause.node or cause.certainty != "high":
            return self
        node = next((node for node in self.nodes if topology.name(node) == cause.node), 0)
        return self.fault(node, outcome.reason)

    def fault(self, node: int, reason: str) -> Team:
        """Return the team after a failure that this node is to blame for. The leader's own node
        stays in its place: the other nodes are called from there."""
        if not node or node in self.reasons:
            return self
        blamed = replace(self, faults={**self.faults, node: self.faults.get(node, 0) + 1})
        return blamed if blamed.can_work(node) else blamed.lose(node, reason)

    def can_work(self, node: int) -> bool:
        """Return whether this node may ever work again."""
        return not node or self.faults.get(node, 0) < FAULTS

    def is_enough(self, ready: Collection[int]) -> bool:
        """Return whether these nodes, which are ready, can fill all places. The first one is the
        leader's."""
        return 0 in ready and sum(map(self.can_work, ready)) >= len(self.nodes)

    def awaits(self, topology: Topology, here: Collection[int], ready: Iterable[int]) -> bool:
        """Return whether the roll call waits for others than those that are here, if they are
        enough: for those that are expected, and for one that may work rather than one that was
        replaced."""
        if not all(node in here for node in self.expected):
            return True
        if sum(node not in self.reasons for node in ready) >= len(self.nodes):
            return False
        absent = (node.rank for node in topology.nodes if node.rank not in here)
        return any(node not in self.reasons and self.can_work(node) for node in absent)

    def best(self, able: Collection[int]) -> set[int]:
        """Return those of these nodes, which can work, that are to: whoever has worked before, then
        a spare, and the one that was replaced last at the very last."""
        stay = {node for node in self.nodes if node in able and node not in self.reasons}
        replaced = list(self.reasons)
        others = sorted(
            {*able} - stay,
            key=lambda node: (1 + replaced.index(node) if node in self.reasons else 0, node),
        )
        return {*stay, *others[: len(self.nodes) - len(stay)]}

    def choose(self, topology: Topology, ready: Iterable[int], unready: Mapping[int, str]) -> Team:
        """Return the team of the next start, out of the nodes that are ready. `unready`: why others
        are not.

        Raises HostError if they are too few.
        """
        able = [node for node in sorted(ready) if self.can_work(node)]
        if len(able) < len(self.nodes):
            raise HostError(
                f"EP622 only {count(len(able), 'node')} of the {len(self.nodes)} that are needed"
                " can work",
                "; ".join(f"{topology.name(node)}: {why}" for node, why in self.reasons.items()),
                "start the job on other nodes, or give it more spares",
            )
        chosen = self.best(able)
        free = iter(sorted(chosen.difference(self.nodes)))
        nodes = tuple(node if node in chosen else next(free) for node in self.nodes)
        dropped = {node: unready.get(node, _ABSENT) for node in self.nodes}
        reasons = {**dropped, **self.reasons}
        reasons = {node: why for node, why in reasons.items() if node not in nodes}
        return replace(self, nodes=nodes, reasons=reasons)

    def excluded(self, topology: Topology) -> tuple[Exclusion, ...]:
        """Return the nodes that were replaced, for the result."""
        return tuple(
            Exclusion(topology.nodes[node].label, topology.nodes[node].host, one_line(why, REASON))
            for node, why in sorted(self.reasons.items())[:EXCLUDED]
        )

    @property
    def replaced(self) -> tuple[tuple[int, int], ...]:
        """The places that other nodes have than the planned ones, and these nodes."""
        return tuple((place, node) for place, node in enumerate(self.nodes) if place != node)
