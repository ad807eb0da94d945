"""The plan of one attempt: its number, and the port that the roll call has chosen for it."""

from __future__ import annotations

from entrypoint.model import EnvVar, Plan, Topology
from entrypoint.plan.ports import with_port
from entrypoint.spec import JobSpec
from entrypoint.values import replace


def chosen(spec: JobSpec, plan: Plan, attempt: int, port: int) -> tuple[JobSpec, Topology]:
    """Return the spec and the topology of this attempt: those of the plan itself, unless its port
    or number are others. `port`: 0 for the planned one."""
    wanted, topology = plan.launch.port, plan.topology
    if port and wanted is not None and port != wanted.first:
        spec = with_port(spec, wanted.path, port)
    return spec, topology if attempt == topology.attempt else replace(topology, attempt=attempt)


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
