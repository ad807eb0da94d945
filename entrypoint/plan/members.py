"""What the nodes answer at the roll call: assumed before it, completed and looked at after it."""

from __future__ import annotations

from entrypoint import __version__, interfaces
from entrypoint.model import Facts, Interface, Members, NodeReport, Topology
from entrypoint.values import replace

_CLOCKS = 120.0  # seconds that a node's clock may be off before it is worth a word


def assume_members(topology: Topology, facts: Facts) -> Members:
    """What every node would answer if all were like this one: for a dry run, and before the roll call."""
    found = interfaces.names(facts.interfaces)
    return Members(
        tuple(
            NodeReport(node.rank, node.slots, __version__, facts.mpi, node.where, interfaces=found)
            for node in topology.nodes
        ),
        assumed=len(topology.nodes) > 1,
    )


def with_interface(members: Members, rank: int, interface: Interface | None) -> Members:
    """The members, with the interface over which the roll call came to this node."""
    answers = [replace(each, interface=interface) if each.rank == rank else each for each in members.reports]
    return replace(members, reports=tuple(answers))


def clock_warnings(topology: Topology, members: Members) -> list[str]:
    """A line if clocks are minutes apart: the job runs, but its logs, certificates and new-file checks lie."""
    apart = [
        f"{node.host} is {abs(report.clock):.0f}s {'ahead' if report.clock > 0 else 'behind'}"
        for node, report in zip(topology.nodes, members.reports, strict=True)
        if abs(report.clock) > _CLOCKS
    ]
    if not apart:
        return []
    do = f"set the clocks of the machines by NTP; if all others are named, see {topology.leader.host}'s first"
    return [f"warning: clocks differ from {topology.leader.host}'s | {', '.join(apart)} | {do}"]
