"""torch.distributed.launch, torchrun's predecessor: every node starts its own part, worker-0 is the
master."""

from __future__ import annotations

from entrypoint.base.model import File, Launch, Topology
from entrypoint.launchers import _torch
from entrypoint.launchers._common import master
from entrypoint.spec import JobSpec

ALSO = ("torch.distributed.launch",)  # other names

# Settings that torch.distributed.launch has no options for.
_OF_TORCHRUN = ("torch.max_restarts", "torch.rdzv_backend", "timeouts.peers", "timeouts.join")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return torch.distributed.launch on every node, with the command in its own form."""
    options = (
        "torch.distributed.launch",
        f"--nnodes={len(topology.nodes)}",
        f"--node_rank={topology.me}",
        f"--nproc_per_node={topology.this.slots}",
        f"--master_addr={master(topology)}",
        f"--master_port={_torch.port(spec)}",
        # Without it every torch so far adds the local rank to the program's arguments.
        "--use_env",
        *spec.launcher_args,
    )
    return _torch.launch(spec, topology, "torchlaunch", options)


def script(spec: JobSpec, topology: Topology, origin: str) -> File:
    """Return the file that `entrypoint render` writes for this launcher."""
    use_env = spec.env.get("TORCHLAUNCH_USE_ENV", "")
    return _torch.script(spec, topology, "torchlaunch", origin, plan, _OF_TORCHRUN, use_env=use_env)
