"""The programs of the launcher that start on this node, and how they are kept; and the decision on
whether the nodes call each other before."""

from __future__ import annotations

from typing import Literal

from entrypoint.base.errors import ConfigError
from entrypoint.base.kept import KeptForm, OutputForm
from entrypoint.base.model import Facts, Launch, Topology
from entrypoint.base.registry import load
from entrypoint.base.values import replace
from entrypoint.launchers._common import planned
from entrypoint.launchers._nested import boot_script
from entrypoint.plan.topology import no_spares
from entrypoint.spec import JobSpec


def without_boot_script(spec: JobSpec) -> tuple[JobSpec, str]:
    """Return the spec without a boot script, such as torchrun.sh, before its command, and the
    launcher that replaces it; "" if there is none."""
    launcher, command = boot_script(spec.command)
    return replace(spec, command=tuple(command)), launcher


def launcher_of(spec: JobSpec, topology: Topology) -> str:
    """Return the name of the launcher: the one asked for; else what platform or device ask for;
    else mpirun for many ranks, and plain for one."""
    default = "mpirun" if topology.world_size > 1 else "plain"
    return spec.launcher or topology.launcher or default


def launch_of(spec: JobSpec, name: str, topology: Topology, places: Topology) -> Launch:
    """Return what the launcher of this name starts. `places`: the topology of the nodes that work.

    Raises ConfigError if there is no program, or if the launcher cannot do what is asked for,
    SpecError if the program is a launcher itself.
    """
    if not any(spec.command[:1]):
        raise ConfigError(
            "EP115 there is no program to run",
            "no command in the spec, none after --",
            "add: -- python train.py, or the spec that names it: --spec job.yaml",
        )
    launch = planned(spec, places, name, load("launchers", name).plan)
    if spec.success != "all":
        launch = _ending_with_first(spec, launch)
    if topology.spares and launch.needs_rank_table:  # which gives each node a fixed place
        raise no_spares(spec, f"{name} takes each node's ranks from a rank table")
    logs_folder = [topology.log_dir] * (spec.logs.files == "ranks")
    return replace(launch, folders=(*launch.folders, *logs_folder))


def mode_of(
    spec: JobSpec, facts: Facts, topology: Topology, launch: Launch, launcher: str
) -> tuple[Literal["exec", "local", "coordinated"], str]:
    """Return what this node does; and the setting by which several nodes hold no roll call, where
    one does.

    Raises ConfigError where that setting meets another one that needs the roll call.
    """
    no_roll_call, nodes = "", len(topology.nodes)
    if spec.calls(nodes):
        return "coordinated", ""
    if nodes > 1:
        no_roll_call = f"roll_call: none ({spec.source('roll_call')})"
        if needy := _needs_roll_call(spec, launch, launcher):
            hint = f"remove roll_call, and give all nodes a secret; or do without {needy}"
            raise ConfigError(f"EP313 {needy} needs the roll call", no_roll_call, hint)
    is_supervised = (
        spec.logs.any
        or spec.stall.any
        or spec.timeouts.job is not None
        or spec.restarts.most
        or spec.restarts.progress
        or spec.notify.url
        or facts.end_hooks
        or getattr(load("platforms", topology.platform), "READS_REASONS", False)
    )
    return "exec" if launch.becomes_program and not is_supervised else "local", no_roll_call


def form_of(launch: Launch, number: int, spec: JobSpec, topology: Topology) -> KeptForm:
    """Return how the keeper treats this launch's program of that number."""
    program, ranks, grace = launch.programs[number], launch.ranks, spec.timeouts.grace
    if ranks.kind.by_daemons:  # an MPI passes the ranks' output on
        output = OutputForm()
        if ranks.tagged:
            output = spec.logs.output(topology, is_one_of_several=True)
        output = replace(output, tags=ranks.tagged, is_of_launcher=True, show="")
        return KeptForm(output, grace, is_launcher=True)
    has_ranks = ranks.kind.in_programs
    rank = "" if program.rank is None else str(program.rank)
    several = topology.this.slots > 1 if has_ranks else len(launch.programs) > 1
    output = spec.logs.output(topology, rank, program.log, several)
    if not has_ranks:  # else each rank has a file
        output = spec.logs.copied(topology, output)
    nested = str(program.rank) if program.rank and not launch.becomes_program else ""
    if launch.becomes_program and topology.me and spec.calls(len(topology.nodes)):
        nested = f"node {topology.me}"
    label = f"[{program.label}] " if program.label else ""
    return KeptForm(
        replace(output, label=label),
        grace,
        is_launcher=launch.forwards,
        nested=nested,
        steps="" if has_ranks else spec.stall.line or "",
    )


def _needs_roll_call(spec: JobSpec, launch: Launch, launcher: str) -> str:
    """Return what cannot do without a roll call on several nodes, as its user knows it; "" for
    nothing."""
    needy = {
        f"launcher {launcher}": launch.needs_roll_call,
        "netcheck.when: before": spec.netcheck.when == "before",
        f"restarts: {spec.restarts.most}": spec.restarts.most > 0,
        f"spares: {spec.spares}": spec.spares > 0,
        "success: first": spec.success == "first",
        "ssh.client: files": spec.ssh.client == "files",
    }
    return next((name for name, needs in needy.items() if needs), "")


def _ending_with_first(spec: JobSpec, launch: Launch) -> Launch:
    """Return the launch of a job that has succeeded when its first rank has.

    Raises ConfigError if nobody knows which one that is.
    """
    is_unknown = launch.completion == "leader" and not launch.ranks.kind.by_launcher
    if is_unknown or spec.elastic:
        raise ConfigError(
            f"EP120 it is not known which rank is the first ({spec.source('success')})",
            f"success: first, {'the launcher starts ranks by ssh' if is_unknown else 'nodes'}",
            f"remove success, or {'ssh.client' if is_unknown else 'nodes'}",
        )
    return replace(launch, ends_with_first=True)
