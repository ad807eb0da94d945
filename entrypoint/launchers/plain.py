"""No launcher: the program itself, once on each node, its arguments untouched."""

from __future__ import annotations

from entrypoint.base.model import Launch, Program, Topology, usual
from entrypoint.base.values import replace
from entrypoint.launchers._common import meeting_port, place
from entrypoint.spec import JobSpec

ALSO = ("none", "single", "python")  # other names


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return the unchanged command; on several nodes, variables tell each its place among them.

    If each node has one slot, the program is the rank of its node, and gets the variables of
    torchrun. Otherwise it starts the processes of its node itself, and is ended where it starts
    them as a job of this node alone (ranks/nested.py).
    """
    many = topology.has_peers
    rank, *meeting = place(spec, topology)
    hosts = topology.origin("hosts")
    nodes = usual("NNODES", str(len(topology.nodes)), hosts)
    names = usual("NODE_HOSTS", ",".join(node.where for node in topology.nodes), hosts)
    slots = topology.origin("slots")
    processes = usual("NPROC_PER_NODE", str(topology.this.slots), slots)
    numbers = {
        "RANK": rank.value,
        "WORLD_SIZE": nodes.value,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    # Where a container has such variables unasked, they get the values of this job.
    is_rank = topology.world_size == len(topology.nodes)
    env = (
        *(replace(var, corrects=not many) for var in (rank, nodes, names, *meeting)),
        *((processes,) if many else ()),
        *(
            usual(name, value, "one slot a node", corrects=not (many and is_rank))
            for name, value in numbers.items()
        ),
    )
    return Launch(
        (Program(spec.command, env, rank=topology.me if is_rank else None),),
        becomes_program=True,
        port=meeting_port(spec, topology, "MASTER_PORT", needed=False),
    )
