"""Open MPI's mpirun: worker-0 starts every rank through ssh; the others wait until they are released."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from entrypoint import interfaces
from entrypoint.errors import ConfigError, SpecError
from entrypoint.launchers import _mpi
from entrypoint.launchers._command import refuse_launcher
from entrypoint.launchers._daemons import OPENMPI
from entrypoint.launchers._place import settled
from entrypoint.model import EnvVar, File, Launch, LaunchRanks, Members, Program, Topology
from entrypoint.render import quote_sh
from entrypoint.secret import masked_words
from entrypoint.spec import Given, JobSpec, given
from entrypoint.values import replace

ALSO = ("mpi", "mpiexec", "openmpi", "horovod", "horovodrun")  # what else people call it

_TAGS = {"": "", "tags": " --tag-output", "spaced-tags": " --output tag:raw"}
# Those that take the place of these, or that write without lines being put together again.
_OUTPUT = {
    **dict.fromkeys(("output", "tag-output", "xml"), "logs.prefix"),
    "timestamp-output": "logs.timestamps",
    "output-filename": "logs.files",
}
_OPTIONS = ("mpi.tune_file", "mpi.bind_args", "mpi.x_args", "mpi.mca_args", "mpi.extra_args")
# Interfaces, in Open MPI's own variables and in the parameters of its files.
_INTERFACES = r"((OMPI|PRTE)_MCA_)?((btl|oob)_tcp|prte)_if_"
_NETWORK_HINT = "see that the nodes reach each other's ports, and on which interfaces: MY_MPI_BTL_TCP_IF"
# Its daemon kills what it knows, by SIGTERM and a second later SIGKILL, if a rank calls MPI_Abort, a process that one
# has spawned fails, or a daemon is lost: the supervisor is in a process that it does not know. After a rank that has
# not finalized MPI it reads no more output: such a rank stays until the others have ended.
_AT_A_RANKS_END = ("--group", "apart", "--hold", "yes")
# What PyTorch calls that which mpirun tells a rank; many a script is a job of one process where it finds none.
_EACH_RANK = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """run_mpi.sh on the leader, nothing on the others; the hostfile has the slots that each node itself counted.

    Raises ConfigError when the nodes have different majors of Open MPI, SpecError for options that lines have settled.
    """
    refuse_launcher(spec, "mpirun")
    if spec.logs.lines and (problems := _mpi.refused(spec, "mpirun", _OUTPUT)):
        raise SpecError(problems)
    _check_majors(topology, members)
    many, mpi = len(topology.nodes) > 1, members.reports[topology.me].mpi
    is_new = bool(mpi) and int(mpi.split(".")[0]) >= 5
    before_5, since_5 = OPENMPI
    needs = ("mpirun", since_5 if is_new else before_5) if mpi else ("mpirun",)
    # The daemons of Open MPI 5 crash where there is IPv6 alone.
    ipv4 = (f"Open MPI {mpi} cannot start ranks over IPv6 alone", "or use an image with Open MPI 4") if is_new else None
    number, tagged = "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}", _tags(spec, topology, members)
    ranks = LaunchRanks(name="mpirun", network_hint=_NETWORK_HINT, tagged=tagged)
    launch = _mpi.launch(spec, topology, members, _EACH_RANK, number, *_AT_A_RANKS_END, ranks=ranks)
    if many:
        launch = replace(launch, start=replace(launch.start, needs_programs=needs, needs_ipv4=ipv4))
    if not topology.is_leader:
        return launch
    nodes = [
        (node.host if many else "localhost", f"slots={report.slots}")
        for node, report in zip(topology.nodes, members.reports, strict=True)
    ]
    script = _script(spec, topology, members, "the job's spec", 0o700)
    argv = ("bash", f"{topology.run_dir}/{script.name}", *spec.command)
    return replace(
        launch,
        programs=(Program(argv, _settings(spec, topology, members)),),
        files=(
            _mpi.file("hostfile", {"nodes": nodes}),
            script,
            *launch.files,
            *((_mpi.agent(topology),) if many else ()),
        ),
        ranks=replace(launch.ranks, agents=many),
    )


def _tags(spec: JobSpec, topology: Topology, members: Members) -> str:
    """How mpirun says which rank each piece of output is of, for it cuts lines. "" where one rank alone prints, or
    where nobody asked for lines and the user's own options tag them.

    Open MPI 5 would join pieces to lines itself, and mixes those of all ranks and streams (PMIx, pmix_iof_write_output:
    `PMIX_CHECK_PROCID(name, &res->name) || (stream & res->stream)`): `raw` leaves it out.
    """
    major = members.reports[0].mpi.split(".")[0]
    whole = _mpi.are_mixed(spec, topology, members) and not _mpi.refused(spec, "mpirun", _OUTPUT)
    if not (spec.logs.lines or whole) or not major.isdigit():
        return ""
    return "tags" if int(major) < 5 else "spaced-tags"


def _check_majors(topology: Topology, members: Members) -> None:
    majors: dict[str, list[str]] = {}
    for node, report in zip(topology.nodes, members.reports, strict=True):
        majors.setdefault(report.mpi.split(".")[0], []).append(f"{node.host} has {report.mpi or 'none'}")
    if len(majors) > 1:
        detail = "; ".join(", ".join(hosts) for hosts in majors.values())
        raise ConfigError("EP450 the nodes have different Open MPI majors", detail, "use one image for all nodes")


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for this launcher."""
    return (_script(spec, topology, members, origin, 0o755, given(spec)),)


