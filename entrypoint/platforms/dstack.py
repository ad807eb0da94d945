"""dstack: tasks on clouds, Kubernetes and one's own machines. Their nodes have IP addresses instead
of names.

Sources: dstack's documentation, "Environment variables" and "Distributed tasks"; its runner for
empty values: DSTACK_NODES_IPS has an empty line for a node whose address is unknown. Line i is node
i, and the first one is DSTACK_MASTER_NODE_IP.
"""

from __future__ import annotations

from entrypoint.base.interfaces import ip
from entrypoint.platforms._clues import Clues

LAYER = 0
MARKS = ("DSTACK_NODE_RANK", "DSTACK_RUN_ID")
SECRET = "give ENTRYPOINT_SECRET in the task's env, from a secret of the project"
ROWS = """
`dstack` | `DSTACK_NODE_RANK` or `DSTACK_RUN_ID` | `DSTACK_NODES_IPS` | `DSTACK_NODE_RANK` |
    `DSTACK_GPUS_PER_NODE`
"""


def read(clues: Clues) -> None:
    """Take the nodes' addresses, this node's rank and its GPUs, from dstack's variables.

    Raises ConfigError if a variable is not the number it has to be.
    """
    clues.take_hosts("DSTACK_NODES_IPS", "DSTACK_NODES_NUM")
    clues.take_index("DSTACK_NODE_RANK")
    clues.take_slots("DSTACK_GPUS_PER_NODE")
    clues.take_job("DSTACK_RUN_NAME")
    master = clues.env.get("DSTACK_MASTER_NODE_IP", "").strip()
    if not (clues.hosts and master) or _same(clues.hosts[0], master):
        return
    clues.no_hosts(
        "the platform names another master than the first host",
        f"DSTACK_NODES_IPS begins with {clues.hosts[0][:60]}, DSTACK_MASTER_NODE_IP is"
        f" {master[:60]}",
        "set ENTRYPOINT_HOSTS, the master first",
    )
    clues.drop("hosts")


def _same(one: str, other: str) -> bool:
    return one == other or (ip(one) is not None and ip(one) == ip(other))  # ::1 has many spellings
