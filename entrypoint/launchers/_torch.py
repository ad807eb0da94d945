"""Common parts of torch's launchers and accelerate: their command line on each node, and the
scripts that people start by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from entrypoint.base import supervised
from entrypoint.base.model import (
    DEFAULT,
    EnvVar,
    File,
    Launch,
    LaunchRanks,
    Program,
    Source,
    Topology,
)
from entrypoint.base.values import replace
from entrypoint.launchers._common import (
    file,
    meeting_port,
    place,
    refuse_env,
    refuse_options,
    split_python,
)
from entrypoint.launchers._nested import is_python
from entrypoint.spec import JobSpec, carried, for_script, logs

# Options that the launcher sets, and the fields that their values come from.
SETTLED = {
    "nnodes": "hosts",
    "node_rank": "node_rank",
    "nproc_per_node": "slots",
    "master_addr": "hosts",
    "master_port": "torch.port",
    "local_addr": "hosts",
    "standalone": "one host in hosts",
    "rdzv_backend": "torch.rdzv_backend",
    "rdzv_endpoint": "hosts and torch.port",
    "rdzv_id": "name",
    **dict.fromkeys(("module", "no_python", "run_path"), "command"),
}
# They copy the ranks' output, and begin its lines in another way than `logs` asks for.
_OF_OUTPUT = dict.fromkeys(("tee", "redirects"), "logs.files: ranks, for copies in files")
_SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}  # their other spellings

# torch.distributed.launch gets none of these
_OF_TORCHRUN = (
    "nodes",
    "torch.max_restarts",
    "torch.rdzv_backend",
    "timeouts.peers",
    "timeouts.join",
)

# Seconds; torch counts milliseconds in 31 bits.
_AS_LONG_AS_THE_JOB = 2_000_000
_ELASTIC_RESTARTS = 3


def launch(
    spec: JobSpec,
    topology: Topology,
    name: str,
    options: Sequence[str],
    extra: str = "torch.extra_args",
    settled: Mapping[str, str] = SETTLED,
) -> Launch:
    """Return the launcher of this name on every node, with its module and these options.

    Raises SpecError if the user's own options, in the field `extra`, have one of `settled`, or if
    the spec's `env` has one.
    """
    _refuse(spec, name, extra, settled)
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
        files=(*files, rank_script(spec, topology)),
        ranks=LaunchRanks(reports="both", count=topology.world_size),
        forwards=True,
        port=meeting_port(spec, topology, "torch.port", "MASTER_PORT"),
    )


def _refuse(spec: JobSpec, name: str, extra: str, settled: Mapping[str, str]) -> None:
    refuse_env(spec, {"RDZV_BACKEND": "torch.rdzv_backend", "MAX_RESTARTS": "torch.max_restarts"})
    refuse_options(spec, extra, settled, f"launcher {name}", _SHORT)
    if spec.logs.lines:
        refuse_options(spec, extra, _OF_OUTPUT, "logs", _SHORT)


def _command(spec: JobSpec, topology: Topology) -> tuple[str, tuple[str, ...]]:
    """Return the Python that runs the launcher, and the command of each rank, unbuffered."""
    given = ("python", *spec.command) if spec.command[0] == "-m" else spec.command
    python, form, words = split_python(given)
    python = python if is_python(spec.command[0]) else topology.interpreter
    options = {"script": (python, "-u"), "module": (python, "-u", "-m"), "program": ()}
    return python, (*options[form], *words)


def _env(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    rank = replace(place(spec, topology)[0], default=False)
    nodes = EnvVar("NNODES", str(len(topology.nodes)), topology.origin("hosts"))
    # Without a folder torch makes one in /tmp at each start, and leaves it.
    logs = EnvVar("PET_LOG_DIR", f"{topology.run_dir}/tmp/torch", "the run directory", default=True)
    # Torch's launchers kill after 30 s; newer ones (2.13) read this variable, so that a longer
    # grace is kept.
    grace = str(int(spec.timeouts.grace) + 2)
    stop = EnvVar("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", grace, "timeouts.grace", default=True)
    ours = [EnvVar(name, "0", "logs") for name in ("PET_REDIRECTS", "PET_TEE")]
    return (nodes, rank, logs, stop, *(ours if spec.logs.lines else ()))


def _barrier(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """Return the variables of how long worker-0 waits for the other nodes' ends."""
    if not topology.has_peers:
        return ()
    if spec.calls(len(topology.nodes)):
        # Nodes of the roll call are stopped together. But a lost node of an elastic job never
        # reaches the barrier: the others wait as long as torch's default.
        waits = topology.is_leader and not spec.elastic
        forever = EnvVar("EXIT_BARRIER", str(_AS_LONG_AS_THE_JOB), "the roll call", default=True)
        return (forever,) if waits else ()
    # Nothing is known of the others, so the wait is bounded.
    bounded = EnvVar("EXIT_BARRIER", f"{spec.timeouts.peers:g}", "timeouts.peers", default=True)
    return (bounded, EnvVar("EXIT_TOGETHER", "yes", "roll_call"))


