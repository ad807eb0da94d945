"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on worker-0."""

from __future__ import annotations

from entrypoint.launchers import _torch
from entrypoint.model import EnvVar, File, Launch, Members, Topology
from entrypoint.spec import DEFAULT, JobSpec

ALSO = ("ddp", "pytorch-ddp", "torch", "torchelastic", "torch.distributed.run")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """torchrun.sh on every node, with the command's words as its arguments."""
    this, origins = topology.this, topology.origins
    name = origins.get("name", DEFAULT)
    own = [
        EnvVar("JOB_ID", topology.job, str(name), default=name.origin not in ("flag", "env")),
        *_torch.settled(spec, {"RDZV_BACKEND": "rdzv_backend", "MAX_RESTARTS": "max_restarts"}),
    ]
    if len(topology.nodes) > 1:
        own.append(EnvVar("NODE_ADDR", this.address or this.host, str(origins.get("hosts", "")), default=True))
    script = _torch.script(spec, topology, "torchrun", "the job's spec", 0o700)
    return _torch.launch(spec, topology, script, tuple(own))


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for this launcher."""
    return (_torch.rendered(spec, topology, "torchrun", origin),)
