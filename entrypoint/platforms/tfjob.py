"""Kubeflow's TFJob (training-operator v1), and others that set TF_CONFIG, such as Volcano's
tensorflow plugin.

Sources: training-operator, pkg/controller.v1/tensorflow/tensorflow.go: TF_CONFIG, its hosts
`<job>-<task>-<index>.<namespace>.svc:<port>`, and its form for dynamic workers; TensorFlow,
"Distributed training": the tasks, and that an evaluator is no part of the cluster.

With parameter servers, a chief remains a chief here: the operator takes its end for the job's, and
TF_CONFIG counts the workers without it. The program then gets no flags that contradict this.

The job's name is not documented: it is derived from the first host's. The platform does not report
accelerators.
"""

from __future__ import annotations

from entrypoint.base.model import Facts
from entrypoint.platforms._clues import POD_SECRET, Clues, Reason, label
from entrypoint.platforms._cluster import Cluster, names_hosts, parse

_CONFIG = "TF_CONFIG"
_CHIEFS = ("chief", "master")  # before version 2, TensorFlow's chief was master
_WORKERS = (*_CHIEFS, "worker")  # in the order of node ranks
_TASKS = (*_WORKERS, "ps")
_ALONE = "evaluator"
LAYER = 3
MARKS = (_CONFIG,)
SECRET = POD_SECRET
ROWS = """
`tfjob` | `TF_CONFIG` | its cluster | its task | the devices | `hosts`, for a sparse cluster
"""


def matches(facts: Facts) -> bool:
    """Return whether TF_CONFIG names a cluster. Some services set one with only a task for a single
    program."""
    return names_hosts(facts.env, _CONFIG)


def read(clues: Clues) -> None:
    """Take the chief, the workers, then the parameter servers of TF_CONFIG; an evaluator is a job
    of its own.

    Raises ConfigError if TF_CONFIG is not valid for TensorFlow.
    """
    cluster = parse(clues.env, _CONFIG)
    clues.take("launcher", "tensorflow", _CONFIG)
    if cluster.task == _ALONE:
        return
    listeners = cluster.hosts(_TASKS) if cluster.complete else ()
    clues.take_listeners(listeners, _CONFIG)
    if not clues.unknown and (reason := _unknown(cluster)):
        clues.unknown["hosts"] = reason
    if not listeners:
        return
    clues.take("index", cluster.place(_TASKS), _CONFIG)
    if clues.index is None:
        clues.unknown["node_rank"] = cluster.beyond
    clues.take_job(_CONFIG, _job(clues.hosts[0], cluster))
    servers = cluster.hosts(("ps",))
    chiefs = cluster.hosts(_CHIEFS)
    workers = len(cluster.hosts(_WORKERS))
    if servers:
        clues.take("tasks", ("worker",) * workers + ("ps",) * len(servers))
        clues.take("chief", bool(chiefs))


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
        return (
            "TF_CONFIG has a task that is none of TensorFlow's",
            ", ".join(others)[:80],
            f"use {', '.join(_TASKS)}, or set ENTRYPOINT_HOSTS",
        )
    if not cluster.hosts(_WORKERS):
        return (
            "TF_CONFIG names no worker",
            f"cluster.ps names {len(cluster.hosts(('ps',)))}",
            "give the job a worker, or set ENTRYPOINT_HOSTS",
        )
    return None


def _job(host: str, cluster: Cluster) -> str:
    """Return the job's name, with which the first host's begins; empty if it has another form."""
    first = label(host)
    task = next(task for task in _TASKS if cluster.tasks.get(task))
    name = first.removesuffix(f"-{task}-0")
    return name if name != first else ""
