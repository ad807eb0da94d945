"""The plan of a job: all that this node will do, from what was asked for and what is there. Nothing
here has an effect.

`settle` is the way of a value through the package; each module uses only those to its left:

    forms, limits, numbering -> topology, members, cpus -> launch, env -> files, notes -> Plan
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.model import Facts, Members, Plan, Topology
from entrypoint.base.values import replace
from entrypoint.plan.env import (
    env_of_ranks,
    environment,
    network,
    session_env,
    with_env,
    with_installed,
)
from entrypoint.plan.files import rendered, ssh_files
from entrypoint.plan.launch import (
    form_of,
    launch_of,
    launcher_of,
    mode_of,
    without_boot_script,
)
from entrypoint.plan.members import Replaced, assume_members, check_networks, working
from entrypoint.plan.notes import later, warnings
from entrypoint.plan.topology import locate
from entrypoint.spec import JobSpec, for_launcher


def located(spec: JobSpec, facts: Facts) -> tuple[JobSpec, Topology]:
    """Return the topology, as `locate` does, and the spec as the job's launcher reads it."""
    topology = locate(spec, facts)
    return for_launcher(spec, launcher_of(spec, topology)), topology


def settle(
    spec: JobSpec,
    facts: Facts,
    topology: Topology | None = None,
    members: Members | None = None,
    leader_env: Mapping[str, str] | None = None,
    replaced: Replaced = (),
) -> Plan:
    """Return what this node will do.

    `topology` is `locate`'s where it is not given. `members` are assumed to be like this node until
    they have answered. `leader_env` is the spec's env as worker-0 has it, once the roll call
    brought it. `replaced` is as in `team_of`. Raises ConfigError or SpecError when the job
    cannot be planned.
    """
    topology = topology or locate(spec, facts)
    launcher = launcher_of(spec, topology)
    spec = for_launcher(spec, launcher)
    members = members or assume_members(topology, facts, spec.network.asked)
    check_networks(spec, facts, topology, members, replaced)
    places = working(topology, members, replaced)
    launch = launch_of(spec, launcher, topology, places)
    mode, no_roll_call = mode_of(spec, facts, topology, launch, launcher)
    launch, env = with_env(spec, facts, places, launch, leader_env)
    plan = Plan(topology, launcher, launch, env, launch.files, mode, members, no_roll_call)
    return replace(
        plan, files=(*plan.files, *ssh_files(spec, facts, plan)), later=tuple(later(spec, plan))
    )
