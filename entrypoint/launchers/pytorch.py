"""PyTorch as ModelArts boots it: the program once a node, told where to meet; it starts its processes by mp.spawn."""

from __future__ import annotations

from entrypoint.launchers._command import refuse_launcher, with_options
from entrypoint.launchers._place import endpoint
from entrypoint.model import Launch, LaunchEnds, Members, Program, Topology
from entrypoint.spec import DEFAULT, JobSpec

ALSO = ("spawn", "mp.spawn")  # what else people call it

_SETTLED = {"init_method": "hosts and torch.port", "rank": "node_rank", "world_size": "hosts"}


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """The command on every node, with the arguments that its topology asks for right after the script.

    Raises SpecError when the command has one of them already.
    """
    refuse_launcher(spec, "pytorch")
    argv = with_options(spec, _arguments(spec, topology), _SETTLED)
    return Launch((Program(argv),), ends=LaunchEnds(completion="first-failure"))


def _arguments(spec: JobSpec, topology: Topology) -> dict[str, str]:
    """Counts are of nodes: the program multiplies them by its own processes."""
    nodes = len(topology.nodes)
    always = spec.torch.rank_args == "always"
    added = {}
    if nodes > 1 or topology.this.slots > 1 or always:
        host = topology.leader.where
        if nodes == 1 and topology.origins.get("hosts", DEFAULT).origin == "default":
            host = "127.0.0.1"  # the container's own host name, which it may not even know
        added["init_method"] = f"tcp://{endpoint(host, spec.torch.port)}"
    if nodes > 1 or always:
        added |= {"rank": str(topology.me), "world_size": str(nodes)}
    return added
