"""PyTorch as ModelArts boots it: the program once a node, which starts its processes by
mp.spawn."""

from __future__ import annotations

from entrypoint.base.model import DEFAULT, Launch, Program, Topology
from entrypoint.launchers._common import PORT, endpoint, meeting_port, with_options
from entrypoint.spec import JobSpec

ALSO = ("spawn", "mp.spawn")  # other names

_SETTLED = {"init_method": "hosts and port", "rank": "node_rank", "world_size": "hosts"}


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return the command on every node, with the arguments for its topology right after the script.

    Raises SpecError if the command already has one of them.
    """
    # They count nodes, since the program multiplies them by its own processes.
    nodes = len(topology.nodes)
    always = spec.torch.rank_args == "always"
    arguments = {}
    if nodes > 1 or topology.this.slots > 1 or always:
        host = topology.leader.where
        if nodes == 1 and topology.origins.get("hosts", DEFAULT).origin == "default":
            host = "127.0.0.1"  # the container's own host name may not resolve
        arguments["init_method"] = f"tcp://{endpoint(host, spec.port or PORT)}"
    if nodes > 1 or always:
        arguments |= {"rank": str(topology.me), "world_size": str(nodes)}
    return Launch(
        (Program(with_options(spec, arguments, _SETTLED)),),
        port=meeting_port(spec, topology),
    )
