"""Common parts of torch's launchers and accelerate: their command line on each node, and the
scripts that people start by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.kept import RANK, KeptForm, RanksForm
from entrypoint.base.model import (
    DEFAULT,
    EnvVar,
    EnvVars,
    File,
    Launch,
    LaunchRanks,
    Node,
    Program,
    Source,
    Topology,
    usual,
)
from entrypoint.base.rankkind import UNDER_PROGRAMS
from entrypoint.base.tables import table
from entrypoint.base.values import replace
from entrypoint.launchers._common import (
    PORT,
    Planner,
    file,
    meeting_port,
    place,
    planned,
    rank_script,
    refuse_env,
    refuse_options,
    split_python,
    wait,
)
from entrypoint.launchers._nested import is_python, patterns
from entrypoint.spec import HostEntry, JobSpec, carried, for_script

# Options that the launcher sets, and the fields that their values come from.
SETTLED = table("""
    nnodes                    | hosts
    node_rank                 | node_rank
    nproc_per_node            | slots
    master_addr               | hosts
    master_port               | port
    local_addr                | hosts
    standalone                | one host in hosts
    rdzv_backend              | torch.rdzv_backend
    rdzv_endpoint             | hosts and port
    rdzv_id                   | name
    module no_python run_path | command
""")
# They copy the ranks' output, and begin its lines in another way than `logs` asks for.
_OF_OUTPUT = table("tee redirects | logs.files: ranks, for copies in files")
_SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}  # their other spellings

# Settings of `entrypoint run` that change what a script starts, and that it does not read.
_UNREAD = """
    COMMAND DEVICE ENV MPI_INTERFACE NETWORK_INTERFACE NODES PLATFORM SPARES SPEC TIMEOUTS_JOIN
    TIMEOUTS_PEERS WORKDIR LAUNCHER_ARGS TORCH_EXTRA_ARGS
"""

# Seconds; torch counts milliseconds in 31 bits.
_AS_LONG_AS_THE_JOB = 2_000_000
_ELASTIC_RESTARTS = 3


def launch(
    spec: JobSpec,
    topology: Topology,
    name: str,
    options: Sequence[str],
    settled: Mapping[str, str] = SETTLED,
) -> Launch:
    """Return the launcher of this name on every node, with its module and these options.

    Raises SpecError if the user's own options have one of `settled`, or if the spec's `env` has
    one.
    """
    _refuse(spec, name, settled)
    run_dir = topology.run_dir
    # accelerate's starts torch's.
    starters = ["accelerate/accelerate_launch.py"] * (name == "accelerate")
    starters.append("torchrun/torch_launch.py")
    files = [file(path) for path in starters]
    python, command = _command(spec, topology)
    # It replaces $ in every argument but the first; $$ comes out as $.
    words = [word.replace("$", "$$") for word in (f"{run_dir}/rank.sh", *command)]
    argv = (python, f"{run_dir}/{files[0].name}", *options, "--no_python", "--", "sh", *words)
    return Launch(
        (Program(argv, (*_env(spec, topology), *_barrier(spec, topology))),),
        files=(*files, rank_script(topology)),
        ranks=ranks(spec, topology),
        forwards=True,
        takes_args=True,
        port=meeting_port(spec, topology, "MASTER_PORT"),
    )


def _refuse(spec: JobSpec, name: str, settled: Mapping[str, str]) -> None:
    refuse_env(spec, {"RDZV_BACKEND": "torch.rdzv_backend", "MAX_RESTARTS": "torch.max_restarts"})
    refuse_options(spec, settled, f"launcher {name}", _SHORT)
    if spec.logs.lines:
        refuse_options(spec, _OF_OUTPUT, "logs", _SHORT)


def _command(spec: JobSpec, topology: Topology) -> tuple[str, tuple[str, ...]]:
    """Return the Python that runs the launcher, and the command of each rank, unbuffered."""
    given = ("python", *spec.command) if spec.command[0] == "-m" else spec.command
    python, form, words = split_python(given)
    python = python if is_python(spec.command[0]) else topology.interpreter
    options = {"script": (python, "-u"), "module": (python, "-u", "-m"), "program": ()}
    return python, (*options[form], *words)


def _env(spec: JobSpec, topology: Topology) -> EnvVars:
    rank = replace(place(spec, topology)[0], default=False)
    nodes = EnvVar("NNODES", str(len(topology.nodes)), topology.origin("hosts"))
    # Without a folder torch makes one in /tmp at each start, and leaves it.
    logs = usual("PET_LOG_DIR", f"{topology.run_dir}/tmp/torch", "the run directory")
    # Torch's launchers kill after 30 s; newer ones (2.13) read this variable, so that a longer
    # grace is kept.
    grace = str(int(spec.timeouts.grace) + 2)
    stop = usual("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", grace, "timeouts.grace")
    ours = [EnvVar(name, "0", "logs") for name in ("PET_REDIRECTS", "PET_TEE")]
    return (nodes, rank, logs, stop, *(ours if spec.logs.lines else ()))


def _barrier(spec: JobSpec, topology: Topology) -> EnvVars:
    """Return the variables of how long worker-0 waits for the other nodes' ends."""
    if not topology.has_peers:
        return ()
    if spec.calls(len(topology.nodes)):
        # Nodes of the roll call are stopped together. But a lost node of an elastic job never
        # reaches the barrier: the others wait as long as torch's default.
        waits = topology.is_leader and not spec.elastic
        forever = usual("EXIT_BARRIER", str(_AS_LONG_AS_THE_JOB), "the roll call")
        return (forever,) if waits else ()
    # Nothing is known of the others, so the wait is bounded.
    bounded = usual("EXIT_BARRIER", f"{spec.timeouts.peers:g}", "timeouts.peers")
    return (bounded, EnvVar("EXIT_TOGETHER", "yes", "roll_call"))


