"""Amazon SageMaker training jobs.

Sources: SageMaker's documentation, "How Amazon SageMaker AI Provides Training Information" (resourceconfig.json, which
is in every container) and the SageMaker Training Toolkit (SM_*, only in images that have it). Not promised, and derived
here: the node of the lowest number is the first, so algo-2 comes before algo-10, although the file may list them as
text is sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.model import Facts, Site
from entrypoint.platforms._hosts import Unknown, cards, job
from entrypoint.text import from_json, some

_CONFIG = "/opt/ml/input/config/resourceconfig.json"
_DO = "set ENTRYPOINT_HOSTS and ENTRYPOINT_NODE_RANK"


def matches(facts: Facts) -> bool:
    """Whether the list of hosts is there: TRAINING_JOB_NAME alone may be anyone's."""
    return _CONFIG in facts.files or bool(facts.env.get("SM_HOSTS"))


def site(facts: Facts) -> Site:
    """The hosts, which of them is this one, and its GPUs, as the file or the toolkit's variables give them.

    Raises ConfigError when SM_NUM_GPUS is not the number it has to be.
    """
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    if _CONFIG in facts.files:
        hosts, index = _of_file(facts.files[_CONFIG], origins, unknown)
    else:
        hosts, index = _of_toolkit(env, origins, unknown)
    return Site(
        platform="sagemaker",
        hosts=hosts,
        index=index,
        slots=cards(env, ("SM_NUM_GPUS",), origins),
        job=job(env, "TRAINING_JOB_NAME", origins),
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )


def _of_file(text: str, origins: dict[str, str], unknown: Unknown) -> tuple[tuple[str, ...], int | None]:
    config = _json(text)
    if not isinstance(config, dict):
        return _unclear(f"{_CONFIG} is no JSON object", repr(text[:60]), unknown)
    hosts = _hosts(config.get("hosts"))
    if not hosts:
        return _unclear(f"{_CONFIG} has no list of hosts", f"hosts is {str(config.get('hosts'))[:60]}", unknown)
    grouped = _of_groups(config.get("instance_groups"))
    if grouped and sorted(grouped) != sorted(hosts):
        seen = f"hosts are {_short(hosts)}; instance_groups have {_short(grouped)}"
        return _unclear(f"{_CONFIG} names other hosts in its instance groups", seen, unknown)
    origins["hosts"] = _CONFIG
    return hosts, _index(hosts, str(config.get("current_host", "")), f"current_host of {_CONFIG}", origins, unknown)


def _of_toolkit(
    env: Mapping[str, str], origins: dict[str, str], unknown: Unknown
) -> tuple[tuple[str, ...], int | None]:
    listed = env.get("SM_HOSTS", "")
    if not listed:
        return (), None
    hosts = _hosts(_json(listed))
    if not hosts:
        return _unclear("SM_HOSTS is no JSON list of hosts", repr(listed[:60]), unknown)
    origins["hosts"] = "SM_HOSTS"
    current = env.get("SM_CURRENT_HOST", "").strip().strip('"')  # some write it as JSON
    return hosts, _index(hosts, current, "SM_CURRENT_HOST", origins, unknown)


def _index(hosts: tuple[str, ...], current: str, source: str, origins: dict[str, str], unknown: Unknown) -> int | None:
    """The place of this host. Whole names are compared: algo-1 is not algo-10."""
    if current in hosts:
        origins["node_rank"] = source
        return hosts.index(current)
    seen = f"{source} is {current[:60]!r}, the hosts are {_short(hosts)}"
    unknown["node_rank"] = ("this node is none of the hosts", seen, "set ENTRYPOINT_NODE_RANK (0 for worker-0)")
    return None


def _unclear(what: str, seen: str, unknown: Unknown) -> tuple[tuple[str, ...], None]:
    """Neither the hosts nor the index of this one."""
    unknown["hosts"] = unknown["node_rank"] = (what, seen, _DO)
    return (), None


def _json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def _hosts(given: Any) -> tuple[str, ...]:
    """The names, by their numbers; none where it is no list of names."""
    if not isinstance(given, list) or not all(isinstance(host, str) and host for host in given):
        return ()
    return tuple(sorted(given, key=_by_number))


def _by_number(host: str) -> tuple[str, int, str]:
    stem = host.rstrip("0123456789")
    digits = host[len(stem) :].lstrip("0")
    return stem, len(digits), digits


def _of_groups(groups: Any) -> tuple[str, ...]:
    """The hosts of all instance groups of a heterogeneous cluster; none where there are no groups."""
    if not isinstance(groups, list):
        return ()
    return tuple(host for group in groups if isinstance(group, dict) for host in _hosts(group.get("hosts")))


def _short(hosts: tuple[str, ...]) -> str:
    return some((host[:60] for host in hosts), 4)
