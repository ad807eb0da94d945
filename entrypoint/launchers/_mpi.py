"""Common parts of the MPI launchers: worker-0 starts a daemon on each node, which starts the ranks
through rank.sh."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.errors import Problem
from entrypoint.base.kept import RANK, KeptForm, RanksForm
from entrypoint.base.model import File, Launch, LaunchRanks, Program, Topology, usual
from entrypoint.base.rankkind import UNDER_DAEMONS
from entrypoint.base.text import brief
from entrypoint.base.values import replace
from entrypoint.launchers._common import file, meeting_port, place, problem, rank_script
from entrypoint.spec import JobSpec

# Variables of ModelArts' run_mpi.sh, which hold several options each.
OPTIONS = ("OPENMPI_BIND_ARGS", "OPENMPI_X_ARGS", "OPENMPI_MCA_ARGS")


def launch(
    spec: JobSpec,
    topology: Topology,
    variables: Mapping[str, str],
    *numbers: str,
    ranks: LaunchRanks,
    passes_fd: bool = False,
) -> Launch:
    """Return the common parts of every node's launch.

    `variables` maps the names of a rank's numbers to those of the daemon; `numbers` name the
    variables that may have a rank's number; `ranks` are the MPI's own settings;
    `passes_fd` as in `rank_script`.
    """
    output = spec.logs.output(topology, RANK, is_one_of_several=are_mixed(spec, topology))
    output = spec.logs.copied(topology, replace(output, tags=ranks.tagged))
    form = KeptForm(
        output, spec.timeouts.grace, by_mpi=True, nested=RANK, steps=spec.stall.line or ""
    )
    each = tuple(variables.items())
    return Launch(
        files=(rank_script(topology, passes_fd),),
        needs_roll_call=topology.has_peers,
        completion="leader",
        takes_args=True,
        ranks=replace(
            ranks,
            form=RanksForm(form, numbers, topology.workdir, each=each, colons=True),
            kind=UNDER_DAEMONS,
            count=world_size(spec, topology),
            agents=topology.has_peers and topology.is_leader,
            env=(*place(spec, topology), *ranks.env),
            env_of_each=tuple(
                usual(name, f"${source}", f"each rank's own, from {ranks.name}")
                for name, source in variables.items()
            ),
        ),
        port=meeting_port(spec, topology, "MASTER_PORT", needed=False),
    )


def refused(spec: JobSpec, launcher: str, settled: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each option of the spec that the launcher sets; `settled` names the
    fields for them."""
    words = {f"env.{name}": spec.option(name).split() for name in OPTIONS}
    arguments = [
        (path, argument, argument.lstrip("-").partition("=")[0])
        for path, words in {**words, "launcher_args": spec.launcher_args}.items()
        for argument in words
        if argument.startswith("-")
    ]
    return [
        problem(
            spec,
            path,
            f"EP119 -{option} is set by launcher {launcher}",
            f"`{brief(argument)}`",
            f"set {settled[option]}",
        )
        for path, argument, option in arguments
        if option in settled
    ]


def led(
    launch: Launch, topology: Topology, program: Program, entry: str, after: str = ""
) -> Launch:
    """Return the leader's launch: with the MPI's own program, the hostfile, and the script that
    starts a daemon on another node instead of ssh. `after` follows the daemon's command."""
    files = [hostfile(topology, entry), *launch.files]
    if topology.has_peers:
        script = file("mpirun/agent.sh.j2", {"run_dir": topology.run_dir, "after": after})
        files.append(replace(script, name="agent"))
    return replace(launch, programs=(program,), files=tuple(files))


def are_mixed(spec: JobSpec, topology: Topology) -> bool:
    """Return whether several ranks, or a rank and daemons, write to one stream, so that lines could
    mix."""
    return topology.has_peers or world_size(spec, topology) > 1


def hostfile_path(spec: JobSpec, topology: Topology) -> str:
    """Return the path of the user's hostfile, or of ours."""
    return spec.mpi.hostfile or f"{topology.run_dir}/hostfile"


def hostfile(topology: Topology, entry: str, mode: int = 0o600) -> File:
    """Return our hostfile: an entry of this form for each node, with the slots that it has
    counted."""
    hosts = topology.hosts if topology.has_peers else ("localhost",)
    nodes = [
        entry.format(host, node.slots).split()
        for host, node in zip(hosts, topology.nodes, strict=True)
    ]
    return file("mpirun/hostfile.j2", {"nodes": nodes}, mode)


def world_size(spec: JobSpec, topology: Topology) -> int:
    """Return the world size: mpi.np, or the sum of the slots that the nodes counted."""
    return spec.mpi.np or topology.world_size
