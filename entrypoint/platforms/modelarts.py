"""Huawei Cloud ModelArts training jobs.

Sources: "Managing Environment Variables of a Training Container" (develop-modelarts-0104) for MA_* and VC_*; the boot
file of the preset MPI image for MA_VJ_NAME's host name rule and for the order of the index variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.errors import ConfigError
from entrypoint.model import Facts, Site

# Users cannot set MA_* variables there, so any of these is the platform's own word.
_MARKS = ("MA_JOB_DIR", "MA_VJ_NAME", "MA_NUM_HOSTS")
_INDEX = ("MA_TASK_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_Unknown = dict[str, tuple[str, str, str]]  # as Site.unknown


def matches(facts: Facts) -> bool:
    """Whether one of the platform's own variables is set."""
    return any(facts.env.get(name) for name in _MARKS)


def site(facts: Facts) -> Site:
    """The hosts, this node's index and the accelerators of each node, as the platform's variables give them.

    Raises ConfigError when a variable is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: _Unknown = {}
    hosts = _hosts(env, origins, unknown)
    index = _index(env, hosts, origins, unknown)
    # 0 is the documented default of a CPU flavour, not a count of processes.
    cards = _number(env, "MA_NUM_GPUS") or None
    origins["slots"] = "MA_NUM_GPUS" if cards else "MA_NUM_GPUS is empty or 0"
    job = env.get("MA_VJ_NAME") or None
    if job:
        origins["name"] = "MA_VJ_NAME"
    return Site(
        platform="modelarts",
        hosts=hosts,
        index=index,
        slots=cards or 1,
        job=job,
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _hosts(env: Mapping[str, str], origins: dict[str, str], unknown: _Unknown) -> tuple[str, ...]:
    count = _number(env, "MA_NUM_HOSTS")
    listed = tuple(host.strip() for host in env.get("VC_WORKER_HOSTS", "").split(",") if host.strip())
    if listed and count is not None and len(listed) != count:
        unknown["hosts"] = (
            "the platform names another number of hosts than it counts",
            f"VC_WORKER_HOSTS has {len(listed)}, MA_NUM_HOSTS is {count}",
            "set ENTRYPOINT_HOSTS to the right list",
        )
        return ()
    if listed:
        origins["hosts"] = "VC_WORKER_HOSTS"
        return listed
    if count is None or count < 2:
        return ()
    job, task = env.get("MA_VJ_NAME"), env.get("MA_TASK_NAME") or "worker"
    if not job:
        unknown["hosts"] = (
            f"MA_NUM_HOSTS is {count} and nothing names the hosts",
            "VC_WORKER_HOSTS and MA_VJ_NAME are unset",
            "set ENTRYPOINT_HOSTS",
        )
        return ()
    origins["hosts"] = "MA_VJ_NAME"
    return tuple(f"{job}-{task}-{index}.{job}" for index in range(count))


def _index(env: Mapping[str, str], hosts: tuple[str, ...], origins: dict[str, str], unknown: _Unknown) -> int | None:
    if len(hosts) == 1:
        return 0  # there the platform calls its own variable meaningless
    for name in _INDEX:
        index = _number(env, name)
        if index is not None:
            origins["node_rank"] = name
            return index
    if hosts:
        unknown["node_rank"] = (
            f"the platform gives {len(hosts)} hosts and no index of this one",
            f"{', '.join(_INDEX)} are unset",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )
    return None  # without hosts too: the spec may name many, and they can't all be node 0


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} is not a whole number", repr(text[:60]), f"mend {name}")
    return int(text)
