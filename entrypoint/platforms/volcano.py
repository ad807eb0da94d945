"""Volcano jobs (batch.volcano.sh): a Pod of each replica of each task is a node.

Sources: volcano.sh, "Job Plugins"; Volcano's pkg/controllers/job/plugins: `env` for VC_TASK_INDEX,
which counts within a task, and `svc` for VC_<TASK>_HOSTS, VC_<TASK>_NUM and
/etc/volcano/<task>.host, which every Pod has of every task. A list that is too long for the
environment is only in the file. Without the plugin `env` these files, which are mounted into every
Pod, identify Volcano, and the host name identifies the Pod. The order of a job's tasks is unknown:
they are sorted by name, with numbers in it as numbers, and parameter servers (`ps`) last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from entrypoint.base.model import Facts
from entrypoint.base.text import some
from entrypoint.platforms._clues import POD_SECRET, Clues, by_number, label

_INDEX = ("VC_TASK_INDEX", "VK_TASK_INDEX")
_FOLDER = "/etc/volcano/"
_END = ".host"
_LISTED = re.compile("VC_(.+)_(?:HOSTS|NUM)")
_SHOWN = 4  # variables in one message
_Tasks = dict[str, tuple[str, ...]]  # a task's name, in the form of variables -> its hosts
LAYER = 4
MARKS = (*_INDEX, "KUBERNETES_SERVICE_HOST")
FILES = (_FOLDER,)
SECRET = POD_SECRET
ROWS = """
`volcano` | `VC_TASK_INDEX`, or `/etc/volcano/<task>.host` in a Pod | `VC_<TASK>_HOSTS` or
    `/etc/volcano/<task>.host`, of all tasks | its host name | the devices | the plugin `svc`,
    also `env` on the host's network: `entrypoint deploy kubernetes --kind volcano`
"""


def matches(facts: Facts) -> bool:
    """Return whether the plugin env has set an index, or the plugin svc its files, which no other
    platform has."""
    return any(map(facts.env.get, _INDEX)) or any(map(_is_list, facts.files))


def read(clues: Clues) -> None:
    """Take the hosts of all tasks, and this node's index among them.

    Raises ConfigError if a variable is not the number it has to be.
    """
    tasks = _tasks(clues)
    _take_index(clues, tasks)
    _take_job(clues)
    if clues.hosts and "PS" in tasks and len(tasks) > 1:
        kinds = ("ps" if task == "PS" else "worker" for task in tasks for _ in tasks[task])
        clues.take("tasks", tuple(kinds))


def _tasks(clues: Clues) -> _Tasks:
    """Return the tasks that have hosts, or should have, in the order of their nodes."""
    lists = _lists(clues.env)
    files = _files(clues.facts.files)
    names = {match[1] for name in clues.env if (match := _LISTED.fullmatch(name))}
    tasks: _Tasks = {}
    sources: list[str] = []
    for task in sorted({*names, *lists, *files}, key=lambda task: (task == "PS", by_number(task))):
        variable, path = (entries.get(task, (f"VC_{task}_HOSTS", ())) for entries in (lists, files))
        source, hosts = variable if variable[1] else path
        count = clues.number(f"VC_{task}_NUM")
        if variable[1] and path[1] and variable[1] != path[1]:
            clues.no_hosts(
                "the job got other hosts after this container had started",
                f"{variable[0]} has {len(variable[1])}, {path[0]} has {len(path[1])}",
                "restart the job, or set ENTRYPOINT_HOSTS",
            )
        elif count is not None and count != len(hosts):
            clues.no_hosts(
                "the platform names another number of hosts than it counts",
                f"{source} has {len(hosts)}, VC_{task}_NUM is {count}",
                "set ENTRYPOINT_HOSTS to the right list",
            )
        if hosts or count:
            tasks[task] = hosts
            sources.append(source)
    if not tasks:
        clues.no_hosts(
            "Volcano does not say which Pods the job has",
            f"there is no VC_<TASK>_HOSTS, and no {_FOLDER}<task>{_END}",
            "add the svc plugin to the job (plugins: {svc: []}), or set ENTRYPOINT_HOSTS",
        )
    elif not clues.unknown:
        clues.take("hosts", tuple(itertools.chain(*tasks.values())), some(sources, _SHOWN))
    return tasks


def _lists(env: Mapping[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return task -> the variable with its hosts, and the hosts."""
    return {
        match[1]: (name, _split(env[name].replace(",", "\n")))
        for name in env
        if name.endswith("_HOSTS") and (match := _LISTED.fullmatch(name))
    }


def _files(files: Mapping[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return task -> the file with its hosts, and the hosts."""
    return {
        _variable(path[len(_FOLDER) : -len(_END)]): (path, _split(files[path]))
        for path in filter(_is_list, files)
    }


def _is_list(path: str) -> bool:
    return path.startswith(_FOLDER) and path.endswith(_END)


def _split(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _variable(task: str) -> str:
    """Return a task's name in the form of variables."""
    return task.upper().replace("-", "_")


def _take_index(clues: Clues, tasks: _Tasks) -> None:
    """Take this node's place among all nodes, by its host name; the variables count within its
    task."""
    name = clues.first(*_INDEX)
    index = clues.number(name)
    hostname = clues.facts.hostname
    pod = label(hostname)
    matches = [rank for rank, host in enumerate(clues.hosts) if label(host) == pod]
    if len(tasks) == 1 and len(matches) != 1:
        clues.take_index(name)
        return
    if not clues.hosts:
        return  # topology searches the host name among the spec's hosts
    if len(matches) != 1:
        clues.no_index(
            f"{name} counts within a task, and nothing says which task this Pod is of",
            f"host name {hostname[:80]!r}, tasks {some(tasks, _SHOWN)}",
            "set ENTRYPOINT_NODE_RANK, counted over all tasks",
        )
        return
    places = [(task, place) for task, hosts in tasks.items() for place in range(len(hosts))]
    task, place = places[matches[0]]
    if index in (None, place):
        by_variable = len(tasks) == 1 and index is not None
        clues.take("index", matches[0], name if by_variable else "the host name")
    else:
        clues.no_index(
            f"{name} and the host name are of two Pods",
            f"{name} is {index}, {pod[:80]} is number {place} of task {task}",
            "set ENTRYPOINT_NODE_RANK",
        )


def _take_job(clues: Clues) -> None:
    """Take the job's name, which its hosts have twice: `<job>-<task>-<i>.<job>`."""
    first, _, job = clues.hosts[0].partition(".") if clues.hosts else ("", "", "")
    if job and first.startswith(f"{job}-"):
        clues.take_job(clues.origins["hosts"].split(",")[0], job)
