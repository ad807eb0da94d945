"""Hydra, the process manager of MPICH and of Intel MPI: worker-0 starts all ranks, the others wait
for their release.

Sources: MPICH's "Using the Hydra Process Manager", Intel MPI's Developer Reference
("mpiexec.hydra", "Hydra Environment Variables"); MPICH 4.0 and 5.0, Intel MPI 2021.17.
"""

from __future__ import annotations

import re

from entrypoint.base import interfaces
from entrypoint.base.model import EnvVar, EnvVars, Launch, LaunchRanks, Program, Topology, usual
from entrypoint.base.tables import table
from entrypoint.base.values import replace
from entrypoint.launchers import _mpi
from entrypoint.launchers._common import master, problem, refuse
from entrypoint.spec import JobSpec

ALSO = ("mpich", "impi", "intelmpi", "mpiexec.hydra")  # other names

_NETWORK_HINT = "make sure that the nodes reach each other's ports, over network.interface"
_EACH_RANK = table("""
    RANK             | PMI_RANK
    WORLD_SIZE       | PMI_SIZE
    LOCAL_RANK       | MPI_LOCALRANKID
    LOCAL_WORLD_SIZE | MPI_LOCALNRANKS
""")
# Options that the launcher sets, and the sources of their values.
_SETTLED = table("""
    f hostfile machinefile machine hosts host       | hosts, or mpi.hostfile
    n np                                            | mpi.np, or slots
    ppn perhost                                     | slots
    launcher launcher-exec bootstrap bootstrap-exec | nothing: nodes need no ssh
    genvall genvnone | nothing: each rank has its own node's environment
    localhost                                       | hosts
""")
# Options that replace the tags needed to merge lines, or that write output without merging lines.
_OUTPUT = table("""
    l prepend-rank prepend-pattern prepend-timestamp  | logs.prefix, or logs.timestamps
    outfile outfile-pattern errfile errfile-pattern   | logs.files
""")
# Hydra's ways to start daemons. Its nodes are those of the roll call, also in a Slurm step.
_BY_FORK = table("""
    HYDRA_LAUNCHER I_MPI_HYDRA_BOOTSTRAP | fork
    I_MPI_HYDRA_RMK HYDRA_RMK            | user
""")
# The command is a shell that reads the agent, since the run directory may be mounted noexec. All
# daemons are started from this node: the others have no agent.
_BY_RSH = table("""
    HYDRA_LAUNCHER I_MPI_HYDRA_BOOTSTRAP  | rsh
    I_MPI_HYDRA_RMK HYDRA_RMK             | user
    HYDRA_LAUNCHER_EXEC                   | /bin/sh
    HYDRA_LAUNCHER_EXTRA_ARGS             | {run_dir}/agent
    I_MPI_HYDRA_BOOTSTRAP_EXEC            | /bin/sh
    I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS | {run_dir}/agent
    I_MPI_HYDRA_BRANCH_COUNT              | {nodes}
""")
_OF_OPEN_MPI = ("TUNE_ENV_FILE", "OPENMPI_X_ARGS", "OPENMPI_MCA_ARGS")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return mpiexec.hydra on the leader, nothing on the others; the hostfile has the slots that
    the nodes counted.

    Raises SpecError for options that only Open MPI has, or that the launcher sets.
    """
    _refuse(spec)
    many = topology.has_peers
    tagged = _is_tagged(spec, topology)
    needs = ("mpiexec.hydra", "hydra_pmi_proxy") if many else ("mpiexec.hydra",)
    interface = interfaces.of_node(topology.report, spec.network.asked)
    fabric = (usual("FI_TCP_IFACE", interface, "network.interface"),) if interface else ()
    ranks = LaunchRanks(
        "mpiexec.hydra",
        _NETWORK_HINT,
        env=fabric,
        agents_stay=True,
        tagged="tags" if tagged else "",
    )
    launch = _mpi.launch(spec, topology, _EACH_RANK, "PMI_RANK", ranks=ranks, passes_fd=True)
    launch = replace(launch, needs_programs=needs)
    if not topology.is_leader:
        return launch
    program = Program(_line(spec, topology, tagged), _settings(topology))
    # The daemon stays in the foreground, so the command that starts it must run in the background.
    return _mpi.led(launch, topology, program, "{}:{}", " &")


def _is_tagged(spec: JobSpec, topology: Topology) -> bool:
    """Return whether Hydra is to tag the output: not if the user's own options do that and `logs`
    needs no lines."""
    if spec.logs.lines or not _mpi.are_mixed(spec, topology):
        return spec.logs.lines
    return not _mpi.refused(spec, "hydra", _OUTPUT)


def _refuse(spec: JobSpec) -> None:
    summary = "EP119 mpiexec.hydra takes no options of Open MPI's"
    hint = "remove it, or set launcher: mpirun"
    problems = [
        problem(spec, f"env.{name}", summary, "", hint)
        for name in _OF_OPEN_MPI
        if spec.option(name)
    ]
    settled = {**_SETTLED, **(_OUTPUT if spec.logs.lines else {})}
    refuse([*problems, *_mpi.refused(spec, "hydra", settled)])


def _line(spec: JobSpec, topology: Topology, tagged: bool) -> tuple[str, ...]:
    """Return the argv of mpiexec.hydra."""
    # Hydra cuts the output of ranks; with this, each piece begins as those of Open MPI 4
    # (unite.py): group, rank.
    tags = ("-prepend-pattern", "[%g,%r]<stdout>:") if tagged else ()
    arguments = (*spec.option("OPENMPI_BIND_ARGS").split(), *spec.launcher_args)
    # A lone colon would end the program for Hydra: it gets a backslash, which the keeper
    # removes.
    command = (
        f"\\{argument}" if re.fullmatch(r"\\*:", argument) else argument
        for argument in spec.command
    )
    return (
        "mpiexec.hydra",
        *("-machinefile", _mpi.hostfile_path(spec, topology)),
        *("-n", str(_mpi.world_size(spec, topology))),
        # Daemons connect back to this node by this name; each rank has its own node's environment.
        # Never -disable-auto-cleanup: with it, daemons of MPICH 4.2 take a rank's ordinary end for
        # a failure.
        *("-localhost", master(topology), "-genvnone", *tags, *arguments),
        *("sh", "-c", '. "$ENTRYPOINT_RUN_DIR/rank.sh"', "rank", *command),
    )


def _settings(topology: Topology) -> EnvVars:
    """Return the variables, of MPICH and of Intel MPI, that make Hydra start daemons with rsh's
    command line."""
    values = {"run_dir": topology.run_dir, "nodes": len(topology.nodes)}
    return tuple(
        EnvVar(name, value.format(**values), "launcher hydra")
        for name, value in (_BY_RSH if topology.has_peers else _BY_FORK).items()
    )