def ranks(spec: JobSpec, topology: Topology) -> LaunchRanks:
    """Return how a launcher that runs on every node starts its ranks."""
    several = topology.this.slots > 1
    output = spec.logs.output(topology, RANK, is_one_of_several=several)
    form = KeptForm(
        spec.logs.copied(topology, output),
        spec.timeouts.grace,
        is_apart=True,
        nested=RANK,
        steps=spec.stall.line or "",
    )
    return LaunchRanks(
        kind=UNDER_PROGRAMS, form=RanksForm(form, ("RANK",)), count=topology.world_size
    )


def script(
    spec: JobSpec,
    topology: Topology,
    name: str,
    origin: str,
    plan: Planner,
    not_carried: Sequence[str] = (),
    **more: object,
) -> File:
    """Return `<name>.sh` for a user who starts it by hand, with this job's values.

    What does not depend on the node is settled here, and the file starts what `plan` would, or
    refuses with 78. It contains no values that may be secrets, since others may read it.
    `not_carried`: paths of fields that this launcher has no use for; `more`: what else its template
    needs.
    """
    unfit = ["spares"] if spec.spares else []
    interface = spec.network.asked or spec.mpi.interface or ""
    if "/" in interface:  # neither NCCL nor Gloo takes a network
        unfit.append("network.interface" if spec.network.asked else "mpi.interface")
        interface = ""
    launchers, modules = patterns()
    context = {
        **carried(spec),
        **_places(spec, topology),
        "origin": origin,
        "name": name,
        "refused": _refusal(spec, topology, name, plan),
        "not_carried": unfit + [path for path in not_carried if spec.source(path) != DEFAULT],
        "interface": interface,
        "exact": f"={interface}" if spec.network.asked else "",
        "job": spec.name,
        "named": spec.source("name") != DEFAULT,
        "port": port(spec),
        "port_of_env": "MASTER_PORT" in spec.env,
        "python": spec.env.get("PYTHON", ""),
        "timeout": wait(spec),
        "extra_args": public_options(spec),
        "settled": [*SETTLED, *(["max_restarts"] if name == "torchrun" else [])],
        "unread": _UNREAD.split(),
        "launchers": launchers,
        "modules": modules,
        **more,
    }
    return file(f"{name}/{name}.sh.j2", context, 0o755)


def _places(spec: JobSpec, topology: Topology) -> dict[str, object]:
    """Return what a script knows of nodes and processes.

    A script is for other machines than this one, which is the only host if none is named. The nodes
    of a platform are those of the job that starts it, unless the spec names them.
    """
    is_found = topology.origins.get("hosts", Source("spec")).origin in ("default", "platform")
    working = () if is_found else topology.nodes[: topology.working]
    slots = [HostEntry.of(entry).slots or "" for entry in spec.hosts[: len(working)]]
    device = spec.device or ""
    return {
        "hosts": [node.where for node in working],
        "hosts_text": ",".join(spec.hosts),
        "count": len(working),
        "nodes": spec.elastic or len(working) or spec.nodes or "",
        "modelarts": {None: "if named", "modelarts": "yes"}.get(spec.platform, "no"),
        "slots": spec.slots or "",
        "slots_of": slots if any(slots) else [],
        "device": device,
        "cards": {"nvidia": "nvidia", "ascend": "davinci"}.get(device, "{nvidia,davinci}"),
    }


def public_options(spec: JobSpec) -> tuple[str, ...]:
    """Return launcher_args for a script that others may read; none if one may be a secret."""
    return () if "launcher_args" in for_script(spec)[1] else spec.launcher_args


def _refusal(spec: JobSpec, topology: Topology, name: str, plan: Planner) -> str:
    """Return why the launcher of this name cannot start this job; "" if it can."""
    if spec.elastic and not spec.hosts:  # as many as the platform will name
        most = int(spec.elastic.partition(":")[2])
        nodes = tuple(Node(rank, f"worker-{rank}", 1) for rank in range(most))
        topology = replace(topology, nodes=nodes, me=0)
    try:
        planned(replace(spec, command=spec.command or ("train.py",)), topology, name, plan)
    except (ConfigError, SpecError) as error:
        return " | ".join(error.lines())
    return ""


def port(spec: JobSpec) -> str:
    """Return the port on worker-0 at which the nodes meet; a variable of the spec's `env` wins."""
    return spec.env.get("MASTER_PORT", str(spec.port or PORT))


def backend(spec: JobSpec) -> str:
    """Return the rendezvous of several nodes.

    With the static one nodes start as soon as all are there, in the order of the hosts. c10d has
    them look again after a second, and numbers them by the spelling of their addresses, where
    worker-10 comes before worker-2. But with c10d alone all nodes restart their processes together,
    and may come and go.
    """
    if spec.torch.rdzv_backend != "auto":
        return spec.torch.rdzv_backend
    return "c10d" if spec.elastic or restarts(spec) else "static"


def last_call(spec: JobSpec) -> int:
    """Return the seconds in which nodes beyond the minimum of an elastic job may still come, if
    no roll call waits for them."""
    return max(1, round(spec.timeouts.join))


def restarts(spec: JobSpec) -> int:
    """Return torchrun's restarts; an elastic job has some by default, since processes fail when a
    node is lost."""
    is_elastic_default = spec.elastic and spec.source("torch.max_restarts") == DEFAULT
    return _ELASTIC_RESTARTS if is_elastic_default else spec.torch.max_restarts
