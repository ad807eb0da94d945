"""TensorFlow's parameter servers and workers: the program once a node, with flags and TF_CONFIG for
the cluster.

Sources: ModelArts' TensorFlow boot (the four flags), TensorFlow's "Distributed training",
TF_CONFIG.
"""

from __future__ import annotations

import json

from entrypoint.base.model import Launch, LaunchPort, LaunchRanks, Program, Topology, of_task, usual
from entrypoint.base.tables import table
from entrypoint.launchers._common import endpoint, with_options, with_python
from entrypoint.spec import JobSpec

ALSO = ("tf", "parameter-server")  # other names

_PORT = 2222
_ONE = LaunchRanks(processes=1)  # TensorFlow itself uses all cards of a node in one process
_SETTLED = table("""
    task_index            | node_rank
    ps_hosts worker_hosts | hosts
    job_name              | tensorflow.ps
""")


def plan(spec: JobSpec, topology: Topology) -> Launch:
    """Return the command on every node. Parameter servers never end: they are released with the
    workers' result.

    Raises SpecError if the command already has one of the flags.
    """
    if not topology.has_peers:
        return Launch(
            (Program(with_python(spec.command)),),
            ranks=_ONE,
        )
    servers = any(node.task == "ps" for node in topology.nodes)
    workers = tuple(node.rank for node in topology.nodes if node.task != "ps")
    # Without parameter servers (MultiWorkerMirroredStrategy) TF_CONFIG is sufficient. With a chief
    # it counts only the other workers, which the flags cannot express: a program gets one of the
    # two.
    flags = _flags(spec, topology) if servers and not topology.chief else {}
    config = json.dumps(_config(spec, topology))
    return Launch(
        (
            Program(
                with_options(spec, flags, _SETTLED),
                (usual("TF_CONFIG", config, topology.origin("hosts")),),
            ),
        ),
        ranks=_ONE,
        awaited=(0,) if topology.chief else workers,
        port=_port(spec, topology),
    )


def _port(spec: JobSpec, topology: Topology) -> LaunchPort | None:
    """Return the port of the servers; None if the platform gave each node its own."""
    if any(node.port for node in topology.nodes):
        return None
    port = spec.port or _PORT
    own = of_task(port, topology.this.task)
    return LaunchPort(port, span=2, here=(own - port,), everywhere=True)


def _flags(spec: JobSpec, topology: Topology) -> dict[str, str]:
    this = topology.this
    return {
        "task_index": str(this.index),
        "ps_hosts": ",".join(_addresses(spec, topology, "ps")),
        "worker_hosts": ",".join(_addresses(spec, topology, "worker")),
        "job_name": this.task,
    }


def _config(spec: JobSpec, topology: Topology) -> dict[str, object]:
    this = topology.this
    cluster = {task: _addresses(spec, topology, task) for task in ("worker", "ps")}
    task = this.task
    index = this.index
    if topology.chief:
        first, *others = cluster["worker"]
        cluster = {"chief": [first], "worker": others, "ps": cluster["ps"]}
        if task == "worker":
            task, index = ("chief", 0) if index == 0 else ("worker", index - 1)
    return {
        "cluster": {name: hosts for name, hosts in cluster.items() if hosts},
        "task": {"type": task, "index": index},
    }


def _addresses(spec: JobSpec, topology: Topology, task: str) -> list[str]:
    # A server may share a machine's network with a worker, and cannot listen on the same port.
    port = of_task(spec.port or _PORT, task)
    return [endpoint(node.where, node.port or port) for node in topology.nodes if node.task == task]
