"""The answers of the nodes at the roll call: assumed before it, completed and checked after it;
and the nodes that work in an attempt of a job with spares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from entrypoint import __version__
from entrypoint.base import interfaces
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Facts, Members, NodeReport, Topology
from entrypoint.base.text import some
from entrypoint.base.values import replace
from entrypoint.plan.limits import CLOCKS_OF_RUN, clocks_apart
from entrypoint.spec import JobSpec

Replaced = tuple[tuple[int, int], ...]  # places of the job, each with the node that has it
_SHOWN = 4  # interfaces in one line


def assume_members(topology: Topology, facts: Facts, interface: str = "") -> Members:
    """Return what every node would answer if all were like this one: for a dry run, and before the
    roll call."""
    names = interfaces.names(facts.interfaces)
    chosen = interfaces.pick(facts.interfaces, interface) if interface else None
    # Nodes of a loopback address share this node's CPUs if it has one, too.
    local = {
        node.rank: node.slots for node in topology.nodes if (node.address or "").startswith("127.")
    }
    neighbours = () if local.pop(topology.me, None) is None else tuple(local.values())
    return Members(
        tuple(
            NodeReport(
                node.rank,
                node.slots,
                __version__,
                facts.mpi,
                node.where,
                interface=chosen,
                interfaces=names,
                cpu_pool=facts.cpu_pool if node.rank == topology.me else "",
                neighbours=neighbours if node.rank == topology.me else (),
            )
            for node in topology.nodes
        ),
        assumed=topology.has_peers,
    )


def with_interface(
    members: Members, rank: int, spec: JobSpec, facts: Facts, addresses: Iterable[str]
) -> Members:
    """The members, with this node's interface: the one asked for, else the one with the roll call's
    addresses here."""
    chosen, wanted = interfaces.of_address(facts.interfaces, addresses), spec.network.asked
    if wanted:
        chosen = interfaces.pick(facts.interfaces, wanted, chosen)
    return with_report(members, rank, interface=chosen)


def with_neighbours(members: Members, works: Callable[[int], bool]) -> Members:
    """The members, each with the slots of the others that share its CPUs, of those that work."""
    pools: dict[str, list[NodeReport]] = {}
    for report in members.reports:
        if report.cpu_pool and works(report.rank):
            pools.setdefault(report.cpu_pool, []).append(report)
    reports = [
        replace(report, neighbours=tuple(other.slots for other in pool if other is not report))
        if len(pool := pools.get(report.cpu_pool, [])) > 1
        else report
        for report in members.reports
    ]
    return replace(members, reports=tuple(reports))


def with_report(members: Members, rank: int, **changes: Any) -> Members:
    """The members, with changes to the report of one of them."""
    reports = list(members.reports)
    reports[rank] = replace(reports[rank], **changes)
    return replace(members, reports=tuple(reports))


def interface_words(spec: JobSpec, members: Members) -> list[str]:
    """Return what all nodes' traffic takes where one was asked for; a warning where some have IPv4
    there and others IPv6."""
    if not spec.network.asked:
        return []
    addresses = list(
        dict.fromkeys(
            f"{it.name} {it.network}" for report in members.reports if (it := report.interface)
        )
    )
    detail = some(addresses, _SHOWN)
    if len({":" in address for address in addresses}) > 1:
        hint = (
            "give all nodes addresses of one kind there, or choose by network, such as 10.0.0.0/24"
        )
        return [
            f"warning: EP407 some nodes have IPv4 on the interface and others IPv6 | {detail} |"
            f" {hint}"
        ]
    return [f"network interface: {detail}"]


def check_networks(
    spec: JobSpec,
    facts: Facts,
    topology: Topology,
    members: Members,
    replaced: Replaced,
) -> None:
    """Refuse what means another network on another node, where this node has both: Open MPI would
    wait forever.

    Interfaces in networks that a router joins are no mistake. Raises ConfigError.
    """
    local, wanted = members.reports[topology.me].interface, spec.network.asked
    if members.assumed or local is None or not wanted:
        return
    others = {it.network for it in facts.interfaces if it.name != local.name}
    for rank in team_of(topology, replaced):  # spares are not a part of the job
        node, remote = topology.nodes[rank], members.reports[rank].interface
        if remote and remote.network != local.network and remote.network in others:
            raise ConfigError(
                f"EP404 network.interface {wanted} means two networks"
                f" ({spec.source('network.interface')})",
                f"{local.name} {local.network} on {topology.this.name},"
                f" {remote.name} {remote.network} on {node.name}",
                f"choose by network, such as {local.network}",
            )


def clock_warnings(topology: Topology, members: Members) -> list[str]:
    """A line if clocks are minutes apart: the job runs, but its logs, certificates and new-file
    checks lie."""
    apart = clocks_apart({report.rank: report.clock for report in members.reports}, CLOCKS_OF_RUN)
    if not apart:
        return []
    differences = ", ".join(
        f"{topology.name(rank)} is {difference}" for rank, difference in apart.items()
    )
    return [f"warning: EP424 clocks differ | {differences} | set the clocks of these hosts by NTP"]


def team_of(topology: Topology, replaced: Replaced) -> tuple[int, ...]:
    """Return the nodes that work, by their places in the job: the first ones, but for the places
    that other nodes have.

    Raises ValueError if a job with these nodes cannot have this team.
    """
    if replaced and not topology.spares:
        raise ValueError("this job has no spares")
    team = list(range(topology.working))
    for place, node in replaced:
        if not (0 < place < len(team) and 0 < node < len(topology.nodes)):
            raise ValueError(f"place {place}, node {node}")
        team[place] = node
    if len({*team}) < len(team):
        raise ValueError("a node has two places")
    return tuple(team)


def is_team(topology: Topology, replaced: Replaced) -> bool:
    """Return whether `team_of` has an answer."""
    if not replaced:  # so it is in every message but a start, which a large job has many of
        return True
    try:
        return bool(team_of(topology, replaced))
    except ValueError:
        return False


def working(topology: Topology, members: Members, replaced: Replaced = ()) -> Topology:
    """Return the topology of a job that has only the nodes of this team, counted anew, with what
    each has reported. On a spare, it is one of them instead of the last."""
    slots = [report.slots for report in members.reports]
    if not topology.spares and slots == [node.slots for node in topology.nodes]:
        return replace(topology, members=members)  # as planned: so it is in most large jobs
    team = team_of(topology, replaced)
    if topology.me not in team:
        team = (*team[:-1], topology.me)
    nodes = [
        replace(
            topology.nodes[node],
            rank=place,
            index=topology.nodes[place].index,
            slots=slots[node],
        )
        for place, node in enumerate(team)
    ]
    reports = [replace(members.reports[node], rank=place) for place, node in enumerate(team)]
    return replace(
        topology,
        nodes=tuple(nodes),
        me=team.index(topology.me),
        spares=0,
        members=replace(members, reports=tuple(reports)),
    )
