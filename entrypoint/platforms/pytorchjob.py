"""Kubeflow's PyTorchJob (training-operator v1).

Sources: training-operator, pkg/controller.v1/pytorch/envvar.go: PET_NNODES counts nodes; PET_NODE_RANK, and RANK beside
MASTER_ADDR, are this node's rank, the master's being 0; WORLD_SIZE counts processes, with "auto" as one, and is not
read. master.go: MASTER_ADDR `<job>-master-0`. elastic.go: PET_RDZV_ENDPOINT, and PET_NNODES as `<min>:<max>` of the
workers. common/job.go: each pod has a service of its name.

The platform names the master alone. The workers' names are derived, `<job>-worker-<index>`. An elastic job's are known
where it has no master and min is max, which is what the operator writes for a policy that names neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.model import Facts, Site
from entrypoint.platforms import _kubeflow
from entrypoint.platforms._hosts import Unknown, job
from entrypoint.platforms._numbers import number

_NODES = "PET_NNODES"
_RENDEZVOUS = "PET_RDZV_ENDPOINT"


def matches(facts: Facts) -> bool:
    """Whether the host names are a PyTorchJob's, and not a TrainJob's."""
    return _kubeflow.is_pytorchjob(facts)


def site(facts: Facts) -> Site:
    """The master, then the workers; of an elastic job the workers.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    master, own = _kubeflow.pytorchjob(env), _kubeflow.replica(facts.hostname)
    index = _rank(env, bool(master), origins, unknown)
    if not env.get(_RENDEZVOUS):
        hosts = _hosts(env, master, unknown)
    elif hosts := _workers(env, own[0] if own and not master else "", unknown):
        index = own[1] if own else None
        origins["node_rank"] = "host name"
    if hosts:
        origins["hosts"] = "host name" if env.get(_RENDEZVOUS) else "MASTER_ADDR"
    named = "MASTER_ADDR" if master else "host name"
    return Site(
        platform="pytorchjob",
        hosts=hosts,
        index=index,
        slots=_kubeflow.slots(env, origins),
        job=job({named: master or (own[0] if own else "")}, named, origins),
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _hosts(env: Mapping[str, str], job: str, unknown: Unknown) -> tuple[str, ...]:
    count = number(env, _NODES)
    if not job:
        seen = f"MASTER_ADDR is {env.get('MASTER_ADDR', '')[:60]!r}"
        unknown["hosts"] = ("nothing names the nodes of this PyTorchJob", seen, "set ENTRYPOINT_HOSTS")
    elif not count:
        unknown["hosts"] = _kubeflow.nobody_counts(_NODES, env)
    else:
        return (f"{job}-master-0", *(f"{job}-worker-{index}" for index in range(count - 1)))
    return ()


def _workers(env: Mapping[str, str], job: str, unknown: Unknown) -> tuple[str, ...]:
    """The nodes of an elastic job, where their number is fixed."""
    text = env.get(_NODES, "").strip()
    low, to, high = text.partition(":")
    least, most = number({_NODES: low}, _NODES), number({_NODES: high if to else low}, _NODES)
    if job and least and least == most:
        return tuple(f"{job}-worker-{index}" for index in range(least))
    unknown["hosts"] = (
        "an elastic PyTorchJob does not say which nodes it has",
        f"{_NODES} is {text[:60]!r}",
        "set ENTRYPOINT_HOSTS on all nodes, or make minReplicas and maxReplicas one number, without a Master replica",
    )
    return ()


def _rank(env: Mapping[str, str], master: bool, origins: dict[str, str], unknown: Unknown) -> int | None:
    """This node's rank. RANK is one only where training-operator set it, and that is beside MASTER_ADDR."""
    given = {name: number(env, name) for name in ("PET_NODE_RANK", *(("RANK",) if master else ()))}
    known = {name: rank for name, rank in given.items() if rank is not None}
    if len(set(known.values())) > 1:
        seen = ", ".join(f"{name} is {rank}" for name, rank in known.items())
        unknown["node_rank"] = ("the platform gives this node two ranks", seen, "set ENTRYPOINT_NODE_RANK")
        return None
    for name, rank in known.items():
        origins["node_rank"] = name
        return rank
    return None
