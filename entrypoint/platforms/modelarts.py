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


def matches(facts: Facts) -> bool:
    """Whether one of the platform's own variables is set."""
    return any(facts.env.get(name) for name in _MARKS)


def site(facts: Facts) -> Site:
    """The hosts, this node's index and the accelerators of each node, as the platform's variables give them.

    Raises ConfigError when a variable is not the number it has to be, when the hosts are not as many as said, or when
    there are many hosts and no index.
    """
    env = facts.env
    origins: dict[str, str] = {}
    count = _number(env, "MA_NUM_HOSTS")
    hosts = _hosts(env, count, origins)
    if count is not None and hosts and len(hosts) != count:
        raise ConfigError(
            "the platform names another number of hosts than it counts",
            f"{origins['hosts']} has {len(hosts)}, MA_NUM_HOSTS is {count}",
            "set ENTRYPOINT_HOSTS to the right list",
        )
    index = None
    for name in _INDEX:
        index = _number(env, name)
        if index is not None:
            origins["node_rank"] = name
            break
    if index is None and len(hosts) > 1:
        raise ConfigError(
            f"the platform gives {len(hosts)} hosts and no index of this one",
            f"{', '.join(_INDEX)} are unset",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )
    # 0 is the documented default of a CPU flavour, not a count of processes.
    cards = _number(env, "MA_NUM_GPUS") or None
    if cards:
        origins["slots"] = "MA_NUM_GPUS"
    job = env.get("MA_VJ_NAME") or None
    if job:
        origins["name"] = "MA_VJ_NAME"
    return Site(
        platform="modelarts",
        hosts=hosts,
        # One host and no index, or one host and whatever the platform calls meaningless there, is node 0.
        index=index if len(hosts) > 1 else 0,
        slots=cards or 1,
        job=job,
        hostname=facts.hostname,
        origins={"slots": "MA_NUM_GPUS is empty or 0", **origins},
    )


def _hosts(env: Mapping[str, str], count: int | None, origins: dict[str, str]) -> tuple[str, ...]:
    listed = tuple(host.strip() for host in env.get("VC_WORKER_HOSTS", "").split(",") if host.strip())
    if listed:
        origins["hosts"] = "VC_WORKER_HOSTS"
        return listed
    if count is None or count < 2:
        return ()
    job, task = env.get("MA_VJ_NAME"), env.get("MA_TASK_NAME") or "worker"
    if not job:
        raise ConfigError(
            f"MA_NUM_HOSTS is {count} and nothing names the hosts",
            "VC_WORKER_HOSTS and MA_VJ_NAME are unset",
            "set ENTRYPOINT_HOSTS",
        )
    origins["hosts"] = "MA_VJ_NAME"
    return tuple(f"{job}-{task}-{index}.{job}" for index in range(count))


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} is not a whole number", repr(text[:60]), f"mend {name}")
    return int(text)
