"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.model import EnvVar, Launch, Members, Program, Topology
from entrypoint.spec import JobSpec

ALSO = ("none", "single", "python")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """The command as it is; of several nodes each is told by variables where it stands among them."""
    env = _place(spec, topology) if len(topology.nodes) > 1 else ()
    return Launch((Program(spec.command, env),), becomes_program=True, completion="first-failure")


def _place(spec: JobSpec, topology: Topology) -> tuple[EnvVar, ...]:
    """Names that PyTorch's and others' programs know, unless the user has a value."""
    hosts = str(topology.origins.get("hosts", ""))
    values = {
        "NODE_RANK": (str(topology.me), str(topology.origins.get("node_rank", ""))),
        "NNODES": (str(len(topology.nodes)), hosts),
        "NODE_HOSTS": (",".join(node.address or node.host for node in topology.nodes), hosts),
        "MASTER_ADDR": (topology.leader.address or topology.leader.host, hosts),
        "MASTER_PORT": (str(spec.torch.port), str(spec.source("torch.port"))),
    }
    return tuple(EnvVar(name, value, origin, default=True) for name, (value, origin) in values.items())