def rank_script(spec: JobSpec, topology: Topology) -> File:
    """Return the script that a launcher starts for each rank of this node."""
    options = ("--kind", supervised.OF_PROGRAM, "--linger", "apart", "--nested", "{rank}")
    steps = supervised.steps(spec.stall.line)
    log_options = logs.options(spec.logs, topology, "{rank}", "pipe", mixed=topology.this.slots > 1)
    supervisor = supervised.command(topology, *options, *steps, *log_options)
    return file("torchrun/rank.sh.j2", {"host": topology.this.host, "supervisor": supervisor})


def script(spec: JobSpec, topology: Topology, name: str, origin: str) -> File:
    """Return `<name>.sh` for a user who starts it by hand, with this job's values.

    It contains no values that may be secrets, since others may read it.
    """
    # A script is for other machines than this one, which is the only host if none is named. On
    # ModelArts the nodes are those of the job that starts it, unless the spec names them.
    found = ("default", "platform") if topology.platform == "modelarts" else ("default",)
    is_given = topology.origins.get("hosts", Source("spec")).origin not in found
    is_torchrun = name == "torchrun"
    elastic = spec.elastic or "" if is_torchrun else ""
    # One node meets no others, and a platform may start several with a script for one.
    is_named = is_given and (topology.has_peers or bool(elastic))
    slots = [node.slots for node in topology.nodes]
    interface = spec.network.asked or spec.mpi.interface or ""
    unfit: list[str] = []
    if "/" in interface:  # neither NCCL nor Gloo takes a network
        unfit = ["network.interface" if spec.network.asked else "mpi.interface"]
    not_carried: Sequence[str] = _OF_TORCHRUN
    if is_torchrun:
        not_carried = () if elastic else ("timeouts.join",)
    context = {
        **carried(spec),
        "origin": origin,
        "name": name,
        "hosts": [node.where for node in topology.nodes] if is_named else [],
        "nodes": elastic or (len(topology.nodes) if is_named else ""),
        "not_carried": [path for path in not_carried if spec.source(path) != DEFAULT] + unfit,
        "interface": "" if unfit else interface,
        "slots_given": spec.slots is not None,
        "last_call": max(1, round(spec.timeouts.join)) if elastic else "",
        "slots": topology.leader.slots,
        "slots_of": slots if len(set(slots)) > 1 else [],
        "job": topology.job,
        "port": spec.torch.port,
        "rdzv_backend": backend(spec),
        "timeout": wait(spec),
        "max_restarts": restarts(spec),
        "extra_args": () if "torch.extra_args" in for_script(spec)[1] else spec.torch.extra_args,
    }
    return file(f"{name}/{name}.sh.j2", context, 0o755)


def port(spec: JobSpec) -> str:
    """Return the port on worker-0 at which the nodes meet; a variable of the spec's `env` wins."""
    return spec.env.get("MASTER_PORT", str(spec.torch.port))


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


def wait(spec: JobSpec) -> int:
    """Return the seconds in which all nodes must meet."""
    return max(1, round(spec.timeouts.peers))


def restarts(spec: JobSpec) -> int:
    """Return torchrun's restarts; an elastic job has some by default, since processes fail when a
    node is lost."""
    is_elastic_default = spec.elastic and spec.source("torch.max_restarts") == DEFAULT
    return _ELASTIC_RESTARTS if is_elastic_default else spec.torch.max_restarts
