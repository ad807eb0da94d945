"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on worker-0."""

from __future__ import annotations

from entrypoint.errors import Problem, SpecError
from entrypoint.launchers import _torch
from entrypoint.model import EnvVar, File, Launch, Members, Topology
from entrypoint.spec import DEFAULT, JobSpec
from entrypoint.text import count
from entrypoint.values import replace

ALSO = ("ddp", "pytorch-ddp", "torch", "torchelastic", "torch.distributed.run", "lightning")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """torchrun.sh on every node, with the command's words as its arguments.

    Raises SpecError when `nodes` asks for what the hosts, or the rendezvous, cannot give.
    """
    origins, least = topology.origins, _least(spec, topology)
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
        settings += (EnvVar("NODE_ADDR", topology.this.where, str(origins.get("hosts", "")), default=True),)
    launch = _torch.launch(spec, topology, "torchrun", settings)
    if least is None:
        return launch
    # A node that is lost never comes to the barrier that the others wait at: they wait as long as torch does by itself.
    return replace(launch, start=replace(launch.start, min_nodes=least), coordinated_env=())


def _least(spec: JobSpec, topology: Topology) -> int | None:
    """The nodes that are enough for an elastic job."""
    if spec.nodes is None:
        return None
    least, most = map(int, spec.nodes.split(":"))
    where, hosts = spec.source("nodes").where, len(topology.nodes)
    if most != hosts:
        detail = f"{most}, with {count(hosts, 'host')} ({topology.origins.get('hosts', '')})"
        hint = f"write {min(least, hosts)}:{hosts}, or name all hosts"
        raise SpecError([Problem(where, "nodes", "EP120 the most nodes of an elastic job are its hosts", detail, hint)])
    if least > most:
        summary = "EP120 the least is more than the most"
        raise SpecError([Problem(where, "nodes", summary, spec.nodes, f"write {most}:{least}")])
    if spec.torch.rdzv_backend == "static":
        summary, hint = (
            "EP120 a static rendezvous has a fixed number of nodes",
            "set torch.rdzv_backend: c10d, or remove nodes",
        )
        raise SpecError([Problem(where, "nodes", summary, spec.nodes, hint)])
    return least


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for this launcher."""
    return (_torch.script(spec, topology, "torchrun", origin),)
