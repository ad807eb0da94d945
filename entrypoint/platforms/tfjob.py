"""Kubeflow's TFJob (training-operator v1), and who else sets TF_CONFIG, such as Volcano's tensorflow plugin.

Sources: training-operator, pkg/controller.v1/tensorflow/tensorflow.go: TF_CONFIG, its hosts
`<job>-<task>-<index>.<namespace>.svc:<port>`, and what dynamic workers make of it; TensorFlow, "Distributed training":
the tasks, and that an evaluator is no part of the cluster.

Where there are parameter servers, a chief is one to us as well: the operator takes its end for the job's, and TF_CONFIG
counts the workers without it. A program is not told otherwise by flags.

The platform does not promise the job's name: it is taken from the first host's. It says nothing about accelerators.
"""

from __future__ import annotations

from entrypoint.model import Facts, Site
from entrypoint.platforms._cluster import Cluster, names_hosts, parse
from entrypoint.platforms._hosts import Unknown, job
from entrypoint.platforms._listeners import Listener, ports, wrong_ports
from entrypoint.platforms._names import label

_CONFIG = "TF_CONFIG"
_CHIEFS = ("chief", "master")  # before version 2, TensorFlow's chief was master
_WORKERS = (*_CHIEFS, "worker")  # in the order of node ranks
_TASKS = (*_WORKERS, "ps")
_ALONE = "evaluator"


def matches(facts: Facts) -> bool:
    """Whether TF_CONFIG names a cluster. One with a task alone is what some services give a program alone."""
    return names_hosts(facts.env, _CONFIG)


def site(facts: Facts) -> Site:
    """The chief, the workers, then the parameter servers, as TF_CONFIG names them; an evaluator is a job of its own.

    Raises ConfigError when TF_CONFIG is not what TensorFlow reads.
    """
    cluster = parse(facts.env, _CONFIG)
    origins = {"launcher": _CONFIG}
    if cluster.task == _ALONE:
        return Site(platform="tfjob", hostname=facts.hostname, launcher="tensorflow", origins=origins)
    found = cluster.hosts(_TASKS) if cluster.complete else ()
    unknown = wrong_ports(found, _CONFIG) or _unknown(cluster)
    index = cluster.place(_TASKS) if found else None
    if found:
        origins["hosts"] = _CONFIG
    if index is not None:
        origins["node_rank"] = _CONFIG
    elif found:
        unknown["node_rank"] = cluster.beyond
    return Site(
        platform="tfjob",
        hosts=tuple(host for host, _ in found),
        index=index,
        job=job({_CONFIG: _job(found, cluster)}, _CONFIG, origins),
        hostname=facts.hostname,
        tasks=_what_each_does(cluster) if found else (),
        chief=bool(found and cluster.hosts(("ps",)) and cluster.hosts(_CHIEFS)),
        ports=ports(found),
        launcher="tensorflow",
        origins=origins,
        unknown=unknown,
    )


def _unknown(cluster: Cluster) -> Unknown:
    """Why the nodes of the job are not those that are named."""
    others = sorted(set(cluster.tasks) - {*_TASKS, _ALONE})
    if not cluster.complete:
        what, seen = "TF_CONFIG does not name all nodes", "the TFJob has dynamic workers, which know only themselves"
        do = "set enableDynamicWorker: false, or ENTRYPOINT_HOSTS on all nodes"
    elif others:
        what, seen = "TF_CONFIG has a task that is none of TensorFlow's", ", ".join(others)[:80]
        do = f"use {', '.join(_TASKS)}, or set ENTRYPOINT_HOSTS"
    elif not cluster.hosts(_WORKERS):
        what, seen = "TF_CONFIG names no worker", f"cluster.ps names {len(cluster.hosts(('ps',)))}"
        do = "give the job a worker, or set ENTRYPOINT_HOSTS"
    else:
        return {}
    return {"hosts": (what, seen, do)}


def _what_each_does(cluster: Cluster) -> tuple[str, ...]:
    workers, servers = len(cluster.hosts(_WORKERS)), len(cluster.hosts(("ps",)))
    return ("worker",) * workers + ("ps",) * servers if servers else ()


def _job(found: tuple[Listener, ...], cluster: Cluster) -> str:
    """The job's name, as the first host's begins; empty where it does not."""
    if not found:
        return ""
    first, task = label(found[0][0]), next(task for task in _TASKS if cluster.tasks.get(task))
    name = first.removesuffix(f"-{task}-0")
    return name if name != first else ""
