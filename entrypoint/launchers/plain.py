"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.launchers._place import place
from entrypoint.model import EnvVar, Launch, Members, Program, Topology
from entrypoint.spec import JobSpec

ALSO = ("none", "single", "python")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """The command as it is; of several nodes each is told by variables where it stands among them."""
    env: tuple[EnvVar, ...] = ()
    if len(topology.nodes) > 1:
        rank, *meeting = place(spec, topology)
        hosts = str(topology.origins.get("hosts", ""))
        nodes = EnvVar("NNODES", str(len(topology.nodes)), hosts, default=True)
        names = EnvVar("NODE_HOSTS", ",".join(node.where for node in topology.nodes), hosts, default=True)
        env = (rank, nodes, names, *meeting)
    return Launch((Program(spec.command, env),), becomes_program=True, completion="first-failure")
