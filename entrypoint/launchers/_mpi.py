"""What the launchers of MPI share: worker-0 starts a daemon on each node, which starts the ranks through rank.sh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint import supervised
from entrypoint.errors import Problem
from entrypoint.launchers._place import place
from entrypoint.model import EnvVar, File, Launch, LaunchRanks, LaunchStart, Members, Topology
from entrypoint.render import render
from entrypoint.spec import JobSpec, logs
from entrypoint.text import brief
from entrypoint.values import replace

_ENV_FILE = "rank.env"


def launch(
    spec: JobSpec,
    topology: Topology,
    members: Members,
    each: Mapping[str, str],
    number: str,
    *options: str,
    ranks: LaunchRanks,
) -> Launch:
    """What every node has. `each` names the variables that tell a rank its numbers, and what the daemon calls them.

    `number` is a rank's number, for a shell; `options` are more for its supervisor; `ranks`: what the MPI itself says.
    """
    lines = logs.options(spec.logs, topology, "{rank}", ranks.tagged, mixed=are_mixed(spec, topology, members))
    return Launch(
        files=(_rank_script(spec, topology, each, number, (*options, *lines)),),
        start=LaunchStart(needs_roll_call=len(topology.nodes) > 1),
        ranks=replace(
            ranks,
            reports="ranks",
            count=world_size(spec, members),
            env=(*place(spec, topology), *ranks.env),
            env_of_each=tuple(
                EnvVar(name, f"${theirs}", f"each rank's own, from {ranks.name}", default=True)
                for name, theirs in each.items()
            ),
            env_file=_ENV_FILE,
        ),
    )


def _rank_script(
    spec: JobSpec, topology: Topology, each: Mapping[str, str], number: str, options: Sequence[str]
) -> File:
    """What the daemon starts for each rank, on whichever node it runs."""
    words = ["--env", f"{topology.run_dir}/{_ENV_FILE}", "--cwd", topology.workdir, "--colons", "escaped"]
    words += ["--linger", f"{spec.timeouts.grace:g}", "--nested", "{rank}"]
    words += ["--each", ",".join(f"{name}={theirs}" for name, theirs in each.items()), *options]
    context = {"host": topology.this.host, "supervisor": supervised.command(topology, "{rank}", *words)}
    return file("rank.sh", {**context, "number": number})


def refused(spec: JobSpec, launcher: str, settled: Mapping[str, str]) -> list[Problem]:
    """A problem for each option in the spec's own that the launcher settles; `settled` says what to set instead."""
    problems = []
    for path in ("mpi.bind_args", "mpi.x_args", "mpi.mca_args", "mpi.extra_args"):
        for word in (spec.value(path) or "").split():
            option = word.lstrip("-").partition("=")[0]
            if word.startswith("-") and option in settled:
                summary, hint = f"EP119 -{option} is set by launcher {launcher}", f"set {settled[option]}"
                problems.append(Problem(spec.source(path).where, path, summary, f"`{brief(word)}`", hint))
    return problems


def agent(topology: Topology, after: str = "") -> File:
    """What starts a daemon on another node, in the place of ssh. `after` follows the daemon's command, for a shell."""
    return file("agent", {"run_dir": topology.run_dir, "after": after}, template="agent.sh")


def file(name: str, context: Mapping[str, Any], mode: int = 0o600, template: str = "") -> File:
    """A file of that name, from its template or another one."""
    origin = f"mpirun/{template or name}.j2"
    return File(name, render(origin, context), origin, mode)


def are_mixed(spec: JobSpec, topology: Topology, members: Members) -> bool:
    """Whether what several ranks, or one and daemons, print comes together, and lines of it could mix."""
    return len(topology.nodes) > 1 or world_size(spec, members) > 1


def hostfile(spec: JobSpec, topology: Topology) -> str:
    """The path of the user's hostfile, else of ours."""
    return spec.mpi.hostfile or f"{topology.run_dir}/hostfile"


def world_size(spec: JobSpec, members: Members) -> int:
    """World size: mpi.np, else the slots that the nodes counted, summed."""
    return spec.mpi.np or sum(report.slots for report in members.reports)
