"""Nodes that call in, since nothing names the hosts: their meeting point, and their list.

Worker-0 has an address that all others are told, and learns of each as it logs in. From then on the
hosts are known, as those of any other job.
"""

from __future__ import annotations

from collections import Counter

from entrypoint.base.errors import ConfigError
from entrypoint.base.interfaces import ip
from entrypoint.base.model import Facts, Site, Source
from entrypoint.base.values import frozen, replace
from entrypoint.plan.numbering import is_own
from entrypoint.platforms._clues import by_number
from entrypoint.spec import CALL_IN, HostEntry, JobSpec, check_host


@frozen
class Place:
    """A node that has called in: its index, if it was given one; its host name and its address."""

    index: int | None
    name: str
    address: str


def meeting(
    spec: JobSpec, facts: Facts, site: Site
) -> tuple[list[HostEntry], Source, int | None] | None:
    """Return the hosts of a job whose nodes call in, as far as they are known before anybody has
    called; where they do; and this node's index, None if it follows from the names. None if the
    hosts are named, or there is one.

    Raises ConfigError if they are to call in, and it is not known where, or how many there are.
    """
    asked = HostEntry.of(spec.hosts[0]) if spec.hosts else HostEntry("")
    is_asked = asked.name == CALL_IN
    nodes = spec.count + spec.spares if spec.count else site.nodes  # a platform counts all
    if not is_asked and (spec.hosts or site.hosts or spec.elastic or spec.roll_call == "none"):
        return None
    if spec.roll_call == "none":
        raise ConfigError(
            f"EP201 hosts is {CALL_IN}, and roll_call is none",
            "nodes call in by ssh, which a job without a roll call does not have",
            "name all hosts, or leave roll_call out",
        )
    index = site.index if spec.node_rank is None else spec.node_rank
    leader = asked.address or site.leader
    if index is None and leader and is_own(leader, facts):
        index = 0
    if not leader and index == 0:
        leader = facts.hostname
    if nodes > 1 and leader and (is_asked or site.leader or site.nodes):
        # a worker-0 that nothing names has only its own name
        first = HostEntry("worker-0", address=leader) if ip(leader) else HostEntry(leader)
        others = [HostEntry(f"{CALL_IN}-{rank}") for rank in range(1, nodes)]
        return [first, *others], Source("call-in", leader), index
    if is_asked:
        raise _unknown(spec, nodes, leader)
    return None


def with_names(spec: JobSpec) -> JobSpec:
    """Return the spec with a name for each node if they are to call in: for a target that knows its
    nodes. Raises ConfigError if their number is not known."""
    if not spec.hosts or HostEntry.of(spec.hosts[0]).name != CALL_IN:
        return spec
    if not spec.count:
        raise _unknown(spec, 0, "worker-0")
    nodes = range(spec.count + spec.spares)
    return replace(spec, hosts=tuple(f"node-{rank}" for rank in nodes))


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


def places(callers: list[Place]) -> list[Place]:
    """Return all nodes in rank order: those that were given an index have it; the others follow in
    the order of their names."""
    given = {place.index: place for place in callers}
    named = (place for place in callers if place.index is None)
    others = iter(sorted(named, key=lambda place: by_number(place.name)))
    return [given[rank] if rank in given else next(others) for rank in range(len(callers))]


def names(places: list[Place]) -> list[str]:
    """Return the hosts' names: their own, or `node-1` of a node whose own cannot be one, or is
    another one's, too."""
    uses = Counter(place.name.lower() for place in places)
    return [
        f"node-{rank}"
        if check_host(place.name) or ip(place.name) or uses[place.name.lower()] > 1
        else place.name
        for rank, place in enumerate(places)
    ]
