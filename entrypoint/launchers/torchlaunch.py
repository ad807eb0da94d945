"""torch.distributed.launch, torchrun's predecessor: every node starts its own part, worker-0 is the
master."""

from __future__ import annotations

from entrypoint.launchers import _torch
from entrypoint.model import File, Launch, Members, Topology
from entrypoint.spec import JobSpec

ALSO = ("torch.distributed.launch",)  # other names


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """Return torchlaunch.sh on every node, with the command as arguments."""
    return _torch.launch(spec, topology, "torchlaunch")


def scripts(spec: JobSpec, topology: Topology, members: Members, origin: str) -> tuple[File, ...]:
    """Return the files that `entrypoint render` writes for this launcher."""
    return (_torch.script(spec, topology, "torchlaunch", origin),)
