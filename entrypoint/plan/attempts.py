"""The plan of one attempt: its number, and the port that the roll call has chosen for it."""

from __future__ import annotations

from entrypoint.model import EnvVar, LaunchPort, Topology
from entrypoint.plan.ports import with_port
from entrypoint.spec import JobSpec
from entrypoint.values import replace


def with_attempt(topology: Topology, attempt: int) -> Topology:
    """Return the topology of this attempt; the same one if that is known."""
    return topology if attempt == topology.attempt else replace(topology, attempt=attempt)


def with_chosen(spec: JobSpec, wanted: LaunchPort | None, port: int) -> JobSpec:
    """Return the spec with the port that the roll call has chosen, 0 for the planned one; the same
    spec if that is known."""
    if not port or wanted is None or port == wanted.first:
        return spec
    return with_port(spec, wanted.path, port)


def variables(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """Return the variables by which ranks know the attempt, if there can be more than one. torch's
    launchers set the second one themselves."""
    if not spec.restarts.most:
        return ()
    origin = str(spec.source("restarts"))
    return (
        EnvVar("ENTRYPOINT_ATTEMPT", str(topology.attempt), origin),
        EnvVar("TORCHELASTIC_RESTART_COUNT", str(topology.attempt - 1), origin, default=True),
    )
