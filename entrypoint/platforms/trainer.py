"""Kubeflow Trainer v2 (TrainJob) with a torch or a JAX runtime.

Sources: trainer, pkg/runtime/framework/plugins/torch/torch.go: PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE and
PET_MASTER_ADDR `<job>-node-0-0.<job>`; plugins/jax/jax.go: JAX_NUM_PROCESSES, one process a node, JAX_PROCESS_ID and
JAX_COORDINATOR_ADDRESS, the same name with a port; JobSet for the host names `<jobset>-<group>-<job>-<pod>.<jobset>`.

The platform names the first node alone. The others' names are derived from it: the last number is the node's rank.
"""

from __future__ import annotations

from entrypoint.model import Facts, Site
from entrypoint.platforms import _kubeflow
from entrypoint.platforms._hosts import Unknown
from entrypoint.platforms._names import job_name
from entrypoint.platforms._numbers import number


def matches(facts: Facts) -> bool:
    """Whether the first node's address is a TrainJob's."""
    return bool(_kubeflow.trainjob(facts.env)[0])


def site(facts: Facts) -> Site:
    """The nodes of the TrainJob, by its name and their number.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    job, address = _kubeflow.trainjob(env)
    jax = address.startswith("JAX")
    counted, ranked = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID") if jax else ("PET_NNODES", "PET_NODE_RANK")
    count, index = number(env, counted), number(env, ranked)
    unknown = _unknown(facts, job, count, counted)
    hosts = () if unknown else tuple(f"{job}-node-0-{rank}.{job}" for rank in range(count or 0))
    if hosts:
        origins["hosts"] = address
    if index is not None:
        origins["node_rank"] = ranked
    if jax:
        origins["slots"] = counted
    name = job_name(job)
    if name:
        origins["name"] = address
    return Site(
        platform="trainer",
        hosts=hosts,
        index=index,
        slots=1 if jax else _kubeflow.slots(env, origins),
        job=name,
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _unknown(facts: Facts, job: str, count: int | None, counted: str) -> Unknown:
    """Why the nodes of the job are not known."""
    if not job:
        seen = ", ".join(f"{name} is {facts.env.get(name, '')[:60]!r}" for name in _kubeflow.ADDRESSES)
        return {"hosts": ("nothing names the nodes of this TrainJob", seen, "set ENTRYPOINT_HOSTS")}
    return {} if count else {"hosts": _kubeflow.nobody_counts(counted, facts.env)}
