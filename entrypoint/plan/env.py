"""The environment of this node's ranks and programs: what the container has, without what is not
theirs, and what the plan adds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from entrypoint.base import interfaces
from entrypoint.base.kept import OWN_STACKS
from entrypoint.base.model import EnvVar, EnvVars, Facts, Launch, NodeReport, Plan, Topology, usual
from entrypoint.base.values import replace
from entrypoint.plan.cpus import share
from entrypoint.plan.numbering import inherited
from entrypoint.spec import JobSpec

# What only concerns the process it was set for, or must not reach a program at all.
_HIDDEN = {
    "ENTRYPOINT_SECRET",
    "ENTRYPOINT_STAGE",
    "ENTRYPOINT_IMAGE_START",
    "_",
    "PWD",
    "OLDPWD",
    "SHLVL",
}


def with_env(
    spec: JobSpec,
    facts: Facts,
    topology: Topology,
    launch: Launch,
    leader_env: Mapping[str, str] | None,
) -> tuple[Launch, EnvVars]:
    """Return the launch as this environment leaves it, and what is added for the ranks.

    `leader_env` is as in `settle`.
    """
    of_spec, origin = (spec.env, "") if leader_env is None else (leader_env, "worker-0's spec")
    given = {*inherited(facts.env), *facts.mpi_params}
    account = [*_account(facts, topology)]
    env = (
        *share(spec, facts, topology, launch, of_spec),
        *account,
        *(
            EnvVar(name, value, f"device {topology.device.kind}", True)
            for name, value in topology.device.env.items()
        ),
        *installed(facts, launch.ranks.name),
        *network(spec, facts, topology.report),
        *launch.ranks.env,
        *(
            EnvVar(name, value, origin or str(spec.source(f"env.{name}")))
            for name, value in of_spec.items()
        ),
        *_own_stacks(spec, {**facts.env, **of_spec}),
        EnvVar("ENTRYPOINT_RUN_DIR", topology.run_dir, topology.origin("run_dir")),
        *_of_attempt(spec, topology),
    )
    launch = replace(
        launch, folders=(*launch.folders, *(var.value for var in account if var.name == "HOME"))
    )
    return _without_set(launch, {*given, *of_spec}, facts), _effective(env, given)


def environment(container_env: Mapping[str, str], extra: EnvVars) -> dict[str, str]:
    """Return the program's environment: the container's, without the entrypoint's own variables
    and those that number a rank, and with those that the plan adds."""
    return {
        name: value for name, value in inherited(container_env).items() if name not in _HIDDEN
    } | {var.name: var.value for var in extra}


def env_of_ranks(facts: Facts, plan: Plan) -> Iterator[bytes]:
    """Yield NAME=VALUE of each variable that this node gives to ranks of an MPI; ranks of others
    have those of their launcher."""
    if plan.launch.ranks.kind.by_daemons:
        of_each = {var.name for var in plan.launch.ranks.env_of_each}
        for name, value in environment(facts.env, plan.env).items():
            if name not in of_each:
                yield f"{name}={value}".encode("utf-8", "surrogateescape")


def installed(facts: Facts, program: str) -> Iterator[EnvVar]:
    """Yield the variables with which a program of an MPI that is not on PATH, or was moved, runs,
    as its own script would set them; none if it runs without."""
    place = facts.installed.get(program)
    if place is None:
        return
    origin = f"{program} in {place.folder}"
    env = facts.env
    path = env.get("PATH", "").split(":")
    known = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    added = [folder for folder in place.libraries if folder not in known]
    if place.folder not in path:
        yield EnvVar("PATH", ":".join(filter(None, (*path, place.folder))), origin)
    if added:
        yield EnvVar("LD_LIBRARY_PATH", ":".join((*added, *known)), origin)
    if place.prefix:
        yield usual("OPAL_PREFIX", place.prefix, origin)


def with_installed(facts: Facts, program: str) -> dict[str, str]:
    """Return the environment in which this program runs."""
    return {**facts.env, **{var.name: var.value for var in installed(facts, program)}}


def session_env(facts: Facts, topology: Topology, launcher: str = "") -> dict[str, str]:
    """Return the environment of what is started for another node: the roll call's session, and the
    daemon of this launcher."""
    # With a shell above it, as this level says, bash leaves the user's ~/.bashrc alone, which may
    # print, or wait. And daemons of nodes that share a machine make and remove each other's files
    # where they have one folder for them.
    container = with_installed(facts, launcher)
    return {
        "ENTRYPOINT_RUN_DIR": topology.run_dir,
        "SHLVL": "1",
        "TMPDIR": f"{topology.run_dir}/tmp",
        **{
            name: container[name]
            for name in ("PATH", "LD_LIBRARY_PATH", "OPAL_PREFIX")
            if container.get(name)
        },
    }


def network(spec: JobSpec, facts: Facts, report: NodeReport) -> list[EnvVar]:
    """Return the interface that libraries take: the configured one, otherwise the roll call's if
    there are several. Gloo would listen where this host's own name leads, which may be loopback, so
    it always gets the roll call's."""
    setting = spec.network.asked
    if not setting and (patterns := spec.mpi.interface):
        origin = str(spec.source("mpi.interface"))
        # Networks are for Open MPI alone; Gloo fails where one of several names is not there.
        names = ["NCCL_SOCKET_IFNAME"] if "/" not in patterns else []
        names += ["GLOO_SOCKET_IFNAME"] if not set(patterns) & set("/,") else []
        return [usual(name, patterns, origin) for name in names]
    origin = str(spec.source("network.interface")) if setting else "the roll call"
    name = report.interface.name if report.interface else ""
    values = {"GLOO_SOCKET_IFNAME": name} if name else {}
    # NCCL and HCCL take a name without `=` for the beginning of one
    if interfaces.of_node(report, setting):
        values |= {"NCCL_SOCKET_IFNAME": f"={name}", "HCCL_SOCKET_IFNAME": f"={name}"}
    addresses = [interface.address for interface in facts.interfaces if interface.name == name]
    if addresses and all(":" in address for address in addresses):
        # Else HCCL, and NCCL under mpirun, look for IPv4 alone.
        values |= {"NCCL_SOCKET_FAMILY": "AF_INET6", "HCCL_SOCKET_FAMILY": "AF_INET6"}
    return [usual(variable, value, origin) for variable, value in values.items()]


