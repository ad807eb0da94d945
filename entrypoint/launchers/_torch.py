"""What torchrun and torch.distributed.launch share: one script a node, its settings, and the options it owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint import supervised
from entrypoint.launchers._command import refuse_launcher, refuse_options
from entrypoint.model import EnvVar, File, Launch, Program, Topology
from entrypoint.render import render
from entrypoint.spec import JobSpec, Source, left_out

# Options that the script sets: the variable that sets each there, and the field that does in the spec.
_RESERVED = {
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
_BASH_S_OWN = ("UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO")  # no script can set them


def launch(spec: JobSpec, topology: Topology, script: File, own: tuple[EnvVar, ...] = ()) -> Launch:
    """The script on every node. `own` are settings that only this launcher's script has."""
    refuse_launcher(spec, script.name.removesuffix(".sh"))
    # Who answered the roll call is stopped with all; of others nothing is heard, so the wait must end by itself.
    barrier = EnvVar("EXIT_BARRIER", str(_AS_LONG_AS_THE_JOB), "the roll call", default=True)
    program = Program(("bash", f"{topology.run_dir}/{script.name}", *spec.command), (*_settings(spec, topology), *own))
    return Launch(
        (program,),
        files=(script, _rank_script(topology)),
        coordinated_env=(barrier,) if topology.is_leader else (),
        reports="both",
        completion="first-failure",
        ranks=topology.world_size,
    )


def _rank_script(topology: Topology) -> File:
    """What torch's launcher starts for each rank of this node."""
    number, pipe = f"{supervised.OF_PROGRAM}.{{rank}}", ("--pipe", supervised.OF_PROGRAM, "--linger", "apart")
    words = supervised.command(topology, number, *pipe)
    text = render("torchrun/rank.sh.j2", {"host": topology.this.host, "supervisor": words})
    return File("rank.sh", text, "torchrun/rank.sh.j2", mode=0o600)


def rendered(spec: JobSpec, topology: Topology, name: str, origin: str) -> File:
    """`<name>.sh` as a person starts it, with no entrypoint: the spec's command, env and workdir are in it.

    What may be a secret is not, since others may read the script: `left_out` names it.
    """
    secrets = left_out(spec)
    own = {
        "env": {name: value for name, value in spec.env.items() if name not in (*secrets, *_BASH_S_OWN)},
        "workdir": spec.workdir,
        "command": () if "command" in secrets else spec.command,
    }
    return script(spec, topology, name, origin, 0o755, own)


def script(
    spec: JobSpec, topology: Topology, name: str, origin: str, mode: int, own: Mapping[str, Any] | None = None
) -> File:
    """`<name>.sh` with this job's values as the defaults of its variables; the same text for every node. Where the
    entrypoint starts it, it has nothing of its `own`.

    Raises SpecError when torch.extra_args holds an option that the script sets itself.
    """
    settled = {option: field for option, (_, field) in _RESERVED.items()}
    refuse_options(spec, "torch.extra_args", spec.torch.extra_args, settled, "the launcher's script")
    template = f"{name}/{name}.sh.j2"
    # A script goes to other machines than this one, which is the host where nobody named any.
    unnamed = topology.origins.get("hosts", Source("spec")).origin == "default"
    context = {
        **(own or {"env": {}, "workdir": None, "command": ()}),
        "origin": origin,
        "hosts": [] if unnamed else [node.address or node.host for node in topology.nodes],
        "slots": topology.leader.slots,
        "slots_of": _differing([node.slots for node in topology.nodes]),
        "job": topology.job,
        "port": spec.torch.port,
        "node_addr": name == "torchrun",
        "rdzv_backend": spec.torch.rdzv_backend,
        "rdzv_timeout": max(1, round(spec.timeouts.peers)),
        "max_restarts": spec.torch.max_restarts,
        "torch_version": spec.torch.version or "",
        "extra_args": spec.torch.extra_args,
        "reserved": {option: variable for option, (variable, _) in _RESERVED.items()},
    }
    return File(f"{name}.sh", render(template, context), template, mode=mode)


def _differing(slots: list[int]) -> list[int]:
    """The slots of each node, where one has others than the rest."""
    return slots if len(set(slots)) > 1 else []


def settled(spec: JobSpec, fields: dict[str, str]) -> tuple[EnvVar, ...]:
    """The script's variables that fields of the section `torch` are, so that what the plan shows is what it uses.

    One that the spec's own `env` holds stays as it is there.
    """
    values = {variable: getattr(spec.torch, field) for variable, field in fields.items() if variable not in spec.env}
    return tuple(
        EnvVar(variable, str(value), str(spec.source(f"torch.{fields[variable]}")))
        for variable, value in values.items()
        if value is not None
    )


def _settings(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """What all nodes agreed on is not for a variable of one of them to change."""
    origins, hosts = topology.origins, str(topology.origins.get("hosts", ""))
    if len(topology.nodes) > 1:
        master = EnvVar("MASTER_ADDR", topology.leader.address or topology.leader.host, hosts)
    else:
        master = EnvVar("MASTER_ADDR", "127.0.0.1", "the only node")
    return (
        EnvVar("ENTRYPOINT_STAGE", "launch", "the entrypoint"),
        EnvVar("NNODES", str(len(topology.nodes)), hosts),
        EnvVar("NODE_RANK", str(topology.me), str(origins.get("node_rank", "the only node"))),
        EnvVar("NPROC_PER_NODE", str(topology.this.slots), str(origins.get("slots", ""))),
        master,
        # Torch's launchers kill after 30 s; newer ones can be told (2.13 can), so that a longer grace is kept.
        EnvVar("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(spec.timeouts.grace) + 2), "timeouts.grace", default=True),
        *settled(spec, {"MASTER_PORT": "port", "TORCH_VERSION": "version"}),
    )
