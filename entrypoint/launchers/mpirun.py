"""Open MPI's mpirun: worker-0 starts every rank through ssh; the others wait until they are
released."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from entrypoint.base import interfaces
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import (
    EnvVar,
    EnvVars,
    File,
    Interface,
    Launch,
    LaunchRanks,
    Program,
    Topology,
    usual,
)
from entrypoint.base.render import quote_yaml
from entrypoint.base.tables import table
from entrypoint.base.text import some
from entrypoint.base.values import replace
from entrypoint.launchers import _mpi
from entrypoint.launchers._common import file, refuse
from entrypoint.launchers._daemons import OPENMPI
from entrypoint.spec import JobSpec, for_script

ALSO = ("mpi", "mpiexec", "openmpi", "horovod", "horovodrun")  # other names

_TAGS = {"": "", "tags": " --tag-output", "spaced-tags": " --output tag:raw"}
# Options that replace these, or that write output without merging lines.
_OUTPUT = table("""
    output tag-output xml | logs.prefix
    timestamp-output      | logs.timestamps
    output-filename       | logs.files
""")
# Settings of interfaces: Open MPI's own variables and the parameters of its files.
_INTERFACES = r"((OMPI|PRTE)_MCA_)?((btl|oob)_tcp|prte)_if_"
_NETWORK_HINT = "make sure that the nodes reach each other's ports, over MY_MPI_BTL_TCP_IF"
# Its daemon kills its processes, by SIGTERM and a second later SIGKILL, if a rank calls MPI_Abort,
# a spawned process fails, or a daemon is lost: so the rank itself is a process that the daemon does
# not know. When a rank that has not finalized MPI ends, the daemon reads no more output: such a
# rank stays until the others have ended.
# Ranks that wait spin, and take the CPU from those that work (Open MPI's FAQ, "running", degraded
# mode); mpirun turns that off only where the hostfile has fewer slots than ranks.
_YIELD = usual(
    "OMPI_MCA_mpi_yield_when_idle",
    "1",
    "more ranks than CPUs",
    chosen_by=r"(OMPI_MCA_)?mpi_yield_when_idle",
)
# Open MPI 4 compresses the nodes' names by patterns that end at characters such as `_` and overrun
# a buffer at long names (orte/mca/regx/fwd); since 4.0.2 it can also list them as they are.
_LISTED = usual("OMPI_MCA_regx", "naive", "launcher mpirun", chosen_by=r"(OMPI_MCA_)?regx")
# Open MPI 4 looks up each node's name a dozen times, to learn whether it is this host: minutes with
# a name server that answers slowly or not at all, to which names with given addresses are unknown.
_UNRESOLVED = usual(
    "OMPI_MCA_if_base_do_not_resolve",
    "1",
    "addresses of the nodes",
    chosen_by=r"(OMPI_MCA_)?if_base_do_not_resolve",
)
_LONGEST = 56  # characters before the first digit or dot of a name: more overrun PMIx's buffer, too

# PyTorch's names for mpirun's variables; without them many scripts would run as jobs of a single
# process.
_EACH_RANK = table("""
    RANK             | OMPI_COMM_WORLD_RANK
    WORLD_SIZE       | OMPI_COMM_WORLD_SIZE
    LOCAL_RANK       | OMPI_COMM_WORLD_LOCAL_RANK
    LOCAL_WORLD_SIZE | OMPI_COMM_WORLD_LOCAL_SIZE
