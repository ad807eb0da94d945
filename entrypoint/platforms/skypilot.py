"""SkyPilot: tasks on clusters of any cloud, of Kubernetes or of Slurm. Their nodes have IP
addresses instead of names.

Sources: SkyPilot's documentation, "Distributed Multi-Node Jobs" and "Environment Variables and
Secrets". Line i of SKYPILOT_NODE_IPS is node i. The variables of the setup stage
(SKYPILOT_SETUP_*), maybe in another order, are not read. No variable has a valid name for the job:
SKYPILOT_TASK_ID contains `_`.
"""

from __future__ import annotations

from entrypoint.platforms._clues import Clues

LAYER = 0
MARKS = ("SKYPILOT_NODE_RANK", "SKYPILOT_TASK_ID")
SECRET = "name ENTRYPOINT_SECRET under the task's secrets"
ROWS = """
`skypilot` | `SKYPILOT_NODE_RANK` | `SKYPILOT_NODE_IPS` | `SKYPILOT_NODE_RANK` |
    `SKYPILOT_NUM_GPUS_PER_NODE`
"""


def read(clues: Clues) -> None:
    """Take the nodes' addresses, this node's rank and its GPUs, from SkyPilot's variables.

    Raises ConfigError if a variable is not the number it has to be.
    """
    clues.take_hosts("SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES")
    clues.take_index("SKYPILOT_NODE_RANK")
    clues.take_slots("SKYPILOT_NUM_GPUS_PER_NODE")
