"""Kubeflow Trainer v2 (TrainJob) with a torch, a JAX, an XGBoost or an MPI runtime.

Sources: trainer, pkg/runtime/framework/plugins/torch/torch.go: PET_NNODES, PET_NODE_RANK,
PET_NPROC_PER_NODE and PET_MASTER_ADDR `<job>-node-0-0.<job>`; plugins/jax/jax.go:
JAX_NUM_PROCESSES, one process a node, JAX_PROCESS_ID and JAX_COORDINATOR_ADDRESS, the same name
with a port; plugins/xgboost/xgboost.go: DMLC_TRACKER_URI, the same name, DMLC_TASK_ID, which counts
nodes, and DMLC_NUM_WORKER, which counts the GPUs of all nodes, or the nodes if they have none;
JobSet for the host names `<jobset>-<group>-<job>-<pod>.<jobset>`.

torch, JAX and XGBoost get only the first node's name. The others' names are derived from it: the
last number is the node's rank. The user's program starts XGBoost's workers and its tracker itself.

Of an MPI runtime (plugins/mpi/mpi.go) only the launcher, `<job>-launcher-0-0`, has the hostfile,
from the ConfigMap `<job>-mpi-hostfile`, and is in it with `runLauncherAsNode: true`; the nodes,
`<job>-node-0-<index>`, get no names. A hostfile of such names identifies the TrainJob. Its order is
that of the runtime's replicatedJobs.
"""

from __future__ import annotations

from entrypoint.base.model import Facts
from entrypoint.platforms import _hostfile, _kubeflow
from entrypoint.platforms._clues import POD_SECRET, Clues, Reason, label, numbered

_WORKERS = "DMLC_NUM_WORKER"
# Of each runtime but torch's: the address -> what counts, this node's number, the launcher.
_VARIABLES = {
    "JAX_COORDINATOR_ADDRESS": ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "jax"),
    "DMLC_TRACKER_URI": (_WORKERS, "DMLC_TASK_ID", "plain"),
}
_LAUNCHER = "-launcher-0-0"
_NODE = "-node-0-"
LAYER = 2
MARKS = ("PET_NODE_RANK", *_VARIABLES, "JOB_COMPLETION_INDEX")
FILES = (_hostfile.HOSTFILE,)
SECRET = POD_SECRET
ROWS = """
`trainer` | `PET_NODE_RANK`, `JAX_COORDINATOR_ADDRESS` or `DMLC_TRACKER_URI`, with a
    TrainJob's host name | by rule from it | `PET_NODE_RANK`, `JAX_PROCESS_ID`, `DMLC_TASK_ID` |
    `PET_NPROC_PER_NODE`, else 1 | nothing; `entrypoint deploy kubernetes --kind trainjob`
    writes one
`trainer`, MPI runtime | `/etc/mpi/hostfile` with a TrainJob's host names | that file | its
    host name | `slots=` | `runLauncherAsNode: true`, and `entrypoint run` as the nodes'
    command; on nodes `hosts`, or ConfigMap `<job>-mpi-hostfile` at `/etc/mpi`
"""


def matches(facts: Facts) -> bool:
    """Return whether the first node's address, or the first of a hostfile, is a TrainJob's."""
    return bool(_kubeflow.trainjob(facts.env)[0] or _of_mpi(facts))


def read(clues: Clues) -> None:
    """Take the nodes of the TrainJob, from its name and their number.

    Raises ConfigError if a variable is not the number it has to be.
    """
    facts = clues.facts
    job, address = _kubeflow.trainjob(facts.env)
    if not job and (job := _of_mpi(facts)):
        _take_mpi(clues, job)
        return
    counter, rank, launcher = _VARIABLES.get(address, ("PET_NNODES", "PET_NODE_RANK", ""))
    count = clues.number(counter)
    clues.take("index", clues.number(rank), rank)
    reason = _unknown(facts, job, count, counter)
    if count and counter == _WORKERS:
        cards = sum(name[:6] == "nvidia" and name[6:].isdigit() for name in facts.device_files) or 1
        if count % cards:
            reason = reason or (
                "XGBoost's workers are no multiple of this node's GPUs",
                f"{_WORKERS} is {count}, and this node has {cards} GPUs",
                "set ENTRYPOINT_HOSTS",
            )
        count //= cards
    if reason:
        clues.unknown["hosts"] = reason
    else:
        clues.take(
            "hosts", tuple(f"{job}{_NODE}{index}.{job}" for index in range(count or 0)), address
        )
    if launcher:
        clues.take("slots", 1, counter)
        clues.take("launcher", launcher, address)
    else:
        _kubeflow.take_slots(clues)
    clues.take_job(address, job)


def _of_mpi(facts: Facts) -> str:
    """Return the name of the TrainJob whose launcher or node is first in the hostfile; empty if
    there is none."""
    for host in _hostfile.names(facts.files)[:1]:
        pod, _, service = host.partition(".")
        node = numbered(pod, _NODE)
        job = node[0] if node else pod.removesuffix(_LAUNCHER)
        if job != pod and label(service) == job:
            return job
    return ""


def _take_mpi(clues: Clues, job: str) -> None:
    facts = clues.facts
    file = _hostfile.read(facts)
    reason = None
    if file.index is None and label(facts.hostname) == job + _LAUNCHER:
        reason = (
            "this launcher is not a node of the job",
            f"{_hostfile.HOSTFILE} does not name {facts.hostname}",
            "set runLauncherAsNode: true in the runtime, or name it in ENTRYPOINT_HOSTS on all"
            " nodes",
        )
    _hostfile.take(clues, file, job, reason)


def _unknown(facts: Facts, job: str, count: int | None, counter: str) -> Reason | None:
    """Return why the nodes of the job are unknown, if they are."""
    if not job:
        detail = ", ".join(
            f"{name} is {facts.env.get(name, '')[:60]!r}" for name in _kubeflow.ADDRESSES
        )
        return "nothing names the nodes of this TrainJob", detail, "set ENTRYPOINT_HOSTS"
    return None if count else _kubeflow.not_counted(counter, facts.env)
