"""Kubeflow Trainer v2 (TrainJob) with a torch, a JAX or an MPI runtime.

Sources: trainer, pkg/runtime/framework/plugins/torch/torch.go: PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE and
PET_MASTER_ADDR `<job>-node-0-0.<job>`; plugins/jax/jax.go: JAX_NUM_PROCESSES, one process a node, JAX_PROCESS_ID and
JAX_COORDINATOR_ADDRESS, the same name with a port; JobSet for the host names `<jobset>-<group>-<job>-<pod>.<jobset>`.

torch and JAX are told the first node alone. The others' names are derived from it: the last number is the node's rank.

Of an MPI runtime (plugins/mpi/mpi.go) only the launcher, `<job>-launcher-0-0`, has the hostfile, from the ConfigMap
`<job>-mpi-hostfile`, and is in it with `runLauncherAsNode: true`; the nodes, `<job>-node-0-<index>`, are told nothing.
A hostfile of such names tells the TrainJob, wherever it is mounted. Its order is that of the runtime's replicatedJobs.
"""

from __future__ import annotations

from entrypoint.model import Facts, Site
from entrypoint.platforms import _hostfile, _kubeflow
from entrypoint.platforms._hosts import Unknown, job
from entrypoint.platforms._names import label, numbered
from entrypoint.platforms._numbers import number

_LAUNCHER, _NODE = "-launcher-0-0", "-node-0-"


def matches(facts: Facts) -> bool:
    """Whether the first node's address, or the first of a hostfile, is a TrainJob's."""
    return bool(_kubeflow.trainjob(facts.env)[0] or _of_mpi(facts))


def site(facts: Facts) -> Site:
    """The nodes of the TrainJob, by its name and their number.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    name, address = _kubeflow.trainjob(env)
    if not name and (name := _of_mpi(facts)):
        return _mpi_site(facts, name)
    jax = address.startswith("JAX")
    counted, ranked = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID") if jax else ("PET_NNODES", "PET_NODE_RANK")
    count, index = number(env, counted), number(env, ranked)
    unknown = _unknown(facts, name, count, counted)
    hosts = () if unknown else tuple(f"{name}{_NODE}{rank}.{name}" for rank in range(count or 0))
    if hosts:
        origins["hosts"] = address
    if index is not None:
        origins["node_rank"] = ranked
    if jax:
        origins["slots"], origins["launcher"] = counted, address
    return Site(
        platform="trainer",
        hosts=hosts,
        index=index,
        slots=1 if jax else _kubeflow.slots(env, origins),
        job=job({address: name}, address, origins),
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
        launcher="jax" if jax else None,
    )


def _of_mpi(facts: Facts) -> str:
    """The name of the TrainJob whose launcher or node is first in the hostfile; empty where there is none."""
    for host in _hostfile.names(facts.files)[:1]:
        own, _, service = host.partition(".")
        node = numbered(own, _NODE)
        found = node[0] if node else own.removesuffix(_LAUNCHER)
        if found != own and label(service) == found:
            return found
    return ""


def _mpi_site(facts: Facts, name: str) -> Site:
    file = _hostfile.read(facts)
    unknown: Unknown = {}
    if file.index is None and label(facts.hostname) == name + _LAUNCHER:
        unknown["hosts"] = (
            "this launcher is not a node of the job",
            f"{_hostfile.HOSTFILE} does not name {facts.hostname}",
            "set runLauncherAsNode: true in the runtime, or name it in ENTRYPOINT_HOSTS on all nodes",
        )
    return _hostfile.site("trainer", facts, file, name, unknown)


def _unknown(facts: Facts, job: str, count: int | None, counted: str) -> Unknown:
    """Why the nodes of the job are not known."""
    if not job:
        seen = ", ".join(f"{name} is {facts.env.get(name, '')[:60]!r}" for name in _kubeflow.ADDRESSES)
        return {"hosts": ("nothing names the nodes of this TrainJob", seen, "set ENTRYPOINT_HOSTS")}
    return {} if count else {"hosts": _kubeflow.nobody_counts(counted, facts.env)}
