"""Google Vertex AI custom training.

Sources: Vertex AI, "Distributed training": the worker pools, "The format of CLUSTER_SPEC", and that
a Reduction Server, which is Google's own image, is a third pool.
google.cloud.aiplatform.training_utils reads CLOUD_ML_JOB_ID.

Nodes are the first two pools, the primary replica and the workers. The user chooses the role of the
third and fourth (parameter servers, a Reduction Server, evaluators), and CLUSTER_SPEC does not show
it: a container there is refused.

The services behind these names forward few ports. Google's samples have sshd on 2222: set
ENTRYPOINT_SSH_PORT=2222.
"""

from __future__ import annotations

from entrypoint.base.model import Facts
from entrypoint.platforms._clues import Clues
from entrypoint.platforms._cluster import parse

_SPEC = "CLUSTER_SPEC"
_POOLS = ("workerpool0", "workerpool1")  # the primary replica is the first node
LAYER = 0
MARKS = (_SPEC,)
SECRET = "give ENTRYPOINT_SECRET in the env of each worker pool"
ROWS = """
`vertex` | `CLUSTER_SPEC` | worker pools 0 and 1 | its task | the devices |
    `ENTRYPOINT_SSH_PORT=2222`
"""


def matches(facts: Facts) -> bool:
    """Return whether CLUSTER_SPEC is Vertex AI's: other systems may have a variable of that
    name."""
    return _POOLS[0] in facts.env.get(_SPEC, "")


def read(clues: Clues) -> None:
    """Take the hosts: the primary replica, then the workers.

    Raises ConfigError if CLUSTER_SPEC is not as documented.
    """
    cluster = parse(clues.env, _SPEC)
    clues.take_listeners(cluster.hosts(_POOLS), _SPEC)
    clues.take("index", cluster.place(_POOLS), _SPEC)
    clues.take_job("CLOUD_ML_JOB_ID")
    if cluster.task not in _POOLS:
        clues.no_hosts(
            "nodes are the containers of the first two worker pools",
            f"CLUSTER_SPEC: task.type is {cluster.task[:60]!r}",
            "move it to the second pool, or set ENTRYPOINT_PLATFORM=local to run its program alone",
        )
    elif clues.index is None:
        clues.unknown["node_rank"] = cluster.beyond
