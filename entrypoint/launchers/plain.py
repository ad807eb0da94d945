"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.launchers._place import place
from entrypoint.model import EnvVar, Launch, LaunchEnds, LaunchStart, Members, Program, Topology
from entrypoint.spec import JobSpec

ALSO = ("none", "single", "python")  # what else people call it


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """The command as it is; of several nodes each is told by variables where it stands among them.

    Where each node has one slot, the program is the rank of its node, and is told so as under torchrun.
    """
    env: tuple[EnvVar, ...] = ()
    if len(topology.nodes) > 1:
        rank, *meeting = place(spec, topology)
        hosts = str(topology.origins.get("hosts", ""))
        nodes = EnvVar("NNODES", str(len(topology.nodes)), hosts, default=True)
        names = EnvVar("NODE_HOSTS", ",".join(node.where for node in topology.nodes), hosts, default=True)
        env = (rank, nodes, names, *meeting)
        if _one_each(topology):  # else the program starts the processes of its node itself
            variables = {"RANK": rank.value, "WORLD_SIZE": nodes.value, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            # A platform's own RANK may count something else, and would not go with our WORLD_SIZE.
            users = topology.platform == "local"
            env += tuple(
                EnvVar(name, value, "one slot a node", default=users)
                for name, value in variables.items()
                if name not in spec.env
            )
    program = Program(spec.command, env, rank=topology.me if _one_each(topology) else None)
    return Launch((program,), start=LaunchStart(becomes_program=True), ends=LaunchEnds(completion="first-failure"))


def _one_each(topology: Topology) -> bool:
    """Whether each node is one rank."""
    return topology.world_size == len(topology.nodes)
