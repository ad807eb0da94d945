"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on worker-0."""

from __future__ import annotations

from entrypoint.launchers import _torch
from entrypoint.model import EnvVar, File, Launch, Members, Topology
from entrypoint.spec import DEFAULT, JobSpec

ALSO = ("ddp", "pytorch-ddp", "torch", "torchelastic", "torch.distributed.run", "lightning")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """torchrun.sh on every node, with the command's words as its arguments."""
    origins = topology.origins
    name = origins.get("name", DEFAULT)
    own = (
        EnvVar("JOB_ID", topology.job, str(name), default=name.origin not in ("flag", "env")),
        *_torch.unless_in_env(spec, "torch.rdzv_backend", "torch.max_restarts"),
    )
    if len(topology.nodes) > 1:
        own += (EnvVar("NODE_ADDR", topology.this.where, str(origins.get("hosts", "")), default=True),)
    return _torch.launch(spec, topology, "torchrun", own)


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for this launcher."""
    return (_torch.script(spec, topology, "torchrun", origin),)
