"""What an attempt of a job differs in: its number, and the nodes of a job with spares that work in
it."""

from __future__ import annotations

from collections.abc import Collection

from entrypoint.model import EnvVar, Members, Topology
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


def attempt_env(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """Return the variables by which ranks know the attempt, if there can be more than one. torch's
    launchers set the second one themselves."""
    if not spec.restarts.most:
        return ()
    origin = str(spec.source("restarts"))
    return (
        EnvVar("ENTRYPOINT_ATTEMPT", str(topology.attempt), origin),
        EnvVar("TORCHELASTIC_RESTART_COUNT", str(topology.attempt - 1), origin, default=True),
    )