def _script(
    spec: JobSpec, topology: Topology, members: Members, origin: str, mode: int, settings: Sequence[Given] = ()
) -> File:
    """run_mpi.sh with this job's values as the defaults of its variables."""
    context = {
        "origin": origin,
        "given": "\n".join(map(_default, settings)),
        "np": _mpi.world_size(spec, members),
        "hostfile": _mpi.hostfile(spec, topology),
        "mpi_major": members.reports[0].mpi.split(".")[0],
        "agent": f"sh {topology.run_dir}/agent" if len(topology.nodes) > 1 else "",
        "run_dir": topology.run_dir,
        "tags": _TAGS[_tags(spec, topology, members)],
    }
    return _mpi.file("run_mpi.sh", context, mode)


def _default(setting: Given) -> str:
    """The line of run_mpi.sh that gives a setting this value where none of its variables is set."""
    unset = "".join(f"${{{name}:-}}" for name in setting.names)
    return f'  if [ -z "{unset}" ]; then export {setting.names[0]}={quote_sh(setting.value)}; fi'


def _settings(spec: JobSpec, topology: Topology, members: Members) -> tuple[EnvVar, ...]:
    """The script's variables, so that a flag wins over a variable that the container was given."""
    is_asked = spec.network.interface != interfaces.AUTO
    count_source = str(spec.source("mpi.np")) if spec.mpi.np else "slots of the roll call"
    return (
        EnvVar("ENTRYPOINT_STAGE", "launch", "launcher mpirun"),
        EnvVar("ENTRYPOINT_RUN_DIR", topology.run_dir, str(spec.source("run_dir"))),
        EnvVar("OPENMPI_NP", str(_mpi.world_size(spec, members)), count_source),
        EnvVar("OPENMPI_HOST_FILE_PATH", _mpi.hostfile(spec, topology), str(spec.source("mpi.hostfile"))),
        *settled(spec, *(() if is_asked else ("mpi.interface",)), *_OPTIONS),
        *_interfaces(spec, topology, members),
    )


def _interfaces(spec: JobSpec, topology: Topology, members: Members) -> tuple[EnvVar, ...]:
    """The one that was asked for; else, where a node has several: those that the roll call came over.

    Raises ConfigError when Open MPI has no word for what was asked.
    """
    mpi, wanted = spec.mpi, spec.network.interface
    is_asked = wanted != interfaces.AUTO
    options = " ".join(filter(None, (mpi.mca_args, mpi.extra_args)))
    if "tcp_if_" in options or "prte_if_" in options or (not is_asked and (mpi.interface or mpi.tune_file)):
        return ()
    chosen = interfaces.of_all(members.reports, wanted)
    all_interfaces = [report.interface for report in members.reports]
    if is_asked and not chosen and all(all_interfaces):
        node_of_name: dict[str, str] = {}  # a node of each name
        for node, interface in zip(topology.nodes, all_interfaces, strict=True):
            if interface:
                node_of_name.setdefault(interface.name, f"{interface.name} {interface.network} on {node.host}")
        detail = ", ".join(node_of_name.values())
        raise ConfigError(
            "EP406 Open MPI knows IPv6 interfaces by name alone, and the nodes' names differ",
            detail,
            "give the interface one name on all nodes, or IPv4 addresses, or tell Open MPI yourself: OPENMPI_MCA_ARGS",
        )
    if not chosen:
        # By default mpirun tells NCCL of the leader's name, and NCCL gives up where that is not there.
        alike = len(interfaces.names(filter(None, all_interfaces))) < 2
        return () if alike else (EnvVar("NCCL_SOCKET_IFNAME", interfaces.ANY, "the roll call", default=True),)
    # What mpirun tells all ranks of NCCL's must suit all; a node with several interfaces has its own value, which wins.
    origin = str(spec.source("network.interface")) if is_asked else "the roll call"
    nccl = interfaces.ANY if "/" in chosen else f"={chosen}"
    return (
        # Open MPI takes no second word beside some of those that say the same.
        EnvVar("MY_MPI_BTL_TCP_IF", chosen, origin, default=not mpi.interface, chosen_by=_INTERFACES),
        EnvVar("NCCL_SOCKET_IFNAME", nccl, origin, default=True),
    )


# ---------------------------------------------------------------------------------------------------------------
# What run_mpi.sh leaves in the run directory about the start of mpirun

LINE = "line"  # the words it was started with
_SHOWN = 32 << 10  # bytes of them that are shown
_ESCAPES = {"\n": "\\n", "\t": "\\t", "'": "\\'", "\\": "\\\\"}  # in bash's $'...'


def shown(line: bytes) -> str:
    """The words that mpirun was started with, without secrets; "" where the file is not written yet.

    Of very many, the first ones: the event loop waits meanwhile, and a log is no place for megabytes.
    """
    first = line[:_SHOWN].rpartition(b"\0")[0]
    words = masked_words(first.decode(errors="replace").split("\0")) if first else []
    rest = len(line) - len(first) - 1
    return " ".join(map(_shell_word, words)) + (f" and {rest} bytes more" if words and rest else "")


def _shell_word(word: str) -> str:
    """A word as bash reads it, in one line: a program given by `python -c` has many."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (_ESCAPES.get(each, each if each.isprintable() else f"\\U{ord(each):08x}") for each in word)
    return f"$'{''.join(escaped)}'"
