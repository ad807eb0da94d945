"""What torchrun and torch.distributed.launch share: one script a node, its settings, and the options it owns."""

from __future__ import annotations

from entrypoint.errors import Problem, SpecError
from entrypoint.model import EnvVar, File, JobSpec, Launch, Topology
from entrypoint.render import render

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


def launch(spec: JobSpec, topology: Topology, script: File, own: dict[str, str]) -> Launch:
    """The script on every node. `own` maps variables that only this launcher's script has to fields of the spec."""
    return Launch(
        argv=("bash", f"{topology.run_dir}/{script.name}", *spec.command),
        files=(script,),
        env=_settings(spec, topology, {"MASTER_PORT": "torch.port", "TORCH_VERSION": "torch.version", **own}),
        verdict="first-failure",
    )


def script(spec: JobSpec, topology: Topology, name: str, origin: str, mode: int) -> File:
    """`<name>.sh` with this job's values as the defaults of its variables; the same text for every node.

    Raises SpecError when torch.extra_args holds an option that the script sets itself.
    """
    _check_extra_args(spec)
    template = f"{name}/{name}.sh.j2"
    context = {
        "origin": origin,
        "hosts": [node.address or node.host for node in topology.nodes],
        "slots": topology.leader.slots,
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


def _settings(spec: JobSpec, topology: Topology, fields: dict[str, str]) -> tuple[EnvVar, ...]:
    """The script's variables: what all nodes agreed on, and of the rest what a flag or a variable of ours set."""
    origins, this = topology.origins, topology.this
    many = len(topology.nodes) > 1
    master = (topology.leader.address or topology.leader.host) if many else "127.0.0.1"
    named = origins.get("name")
    settings = [
        EnvVar("ENTRYPOINT_STAGE", "launch", "the entrypoint"),
        EnvVar("NNODES", str(len(topology.nodes)), str(origins.get("hosts", ""))),
        EnvVar("NODE_RANK", str(topology.me), str(origins.get("node_rank", "the only node"))),
        EnvVar("NPROC_PER_NODE", str(this.slots), str(origins.get("slots", ""))),
        EnvVar("MASTER_ADDR", master, str(origins.get("hosts", "")) if many else "the only node"),
        EnvVar("NODE_ADDR", this.address or this.host, str(origins.get("hosts", "")), default=True),
        EnvVar("JOB_ID", topology.job, str(named or ""), default=not (named and named.origin in ("flag", "env"))),
    ]
    for variable, path in fields.items():
        source = spec.source(path)
        if source.origin in ("flag", "env"):
            value = spec.model_dump(include={"torch"})["torch"][path.removeprefix("torch.")]
            settings.append(EnvVar(variable, str(value), str(source)))
    return tuple(settings)


def _check_extra_args(spec: JobSpec) -> None:
    problems = []
    for word in spec.torch.extra_args:
        name = word.partition("=")[0].replace("-", "_")
        # torch takes any beginning of an option for the option.
        option = next((option for option in _RESERVED if word.startswith("--") and option.startswith(name[2:])), None)
        if option:
            where = spec.source("torch.extra_args").where
            what = f"--{option} is set by the launcher's script"
            problems.append(Problem(where, "torch.extra_args", what, f"`{word[:60]}`", f"set {_RESERVED[option][1]}"))
    if problems:
        raise SpecError(problems)
