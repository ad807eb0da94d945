"""Volcano jobs (batch.volcano.sh): a Pod of each replica of each task is a node.

Sources: volcano.sh, "Job Plugins"; Volcano's pkg/controllers/job/plugins: `env` for VC_TASK_INDEX, which counts within
a task, and `svc` for VC_<TASK>_HOSTS, VC_<TASK>_NUM and /etc/volcano/<task>.host, which every Pod has of every task.
A list that is too long for the environment is only in the file. Without the plugin `env` these files, which are mounted
into every Pod, are what tells Volcano; the host name says which Pod this is. Nothing says in which order the job has
its tasks: we take them by name, with numbers in it as numbers, and parameter servers (`ps`) last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, job, placed
from entrypoint.platforms._names import label
from entrypoint.platforms._numbers import number
from entrypoint.text import some

_INDEX = ("VC_TASK_INDEX", "VK_TASK_INDEX")
_FOLDER, _END = "/etc/volcano/", ".host"
_LISTED = re.compile("VC_(.+)_(?:HOSTS|NUM)")
_SHOWN = 4  # variables in one message
_Tasks = dict[str, tuple[str, ...]]  # a task's name, as it is in variables -> its hosts


def matches(facts: Facts) -> bool:
    """Whether the plugin env gave this Pod an index, or the plugin svc files, which are nobody else's."""
    return any(map(facts.env.get, _INDEX)) or any(map(_is_list, facts.files))


def site(facts: Facts) -> Site:
    """The hosts of all tasks, and this node's index among them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    tasks = _tasks(facts, origins, unknown)
    hosts = tuple(host for listed in tasks.values() for host in listed)
    if "hosts" in unknown:
        hosts = ()
    has_servers = bool(hosts) and "PS" in tasks and len(tasks) > 1
    return Site(
        platform="volcano",
        hosts=hosts,
        index=_index(facts, tasks, hosts, origins, unknown),
        job=_job(hosts, origins),
        hostname=facts.hostname,
        tasks=tuple("ps" if task == "PS" else "worker" for task in tasks for _ in tasks[task]) if has_servers else (),
        origins=origins,
        unknown=unknown,
    )


def _tasks(facts: Facts, origins: dict[str, str], unknown: Unknown) -> _Tasks:
    """The tasks that have hosts, or should have, in the order of their nodes."""
    lists = _lists(facts.env), _files(facts.files)
    named = (found[1] for name in facts.env if (found := _LISTED.fullmatch(name)))
    tasks: _Tasks = {}
    sources: list[str] = []
    for task in sorted({*named, *lists[0], *lists[1]}, key=_order):
        given, file = (each.get(task, (f"VC_{task}_HOSTS", ())) for each in lists)
        where, hosts = given if given[1] else file
        count = number(facts.env, f"VC_{task}_NUM")
        if given[1] and file[1] and given[1] != file[1]:
            unknown["hosts"] = (
                "the job got other hosts after this container had started",
                f"{given[0]} has {len(given[1])}, {file[0]} has {len(file[1])}",
                "restart the job, or set ENTRYPOINT_HOSTS",
            )
        elif count is not None and count != len(hosts):
            unknown["hosts"] = (
                "the platform names another number of hosts than it counts",
                f"{where} has {len(hosts)}, VC_{task}_NUM is {count}",
                "set ENTRYPOINT_HOSTS to the right list",
            )
        if hosts or count:
            tasks[task] = hosts
            sources.append(where)
    if not tasks:
        unknown["hosts"] = (
            "Volcano does not say which Pods the job has",
            f"there is no VC_<TASK>_HOSTS, and no {_FOLDER}<task>{_END}",
            "add the svc plugin to the job (plugins: {svc: []}), or set ENTRYPOINT_HOSTS",
        )
    elif not unknown:
        origins["hosts"] = some(sources, _SHOWN)
    return tasks


def _lists(env: Mapping[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Task -> the variable with its hosts, and the hosts."""
    found = {name: _LISTED.fullmatch(name) for name in env if name.endswith("_HOSTS")}
    return {match[1]: (name, _split(env[name].replace(",", "\n"))) for name, match in found.items() if match}


def _files(files: Mapping[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Task -> the file with its hosts, and the hosts."""
    found = filter(_is_list, files)
    return {_variable(path[len(_FOLDER) : -len(_END)]): (path, _split(files[path])) for path in found}


def _is_list(path: str) -> bool:
    return path.startswith(_FOLDER) and path.endswith(_END)


def _split(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _variable(task: str) -> str:
    """A task's name as it is in variables."""
    return task.upper().replace("-", "_")


def _order(task: str) -> tuple[bool, list[str | int]]:
    """worker-2 before worker-10."""
    parts = re.split("([0-9]{1,18})", task)
    return task == "PS", [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _index(
    facts: Facts, tasks: _Tasks, hosts: tuple[str, ...], origins: dict[str, str], unknown: Unknown
) -> int | None:
    """This node's place among all nodes, by its host name; the variables count within its task."""
    name = next((name for name in _INDEX if facts.env.get(name, "").strip()), _INDEX[0])
    index = number(facts.env, name)
    pod = label(facts.hostname)
    own = [rank for rank, host in enumerate(hosts) if label(host) == pod]
    if len(tasks) == 1 and len(own) != 1:
        return placed(index, name, hosts, origins.get("hosts", ""), origins, unknown)
    if not hosts:
        return None  # topology looks for the host name among the spec's hosts
    if len(own) != 1:
        unknown["node_rank"] = (
            f"{name} counts within a task, and nothing says which task this Pod is of",
            f"host name {facts.hostname[:80]!r}, tasks {some(tasks, _SHOWN)}",
            "set ENTRYPOINT_NODE_RANK, counted over all tasks",
        )
        return None
    task, place = [(task, place) for task, listed in tasks.items() for place in range(len(listed))][own[0]]
    if index not in (None, place):
        unknown["node_rank"] = (
            f"{name} and the host name are of two Pods",
            f"{name} is {index}, {pod[:80]} is number {place} of task {task}",
            "set ENTRYPOINT_NODE_RANK",
        )
        return None
    origins["node_rank"] = name if len(tasks) == 1 and index is not None else "the host name"
    return own[0]


def _job(hosts: tuple[str, ...], origins: dict[str, str]) -> str | None:
    """The job's name, which its hosts have twice: `<job>-<task>-<i>.<job>`."""
    first, _, name = hosts[0].partition(".") if hosts else ("", "", "")
    source = origins.get("hosts", "").split(",")[0]
    return job({source: name}, source, origins) if name and first.startswith(f"{name}-") else None
