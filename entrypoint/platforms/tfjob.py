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
from entrypoint.platforms._clues import Clues, Reason
from entrypoint.platforms._cluster import Cluster, names_hosts, parse
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
    clues = Clues("tfjob", facts)
    clues.take("launcher", "tensorflow", _CONFIG)
    if cluster.task == _ALONE:
        return clues.site()
    listeners = cluster.hosts(_TASKS) if cluster.complete else ()
    clues.take_listeners(listeners, _CONFIG)
    if not clues.unknown and (reason := _unknown(cluster)):
        clues.unknown["hosts"] = reason
    if not listeners:
        return clues.site()
    clues.take("index", cluster.place(_TASKS), _CONFIG)
    if clues.index is None:
        clues.unknown["node_rank"] = cluster.beyond
    clues.take_job(_CONFIG, _job(clues.hosts[0], cluster))
    servers, chiefs = cluster.hosts(("ps",)), cluster.hosts(_CHIEFS)
    workers = len(cluster.hosts(_WORKERS))
    tasks = ("worker",) * workers + ("ps",) * len(servers) if servers else ()
    return clues.site(tasks=tasks, chief=bool(servers and chiefs))


def _unknown(cluster: Cluster) -> Reason | None:
    """Return why the nodes of the job are not those that are named, if they are not."""
    others = sorted(set(cluster.tasks) - {*_TASKS, _ALONE})
    if not cluster.complete:
        return (
            "TF_CONFIG does not name all nodes",
            "the TFJob has dynamic workers, which know only themselves",
            "set enableDynamicWorker: false, or ENTRYPOINT_HOSTS on all nodes",
        )
    if others:
        hint = f"use {', '.join(_TASKS)}, or set ENTRYPOINT_HOSTS"
        return "TF_CONFIG has a task that is none of TensorFlow's", ", ".join(others)[:80], hint
    if not cluster.hosts(_WORKERS):
        detail = f"cluster.ps names {len(cluster.hosts(('ps',)))}"
        return "TF_CONFIG names no worker", detail, "give the job a worker, or set ENTRYPOINT_HOSTS"
    return None


def _job(host: str, cluster: Cluster) -> str:
    """Return the job's name, as the first host's begins; empty if it does not."""
    first, task = label(host), next(task for task in _TASKS if cluster.tasks.get(task))
    name = first.removesuffix(f"-{task}-0")
    return name if name != first else ""
