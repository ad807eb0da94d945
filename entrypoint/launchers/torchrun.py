"""torchrun (torch.distributed.run): every node starts its own agent, and the agents meet on worker-0."""

from __future__ import annotations

from entrypoint.launchers import _torch
from entrypoint.model import File, JobSpec, Launch, Roster, Topology

_OWN = {"RDZV_BACKEND": "torch.rdzv_backend", "MAX_RESTARTS": "torch.max_restarts"}


def plan(spec: JobSpec, topology: Topology, roster: Roster) -> Launch:
    """torchrun.sh on every node, with the command's words as its arguments."""
    return _torch.launch(spec, topology, _torch.script(spec, topology, "torchrun", "the job's spec", 0o700), _OWN)


def scripts(spec: JobSpec, topology: Topology, roster: Roster, origin: str) -> tuple[File, ...]:
    """What `entrypoint render` writes for this launcher."""
    return (_torch.script(spec, topology, "torchrun", origin, 0o755),)
