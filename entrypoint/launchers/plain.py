"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.launchers._place import meeting_port, place
from entrypoint.model import EnvVar, Launch, LaunchEnds, LaunchStart, Members, Program, Topology
from entrypoint.spec import JobSpec

ALSO = ("none", "single", "python")  # other names


def plan(spec: JobSpec, topology: Topology, members: Members) -> Launch:
    """Return the unchanged command; on several nodes, variables tell each its place among them.

    If each node has one slot, the program is the rank of its node, and gets the variables of
    torchrun.
    """
    env: tuple[EnvVar, ...] = ()
    if len(topology.nodes) > 1:
        rank, *meeting = place(spec, topology)
        hosts = str(topology.origins.get("hosts", ""))
        nodes = EnvVar("NNODES", str(len(topology.nodes)), hosts, default=True)
        names = EnvVar(
            "NODE_HOSTS", ",".join(node.where for node in topology.nodes), hosts, default=True
        )
        env = (rank, nodes, names, *meeting)
        # otherwise the program starts the processes of its node itself
        if _has_one_rank_a_node(topology):
            variables = {
                "RANK": rank.value,
                "WORLD_SIZE": nodes.value,
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
            }
            # A platform's own RANK may have another meaning, which would not match our WORLD_SIZE.
            is_users = topology.platform == "local"
            env += tuple(
                EnvVar(name, value, "one slot a node", default=is_users)
                for name, value in variables.items()
                if name not in spec.env
            )
    program = Program(
        spec.command, env, rank=topology.me if _has_one_rank_a_node(topology) else None
    )
    return Launch(
        (program,),
        start=LaunchStart(becomes_program=True),
        ends=LaunchEnds(completion="first-failure"),
        port=meeting_port(spec, topology, "torch.port", "MASTER_PORT", needed=False),
    )


def _has_one_rank_a_node(topology: Topology) -> bool:
    """Return whether each node is one rank."""
    return topology.world_size == len(topology.nodes)
