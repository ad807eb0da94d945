"""Common parts of torch's launchers and accelerate: one script a node, its settings, and the
options that it sets."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint import supervised
from entrypoint.launchers._command import refuse_launcher, refuse_options
from entrypoint.launchers._place import meeting_port, place, settled
from entrypoint.model import EnvVar, File, Launch, LaunchEnds, LaunchRanks, Program, Topology
from entrypoint.render import render
from entrypoint.spec import DEFAULT, JobSpec, Source, left_out, logs
from entrypoint.values import replace

# Options that the script sets -> its variable for them, and the field of the spec.
RESERVED = {
    "nnodes": ("NNODES", "hosts"),
    "node_rank": ("NODE_RANK", "node_rank"),
    "nproc_per_node": ("NPROC_PER_NODE", "slots"),
    "master_addr": ("MASTER_ADDR", "hosts"),
    "master_port": ("MASTER_PORT", "torch.port"),
    "local_addr": ("NODE_ADDR", "hosts"),
    "standalone": ("NNODES=1", "one host in hosts"),
    "rdzv_backend": ("RDZV_BACKEND", "torch.rdzv_backend"),
    "rdzv_endpoint": ("MASTER_ADDR and MASTER_PORT", "hosts and torch.port"),
    "rdzv_id": ("JOB_ID", "name"),
    "rdzv_conf": ("RDZV_CONF", "the variable RDZV_CONF in env"),
}

# Seconds; torch counts milliseconds in 31 bits.
_AS_LONG_AS_THE_JOB = 2_000_000
_ELASTIC_RESTARTS = 3
# read-only in bash
_BASH_READONLY = (
    "UID",
    "EUID",
    "PPID",
    "BASHOPTS",
    "SHELLOPTS",
    "BASH_VERSINFO",
)


def launch(
    spec: JobSpec,
    topology: Topology,
    name: str,
    settings: tuple[EnvVar, ...] = (),
    extra: str = "torch.extra_args",
    reserved: Mapping[str, tuple[str, str]] = RESERVED,
) -> Launch:
    """Return `<name>.sh` on every node, with the command as arguments. `settings` are those of this
    launcher only.

    Raises SpecError as `script` does, and for a command that is a launcher itself.
    """
    file = script(spec, topology, name, extra=extra, reserved=reserved)
    refuse_launcher(spec, name)
    # Nodes of the roll call are stopped together; without one, nothing is known of the others, so
    # the wait is bounded.
    barrier = EnvVar("EXIT_BARRIER", str(_AS_LONG_AS_THE_JOB), "the roll call", default=True)
    bounded = EnvVar("EXIT_BARRIER", f"{spec.timeouts.peers:g}", "timeouts.peers", default=True)
    argv = ("bash", f"{topology.run_dir}/{file.name}", *spec.command)
    program = Program(argv, (*_settings(spec, topology), *settings), script=file.name)
    return Launch(
        (program,),
        files=(file, rank_script(spec, topology)),
        coordinated_env=(barrier,) if topology.is_leader else (),
        alone_env=(bounded, EnvVar("EXIT_TOGETHER", "yes", "roll_call")),
        ranks=LaunchRanks(reports="both", count=topology.world_size),
        ends=LaunchEnds(completion="first-failure", forwards=True),
        port=meeting_port(spec, topology, "torch.port", "MASTER_PORT"),
    )


def rank_script(spec: JobSpec, topology: Topology) -> File:
    """Return the script that a launcher starts for each rank of this node."""
    number = f"{supervised.OF_PROGRAM}.{{rank}}"
    options = ("--socket", supervised.OF_PROGRAM, "--linger", "apart", "--nested", "{rank}")
    steps = supervised.steps(spec.stall.line, topology.run_dir)
    log_options = logs.options(spec.logs, topology, "{rank}", "pipe", mixed=topology.this.slots > 1)
    cpus = supervised.binding(spec.cpu.bind, topology.run_dir, "LOCAL_RANK")
    supervisor = supervised.command(topology, number, *options, *steps, *cpus, *log_options)
    text = render("torchrun/rank.sh.j2", {"host": topology.this.host, "supervisor": supervisor})
    return File("rank.sh", text, "torchrun/rank.sh.j2", mode=0o600)


def script(
    spec: JobSpec,
    topology: Topology,
    name: str,
    by_hand: str = "",
    extra: str = "torch.extra_args",
    reserved: Mapping[str, tuple[str, str]] = RESERVED,
) -> File:
    """Return `<name>.sh` with this job's values as the defaults of its variables; the same text for
    every node.

    For a user who starts it `by_hand`, which names the origin of the values, it contains the spec's
    command, env and workdir, but no values that may be secrets, since others may read it:
    `left_out` names these. Raises SpecError if the field `extra` has an option of `reserved`, which
    the script sets itself.
    """
    fields = {option: field for option, (_, field) in reserved.items()}
    refuse_options(spec, extra, spec.value(extra), fields, "the launcher's script")
    template = f"{name}/{name}.sh.j2"
    slots = [node.slots for node in topology.nodes]
    secrets = left_out(spec)
    # A script is for other machines than this one, which is the only host if none is named.
    unnamed = topology.origins.get("hosts", Source("spec")).origin == "default"
    hidden = (*secrets, *_BASH_READONLY)
    env = {n: value for n, value in spec.env.items() if by_hand and n not in hidden}
    context = {
        "env": env,
        "workdir": spec.workdir if by_hand else None,
        "command": spec.command if by_hand and "command" not in secrets else (),
        "origin": by_hand or "the job's spec",
        "hosts": [] if unnamed else [node.where for node in topology.nodes],
        "slots": topology.leader.slots,
        "slots_of": slots if len(set(slots)) > 1 else [],
        "job": topology.job,
        "port": spec.torch.port,
        "node_addr": name == "torchrun",
        "rdzv_backend": spec.torch.rdzv_backend,
        "rdzv_timeout": max(1, round(spec.timeouts.peers)),
        "max_restarts": restarts(spec),
        "least": (spec.nodes or "").partition(":")[0],
        "torch_version": spec.torch.version or "",
        "extra_args": spec.value(extra),
        "reserved": {option: variable for option, (variable, _) in reserved.items()},
    }
    return File(f"{name}.sh", render(template, context), template, mode=0o755 if by_hand else 0o700)


def restarts(spec: JobSpec) -> int:
    """Return torchrun's restarts; an elastic job has some by default, since processes fail when a
    node is lost."""
    is_elastic_default = spec.nodes and spec.source("torch.max_restarts") == DEFAULT
    return _ELASTIC_RESTARTS if is_elastic_default else spec.torch.max_restarts


def _settings(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """Return the settings that all nodes agreed on, which a variable of one node cannot change."""
    origins = topology.origins
    rank, master, _ = (replace(var, default=False) for var in place(spec, topology))
    return (
        EnvVar("ENTRYPOINT_STAGE", "launch", "the entrypoint"),
        EnvVar("NNODES", str(len(topology.nodes)), str(origins.get("hosts", ""))),
        rank,
        EnvVar("NPROC_PER_NODE", str(topology.this.slots), str(origins.get("slots", ""))),
        master,
        # Torch's launchers kill after 30 s; newer ones (2.13) read this variable, so that a longer
        # grace is kept.
        EnvVar(
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
            str(int(spec.timeouts.grace) + 2),
            "timeouts.grace",
            default=True,
        ),
        *unless_in_env(spec, "torch.port", "torch.version"),
    )


def unless_in_env(spec: JobSpec, *paths: str) -> tuple[EnvVar, ...]:
    """Return these fields as the script's variables, except those that the spec's own `env`
    sets."""
    return tuple(var for var in settled(spec, *paths) if var.name not in spec.env)
