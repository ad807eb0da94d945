"""Kubeflow's PyTorchJob (training-operator v1).

Sources: training-operator, pkg/controller.v1/pytorch/envvar.go: PET_NNODES counts nodes;
PET_NODE_RANK, and RANK next to MASTER_ADDR, are this node's rank, the master's being 0; WORLD_SIZE
counts processes, with "auto" as one, and is not read. master.go: MASTER_ADDR `<job>-master-0`.
elastic.go: PET_RDZV_ENDPOINT, and PET_NNODES as `<min>:<max>` of the workers. common/job.go: each
pod has a service of its name.

The platform names only the master. The workers' names are derived, `<job>-worker-<index>`. Those of
an elastic job are known if it has no master and min is max, which the operator writes for a policy
that names neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.base.model import Facts
from entrypoint.platforms import _kubeflow
from entrypoint.platforms._clues import POD_SECRET, Clues, label, number, numbered

_NODES = "PET_NNODES"
_RENDEZVOUS = "PET_RDZV_ENDPOINT"
_MASTER = "-master-0"
# Set by systems whose users set PET_RDZV_ENDPOINT by hand; none of their containers is of a
# PyTorchJob.
_OTHERS = ("JOB_COMPLETION_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_OTHERS_FOLDER = "/etc/volcano/"
LAYER = 2
MARKS = (_NODES, _RENDEZVOUS)
SECRET = POD_SECRET
ROWS = """
`pytorchjob` | `PET_NNODES` or `PET_RDZV_ENDPOINT`, with a PyTorchJob's host name | by rule
    from it | `RANK` | `PET_NPROC_PER_NODE` | `hosts`, for an elastic job whose size is not
    fixed
"""


def matches(facts: Facts) -> bool:
    """Return whether training-operator started this container: not Kubeflow Trainer, nor a user
    with its variables."""
    env = facts.env
    if _kubeflow.trainjob(env)[0]:
        return False
    if _master(env):
        return True
    elastic = env.get(_RENDEZVOUS) and env.get("KUBERNETES_SERVICE_HOST") and _replica(facts)
    others = (*map(env.get, _OTHERS), *(path.startswith(_OTHERS_FOLDER) for path in facts.files))
    return bool(elastic) and not any(others)


def read(clues: Clues) -> None:
    """Take the master, then the workers; of an elastic job only the workers.

    Raises ConfigError if a variable is not the number it has to be.
    """
    env = clues.env
    master = _master(env)
    replica = _replica(clues.facts)
    # RANK is a node's only if training-operator set it, next to MASTER_ADDR.
    rank = clues.first("PET_NODE_RANK", *("RANK",) * bool(master))
    clues.take("index", clues.number(rank), rank)
    if not env.get(_RENDEZVOUS):
        _take_hosts(clues, master)
    elif hosts := _workers(clues, replica[0] if replica and not master else ""):
        clues.take("hosts", hosts, "host name")
        clues.take("index", replica[1] if replica else None, "host name")
    _kubeflow.take_slots(clues)
    if master:
        clues.take_job("MASTER_ADDR", master)
    elif replica:
        clues.take_job("host name", replica[0])


def _master(env: Mapping[str, str]) -> str:
    """Return the name of the PyTorchJob, from MASTER_ADDR, `<job>-master-0`; empty if it has
    another form."""
    master = env.get("MASTER_ADDR", "").strip()
    return master.removesuffix(_MASTER) if master.endswith(_MASTER) else ""


def _replica(facts: Facts) -> tuple[str, int] | None:
    """Return the name of the PyTorchJob and this pod's index, from the host name
    `<job>-worker-<index>`."""
    return numbered(label(facts.hostname), "-worker-")


def _take_hosts(clues: Clues, job: str) -> None:
    count = clues.number(_NODES)
    if not job:
        clues.no_hosts(
            "nothing names the nodes of this PyTorchJob",
            f"MASTER_ADDR is {clues.env.get('MASTER_ADDR', '')[:60]!r}",
            "set ENTRYPOINT_HOSTS",
        )
    elif not count:
        clues.unknown["hosts"] = _kubeflow.not_counted(_NODES, clues.env)
    else:
        workers = (f"{job}-worker-{index}" for index in range(count - 1))
        clues.take("hosts", (f"{job}-master-0", *workers), "MASTER_ADDR")


def _workers(clues: Clues, job: str) -> tuple[str, ...]:
    """Return the nodes of an elastic job, if their number is fixed."""
    text = clues.env.get(_NODES, "").strip()
    low, colon, high = text.partition(":")
    least = number(low, _NODES)
    most = number(high if colon else low, _NODES)
    if job and least and least == most:
        return tuple(f"{job}-worker-{index}" for index in range(least))
    clues.no_hosts(
        "an elastic PyTorchJob does not say which nodes it has",
        f"{_NODES} is {text[:60]!r}",
        "set ENTRYPOINT_HOSTS on all nodes, or make minReplicas and maxReplicas one number,"
        " without a Master replica",
    )
    return ()