def _without_set(launch: Launch, users: Collection[str], facts: Facts) -> Launch:
    """Return the launch without the defaults for which the user has a value, by these names, and
    without the corrections of what the container does not have."""
    programs = [
        replace(
            program,
            env=tuple(
                var
                for var in _effective(program.env, users)
                if not var.corrects or var.name in facts.env
            ),
        )
        for program in launch.programs
    ]
    ranks = replace(launch.ranks, env_of_each=_effective(launch.ranks.env_of_each, users))
    return replace(launch, programs=tuple(programs), ranks=ranks)


def _effective(env: EnvVars, users: Collection[str]) -> EnvVars:
    """Return the variables without the defaults for which the user has a value."""
    return tuple(
        var
        for var in env
        if not var.default
        or not (
            var.name in users
            or (var.chosen_by and any(re.match(var.chosen_by, name) for name in users))
        )
    )


def _account(facts: Facts, topology: Topology) -> Iterator[EnvVar]:
    """Yield a name, and a home that it may write to, for a uid without a passwd entry; none if it
    has one. `getpass.getuser()`, which torch's compiler calls, fails without, and so do caches."""
    if facts.user:
        return
    origin = f"uid {facts.uid} has no passwd entry"
    names = "(LOGNAME|USER|LNAME|USERNAME)$"  # the first that is set counts
    yield usual("USER", f"uid{facts.uid}", origin, chosen_by=names)
    if facts.env.get("HOME", "") in ("", "/"):
        yield EnvVar("HOME", f"{topology.run_dir}-home", origin)


def _own_stacks(spec: JobSpec, env: Mapping[str, str]) -> Iterator[EnvVar]:
    """Yield the variable by which each Python of a rank can print its stack on a signal."""
    if spec.stall.minutes:
        before = env.get("PYTHONPATH", "")
        path = f"{OWN_STACKS}:{before}" if before else OWN_STACKS
        yield EnvVar("PYTHONPATH", path, "stall.minutes")


def _of_attempt(spec: JobSpec, topology: Topology) -> Iterator[EnvVar]:
    """Yield the variables by which ranks know the attempt, if there can be more than one. torch's
    launchers set the second one themselves."""
    most, number = spec.restarts.most, topology.history.number
    if most or number > 1:
        origin = str(spec.source("restarts")) if most else topology.platform
        yield EnvVar("ENTRYPOINT_ATTEMPT", str(number), origin)
        count = str(number - 1)
        yield usual("TORCHELASTIC_RESTART_COUNT", count, origin)
