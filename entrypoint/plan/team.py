"""The nodes of a job with spares that work in an attempt, as its launcher sees them."""

from __future__ import annotations

from collections.abc import Collection

from entrypoint.errors import ConfigError
from entrypoint.model import Launch, Members, Topology
from entrypoint.spec import JobSpec
from entrypoint.values import replace


def team_of(topology: Topology, replaced: Collection[tuple[int, int]] = ()) -> tuple[int, ...]:
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


def is_team(topology: Topology, replaced: Collection[tuple[int, int]]) -> bool:
    """Whether `team_of` has an answer."""
    if not replaced:  # so it is in every message but a start, which a large job has many of
        return True
    try:
        return bool(team_of(topology, replaced))
    except ValueError:
        return False


def working(
    topology: Topology, members: Members, replaced: Collection[tuple[int, int]] = ()
) -> tuple[Topology, Members]:
    """Return the topology and the members of a job that has only the nodes of this team, counted
    anew. On a spare, it is one of them instead of the last."""
    if not topology.spares:
        return topology, members
    team = team_of(topology, replaced)
    if topology.me not in team:
        team = (*team[:-1], topology.me)
    nodes = [
        replace(topology.nodes[node], rank=place, index=place) for place, node in enumerate(team)
    ]
    reports = [replace(members.reports[node], rank=place) for place, node in enumerate(team)]
    return (
        replace(topology, nodes=tuple(nodes), me=team.index(topology.me), spares=0),
        replace(members, reports=tuple(reports)),
    )


def check_launch(spec: JobSpec, topology: Topology, launch: Launch, launcher: str) -> None:
    """Raise ConfigError if this launcher gives each node a fixed place."""
    if topology.spares and launch.start.needs_rank_table:
        reason = f"{launcher} takes each node's ranks from a rank table"
        raise ConfigError(
            f"EP211 this job cannot have spares ({spec.source('spares')})", reason, "remove spares"
        )
