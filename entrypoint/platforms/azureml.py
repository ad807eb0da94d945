"""Azure Machine Learning jobs.

Sources: "Distributed GPU training guide" for NODE_RANK, MASTER_ADDR and AZ_BATCH_MASTER_NODE, and
for MPI jobs with one process a node; "Azure Batch runtime environment variables" for
AZ_BATCH_HOST_LIST and AZ_BATCH_NODE_LIST, on which its compute clusters run; public job scripts for
AZUREML_NODE_COUNT, AZ_BATCHAI_TASK_INDEX and VC_WORKER_HOSTS (Kubernetes).

Not documented, and derived here: the master is node 0, and the others follow in the order of the
list. If a node's rank differs, the roll call ends with an error that shows both. Not every kind of
compute provides a list of the nodes: without one, the spec has to name them.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.platforms._clues import Clues, names

_LISTS = ("AZ_BATCH_HOST_LIST", "AZ_BATCH_NODE_LIST", "VC_WORKER_HOSTS")
_MASTERS = ("AZ_BATCH_MASTER_NODE", "MASTER_ADDR")
_RANKS = ("NODE_RANK", "AZ_BATCHAI_TASK_INDEX", "OMPI_COMM_WORLD_RANK")
LAYER = 0
MARKS = ("AZUREML_NODE_COUNT", "AZUREML_RUN_ID")
SECRET = "give ENTRYPOINT_SECRET in the job's environment_variables"
ROWS = """
`azureml` | `AZUREML_NODE_COUNT` or `AZUREML_RUN_ID` | `AZ_BATCH_HOST_LIST`,
    `VC_WORKER_HOSTS` | `NODE_RANK` | the devices | `hosts`, where the compute lists none
"""


def read(clues: Clues) -> None:
    """Take the hosts and this node's rank, as far as the kind of compute provides them.

    Raises ConfigError if a variable is not the number it has to be.
    """
    lists = next(
        (name for name in _LISTS if clues.env.get(name)),
        f"{_LISTS[0]} (or {', '.join(_LISTS[1:])})",
    )
    hosts = _master_first(names(clues.env.get(lists, "").replace(";", ",")), clues.env)
    clues.take_hosts(lists, "AZUREML_NODE_COUNT", hosts)
    clues.take_index(clues.first(*_RANKS))
    clues.take_job("AZUREML_RUN_ID")


def _master_first(listed: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts with the master first: it is node 0, whatever its place in the list is."""
    for name in _MASTERS:
        for master in names(env.get(name, ""))[:1]:
            if master in listed:
                return (master, *(host for host in listed if host != master))
    return listed
