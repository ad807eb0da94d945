"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on
worker-0."""

from __future__ import annotations

from entrypoint.errors import Problem, SpecError
from entrypoint.launchers import _torch
from entrypoint.model import EnvVar, File, Launch, Members, Topology
from entrypoint.spec import DEFAULT, JobSpec
from entrypoint.text import count
from entrypoint.values import replace

# other names
ALSO = (
    "ddp",
    "pytorch-ddp",
    "torch",
    "torchelastic",
    "torch.distributed.run",
    "lightning",
)


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """Return torchrun.sh on every node, with the command as arguments.

    Raises SpecError if `nodes` does not match the hosts or the rendezvous.
    """
    origins = topology.origins
    least = _least(spec, topology)
    name = origins.get("name", DEFAULT)
    settings = (
        EnvVar("JOB_ID", topology.job, str(name), default=name.origin not in ("flag", "env")),
        *(
            replace(var, value=str(_torch.restarts(spec))) if var.name == "MAX_RESTARTS" else var
            for var in _torch.unless_in_env(spec, "torch.rdzv_backend", "torch.max_restarts")
        ),
    )
    if least is not None:
        settings += (EnvVar("NNODES_MIN", str(least), str(spec.source("nodes"))),)
    if len(topology.nodes) > 1:
        settings += (
            EnvVar("NODE_ADDR", topology.this.where, str(origins.get("hosts", "")), default=True),
        )
    launch = _torch.launch(spec, topology, "torchrun", settings)
    if least is None:
        return launch
    # A lost node never reaches the barrier at which the others wait: they wait as long as torch's
    # default.
    return replace(launch, start=replace(launch.start, min_nodes=least), coordinated_env=())


def _least(spec: JobSpec, topology: Topology) -> int | None:
    """Return the smallest number of nodes of an elastic job; None for other jobs."""
    if spec.nodes is None:
        return None
    minimum, maximum = map(int, spec.nodes.split(":"))
    where = spec.source("nodes").where
    hosts = len(topology.nodes)
    if maximum != hosts:
        detail = f"{maximum}, with {count(hosts, 'host')} ({topology.origins.get('hosts', '')})"
        hint = f"write {min(minimum, hosts)}:{hosts}, or name all hosts"
        raise SpecError(
            [
                Problem(
                    where,
                    "nodes",
                    "EP120 the most nodes of an elastic job are its hosts",
                    detail,
                    hint,
                )
            ]
        )
    if minimum > maximum:
        summary = "EP120 the least is more than the most"
        raise SpecError(
            [Problem(where, "nodes", summary, spec.nodes, f"write {maximum}:{minimum}")]
        )
    if spec.torch.rdzv_backend == "static":
        summary = "EP120 a static rendezvous has a fixed number of nodes"
        hint = "set torch.rdzv_backend: c10d, or remove nodes"
        raise SpecError([Problem(where, "nodes", summary, spec.nodes, hint)])
    return minimum


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """Return the files that `entrypoint render` writes for this launcher."""
    return (_torch.script(spec, topology, "torchrun", origin),)