""")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return mpirun.sh on the leader, nothing on the others; the hostfile has the slots that the
    nodes counted.

    Raises ConfigError if the nodes have different majors of Open MPI, SpecError for options that
    `logs` sets.
    """
    if spec.logs.lines:
        refuse(_mpi.refused(spec, "mpirun", _OUTPUT))
    _check_majors(topology)
    many = topology.has_peers
    mpi = topology.report.mpi
    is_new = bool(mpi) and int(topology.report.mpi_major) >= 5
    if mpi and not is_new:
        _check_names(topology)
    before_5, since_5 = OPENMPI
    needs = ("mpirun", since_5 if is_new else before_5) if mpi else ("mpirun",)
    # The daemons of Open MPI 5 crash if there is only IPv6.
    why = f"Open MPI {mpi} cannot start ranks over IPv6 alone"
    ipv4 = (why, "or use an image with Open MPI 4") if is_new else None
    ranks = LaunchRanks(
        name="mpirun",
        network_hint=_NETWORK_HINT,
        tagged=_tags(spec, topology),
        crowded_env=() if "mpi_yield_when_idle" in _options(spec) else (_YIELD,),
    )
    launch = _mpi.launch(
        spec, topology, _EACH_RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", ranks=ranks
    )
    if many:
        launch = replace(launch, needs_programs=needs, needs_ipv4=ipv4)
    if not topology.is_leader:
        return launch
    script = _script(spec, topology, ranks.tagged)
    argv = ("bash", f"{topology.run_dir}/{script.name}", *spec.command)
    program = Program(argv, _settings(spec, topology), script=script.name)
    launch = replace(launch, files=(script, *launch.files))
    return _mpi.led(launch, topology, program, "{} slots={}")


def _options(spec: JobSpec) -> str:
    """Return the user's options in which parameters of Open MPI may be."""
    return " ".join((spec.option("OPENMPI_MCA_ARGS"), *spec.launcher_args))


def _tags(spec: JobSpec, topology: Topology) -> str:
    """Return how mpirun tags the pieces of output by rank, since it cuts lines.

    "" if only one rank prints, or if the user's own options tag them and `logs` needs no lines.
    Open MPI 5 would join pieces to lines itself, but mixes those of all ranks and streams (PMIx,
    pmix_iof_write_output: `PMIX_CHECK_PROCID(name, &res->name) || (stream & res->stream)`): `raw`
    turns that off.
    """
    major = topology.members.reports[0].mpi_major
    whole = _mpi.are_mixed(spec, topology) and not _mpi.refused(spec, "mpirun", _OUTPUT)
    if not (spec.logs.lines or whole) or not major.isdigit():
        return ""
    return "tags" if int(major) < 5 else "spaced-tags"


def _check_majors(topology: Topology) -> None:
    majors: dict[str, list[str]] = {}
    for node, report in zip(topology.nodes, topology.members.reports, strict=True):
        majors.setdefault(report.mpi_major, []).append(f"{node.name} has {report.mpi or 'none'}")
    if len(majors) > 1:
        raise ConfigError(
            "EP450 the nodes have different major versions of Open MPI",
            "; ".join(", ".join(hosts) for hosts in majors.values()),
            "use one image for all nodes",
        )


def _check_names(topology: Topology) -> None:
    if long := [name for name in topology.hosts if len(re.split("[0-9.]", name)[0]) > _LONGEST]:
        raise ConfigError(
            f"EP205 Open MPI 4 crashes at {_LONGEST + 1} characters without a digit or a dot",
            f"host name {some(long, 4)}",
            "shorten the name, or put a number into it, such as worker-0",
        )


def script(spec: JobSpec, topology: Topology, origin: str) -> File:
    """Return the file that `entrypoint render` writes for this launcher, with the spec in it."""
    content = for_script(spec)[0].items()
    fields = [f"{quote_yaml(name)}: {quote_yaml(value)}" for name, value in content]
    context = {
        "origin": origin,
        "spec": "{\n" + ",\n".join(fields) + "\n}" if fields else "",
        "nodes": spec.elastic,
    }
    return file("mpirun/run_mpi.sh.j2", context, 0o755)


def _script(spec: JobSpec, topology: Topology, tagged: str) -> File:
    """Return mpirun.sh with this job's values as the defaults of its variables."""
    context = {
        "np": _mpi.world_size(spec, topology),
        "hostfile": _mpi.hostfile_path(spec, topology),
        "mpi_major": topology.members.reports[0].mpi_major,
        "agent": f"sh {topology.run_dir}/agent" if topology.has_peers else "",
        "run_dir": topology.run_dir,
        "tags": _TAGS[tagged],
        "launcher_args": spec.launcher_args,
    }
    return file("mpirun/mpirun.sh.j2", context, 0o700)


