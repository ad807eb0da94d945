"""TF_CONFIG and similar variables: JSON with the hosts of each task of a cluster, and the task of
this node.

Source: TensorFlow, "Distributed training", TF_CONFIG, and tf.train.ClusterSpec, where a mapping of
indexes to hosts replaces an incomplete list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.text import count, digits, from_json
from entrypoint.base.values import frozen
from entrypoint.platforms._clues import Listener, Reason, listener


@frozen
class Cluster:
    """The content of such a variable."""

    name: str  # the variable
    tasks: Mapping[str, tuple[Listener, ...]]  # the hosts of each task, by index
    task: str  # of this node
    index: int  # of this node among the hosts of its task
    complete: bool  # all hosts are named

    def hosts(self, tasks: Sequence[str]) -> tuple[Listener, ...]:
        """Return the hosts of these tasks, task by task."""
        return tuple(host for task in tasks for host in self.tasks.get(task, ()))

    def place(self, tasks: Sequence[str]) -> int | None:
        """Return this node's place among `hosts(tasks)`; None if its index is beyond the last host
        of its task."""
        if self.task not in tasks or self.index >= len(self.tasks.get(self.task, ())):
            return None
        return len(self.hosts(tasks[: tasks.index(self.task)])) + self.index

    @property
    def beyond(self) -> Reason:
        """Return why the index is unknown if `place` is None."""
        hosts = count(len(self.tasks.get(self.task, ())), "host")
        task = self.task[:60]
        return (
            f"{self.name} gives this node an index beyond the last {task}",
            f"task.index is {self.index}, cluster.{task} names {hosts}",
            f"fix {self.name}, or set ENTRYPOINT_NODE_RANK",
        )


def names_hosts(env: Mapping[str, str], name: str) -> bool:
    """Return whether the variable names hosts, or cannot be parsed, so that `parse` reports the
    problem."""
    try:
        config = from_json(env.get(name, ""))
    except ValueError:
        return True
    return not isinstance(config, dict) or bool(_cluster(config))


def parse(env: Mapping[str, str], name: str) -> Cluster:
    """Return the content of the variable.

    Raises ConfigError if it is not such JSON.
    """
    text = env.get(name, "")
    try:
        config = from_json(text)
    except ValueError:
        raise ConfigError(f"EP207 {name} is not JSON", repr(text[:60]), f"fix {name}") from None
    if not isinstance(config, dict) or not isinstance(cluster := _cluster(config), dict):
        raise ConfigError(
            f"EP207 {name} describes no cluster",
            repr(text[:60]),
            f'write {name} as {{"cluster": {{...}}, "task": {{...}}}}',
        )
    task, index = _task(config.get("task"), name)
    return Cluster(
        name=name,
        tasks={
            kind: _hosts(hosts, f"{name}, cluster.{kind[:60]}") for kind, hosts in cluster.items()
        },
        task=task,
        index=index,
        complete="sparseCluster" not in config
        and not any(isinstance(hosts, dict) for hosts in cluster.values()),
    )


def _cluster(config: Mapping[str, Any]) -> Any:
    return config.get("cluster") or config.get("sparseCluster")


def _task(task: Any, name: str) -> tuple[str, int]:
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    if isinstance(index, str):
        index = digits(index)
    if not isinstance(kind, str) or type(index) is not int or index < 0:  # True is an int, too
        raise ConfigError(
            f"EP207 {name} does not say which task this node has",
            f"task is {task!r}"[:80],
            "give it a task with a type, and an index from 0",
        )
    return kind, index


def _hosts(hosts: Any, where: str) -> tuple[Listener, ...]:
    listed = list(hosts.values()) if isinstance(hosts, dict) else hosts
    if not isinstance(listed, list) or not all(
        isinstance(host, str) and host.strip() for host in listed
    ):
        raise ConfigError(
            f"EP207 {where} is not a list of hosts",
            repr(hosts)[:80],
            'write it as ["host:port", ...]',
        )
    return tuple(listener(host.strip()) for host in listed)
