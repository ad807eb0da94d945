"""Nodes that call in: where they do, since nothing names the hosts, and the list that they make.

Worker-0 has an address that all others are told, and learns of each as it logs in. From then on the
hosts are known, as those of any other job.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts, Site, Source
from entrypoint.base.values import dataclass
from entrypoint.plan.numbering import is_own
from entrypoint.platforms._clues import by_number
from entrypoint.spec import CALL_IN, HostEntry, JobSpec, check_host


@dataclass(frozen=True)
class Meeting:
    """Where the nodes call in, how many there are, and what this one was told of itself."""

    leader: str  # the address of worker-0; its own name on a worker-0 that nothing names
    nodes: int  # spares included
    index: int | None  # of this node; None if it follows from the names
    source: Source  # of the address

    def hosts(self) -> list[HostEntry]:
        """Return the hosts as far as they are known before anybody has called."""
        others = (HostEntry(f"{CALL_IN}-{rank}") for rank in range(1, self.nodes))
        if ip(self.leader):
            return [HostEntry("worker-0", address=self.leader), *others]
        return [HostEntry(self.leader), *others]


@dataclass(frozen=True)
class Place:
    """Who has called in: its index, if it was given one; its host name and its address."""

    index: int | None
    name: str
    address: str


def meeting(spec: JobSpec, facts: Facts, site: Site) -> Meeting | None:
    """Return where the nodes of this job call in; None if its hosts are named, or it has one node.

    Raises ConfigError if they are to call in, and it is not known where, or how many there are.
    """
    asked = HostEntry.of(spec.hosts[0]) if spec.hosts else HostEntry("")
    is_asked = asked.name == CALL_IN
    nodes = (spec.count or site.nodes) + spec.spares
    if not is_asked and (spec.hosts or site.hosts or spec.elastic or spec.roll_call == "none"):
        return None
    index = site.index if spec.node_rank is None else spec.node_rank
    leader = asked.address or site.leader
    if index is None and leader and is_own(leader, facts):
        index = 0
    if not leader and index == 0:
        leader = facts.hostname
    named = site.origins.get("leader", site.platform)
    source = spec.source("hosts") if is_asked else Source("platform", named)
    if nodes > 1 and leader and (is_asked or site.leader or site.nodes):
        return Meeting(leader, nodes, index, source)
    if is_asked:
        raise _unknown(spec, nodes, leader)
    return None


def _unknown(spec: JobSpec, nodes: int, leader: str) -> ConfigError:
    if leader:
        return ConfigError(
            f"EP201 hosts is {CALL_IN}, and the number of nodes is not known",
            f"nodes is {spec.nodes or 'not set'}, spares is {spec.spares}",
            "set nodes to their number, such as 4 (ENTRYPOINT_NODES=4)",
        )
    return ConfigError(
        f"EP201 hosts is {CALL_IN}, and nothing names worker-0",
        "MASTER_ADDR is unset, and so is this node's index",
        f"set MASTER_ADDR, or ENTRYPOINT_HOSTS={CALL_IN}=ADDRESS, to the address of worker-0",
    )


def places(given: Mapping[int, Place], others: list[Place]) -> list[Place]:
    """Return all nodes in rank order: those that were given an index have it; the others follow in
    the order of their names."""
    free = iter(sorted(others, key=lambda place: by_number(place.name)))
    ranks = range(len(given) + len(others))
    return [given[rank] if rank in given else next(free) for rank in ranks]


def names(places: list[Place]) -> list[str]:
    """Return the hosts' names: their own, or `node-1` of a node whose own cannot be one, or is
    another one's, too."""
    own = [place.name.lower() for place in places]
    return [
        place.name
        if check_host(place.name) is None and not ip(place.name) and own.count(own[rank]) == 1
        else f"node-{rank}"
        for rank, place in enumerate(places)
    ]