def _settings(spec: JobSpec, topology: Topology) -> EnvVars:
    """Return the script's variables, so that a flag wins over a variable of the container."""
    count_source = str(spec.source("mpi.np")) if spec.mpi.np else "slots of the roll call"
    lists_names = _lists_names(topology.members.reports[0].mpi)
    return (
        EnvVar("ENTRYPOINT_RUN_DIR", topology.run_dir, str(spec.source("run_dir"))),
        EnvVar("OPENMPI_NP", str(_mpi.world_size(spec, topology)), count_source),
        EnvVar(
            "OPENMPI_HOST_FILE_PATH",
            _mpi.hostfile_path(spec, topology),
            str(spec.source("mpi.hostfile")),
        ),
        *((_LISTED,) if lists_names else ()),
        *((_UNRESOLVED,) if lists_names and all(node.address for node in topology.nodes) else ()),
        *_settled(spec),
        *_interfaces(spec, topology),
    )


def _settled(spec: JobSpec) -> Iterator[EnvVar]:
    """Yield the script's other variables that have a value: it uses those that the plan shows."""
    if spec.mpi.interface and not spec.network.asked:
        origin = str(spec.source("mpi.interface"))
        yield EnvVar("MY_MPI_BTL_TCP_IF", spec.mpi.interface, origin)
    for name in ("TUNE_ENV_FILE", *_mpi.OPTIONS):
        if value := spec.option(name):
            yield EnvVar(name, value, str(spec.source(f"env.{name}")))


def _lists_names(mpi: str) -> bool:
    """Return whether this version of Open MPI has a setting to list nodes' names as they are."""
    numbers = tuple(int(part) for part in re.findall("[0-9]{1,9}", mpi)[:3])
    return (4, 0, 2) <= numbers < (5,)


def _names_differ(topology: Topology, found: Sequence[Interface | None]) -> ConfigError:
    node_of_name: dict[str, str] = {}  # a node of each name
    for node, interface in zip(topology.nodes, found, strict=True):
        if interface:
            node_of_name.setdefault(
                interface.name, f"{interface.name} {interface.network} on {node.name}"
            )
    return ConfigError(
        "EP406 Open MPI knows IPv6 interfaces by name alone, and the nodes' names differ",
        ", ".join(node_of_name.values()),
        "give the interface one name on all nodes, or IPv4 addresses, or tell Open MPI"
        " yourself: OPENMPI_MCA_ARGS",
    )


def _interfaces(spec: JobSpec, topology: Topology) -> EnvVars:
    """Return the configured interface, or, if a node has several, those of the roll call.

    Raises ConfigError if Open MPI cannot express the configured one.
    """
    mpi = spec.mpi
    wanted = spec.network.asked
    options = _options(spec)
    if (
        "tcp_if_" in options
        or "prte_if_" in options
        or (not wanted and (mpi.interface or spec.option("TUNE_ENV_FILE")))
    ):
        return ()
    chosen = interfaces.of_all(topology.members.reports, wanted)
    all_interfaces = [report.interface for report in topology.members.reports]
    if wanted and not chosen and all(all_interfaces):
        raise _names_differ(topology, all_interfaces)
    if not chosen:
        # By default mpirun passes the leader's interface to NCCL, which fails on nodes without it.
        alike = len(interfaces.names(filter(None, all_interfaces))) < 2
        return () if alike else (usual("NCCL_SOCKET_IFNAME", interfaces.ANY, "the roll call"),)
    # mpirun's value for NCCL must suit all ranks; a node with several interfaces has its own value,
    # which wins.
    origin = str(spec.source("network.interface")) if wanted else "the roll call"
    nccl = interfaces.ANY if "/" in chosen else f"={chosen}"
    return (
        # Open MPI accepts no second setting next to some that have the same meaning.
        EnvVar(
            "MY_MPI_BTL_TCP_IF", chosen, origin, default=not mpi.interface, chosen_by=_INTERFACES
        ),
        usual("NCCL_SOCKET_IFNAME", nccl, origin),
    )
