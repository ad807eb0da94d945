"""What adapters share: lists of hosts as platforms write them, and what list, count and index can get wrong."""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.interfaces import ip
from entrypoint.model import Facts, Site
from entrypoint.platforms._listeners import listener
from entrypoint.platforms._names import job_name
from entrypoint.platforms._numbers import number
from entrypoint.text import count

Unknown = dict[str, tuple[str, str, str]]  # as Site.unknown


def names(text: str) -> tuple[str, ...]:
    """The hosts of a list with a comma, a space or an end of line between any two. Ports and brackets are left out."""
    return tuple(_bare(listener(entry)[0]) for entry in text.replace(",", " ").split())


def _bare(host: str) -> str:
    """An IPv6 address without the brackets around it; any other host as it is."""
    inner = host[1:-1]
    return inner if host == f"[{inner}]" and ip(inner) else host


def counted(hosts: tuple[str, ...], where: str, nodes: int | None, counter: str, unknown: Unknown) -> tuple[str, ...]:
    """The hosts; none where the platform counts another number of them."""
    if nodes is None or len(hosts) == nodes or (nodes == 1 and not hosts):
        return hosts
    if hosts:
        unknown["hosts"] = (
            "the platform names another number of hosts than it counts",
            f"{where} has {len(hosts)}, {counter} is {nodes}",
            "set ENTRYPOINT_HOSTS to the right list",
        )
    else:
        what = f"{counter} is {nodes} and nothing names the hosts"
        unknown["hosts"] = (what, f"{where} is unset", "set ENTRYPOINT_HOSTS")
    return ()


def placed(
    index: int | None, name: str, hosts: tuple[str, ...], where: str, origins: dict[str, str], unknown: Unknown
) -> int | None:
    """This node's place among the hosts, as the variable `name` gives it; None where nothing says it."""
    if index is None and len(hosts) > 1:
        unknown["node_rank"] = (
            f"the platform gives {len(hosts)} hosts and no index of this one",
            f"{name} is unset",
            "set ENTRYPOINT_NODE_RANK (0 for worker-0)",
        )
    if index is None:
        # Without hosts none: the spec may name many, and they can't all be node 0.
        return 0 if len(hosts) == 1 else None
    if hosts and index >= len(hosts):
        unknown["node_rank"] = (
            f"{name} is beyond the last host",
            f"{name} is {index}, {where} names {count(len(hosts), 'host')}",
            f"see that {where} and {name} are of one job, or set ENTRYPOINT_NODE_RANK",
        )
        return None
    origins["node_rank"] = name
    return index


def cards(env: Mapping[str, str], variables: tuple[str, ...], origins: dict[str, str]) -> int | None:
    """Accelerators of this node by the first variable that is set. None for 0, too: then the device is probed."""
    for name in variables:
        devices = number(env, name)
        if devices is not None:
            if devices:
                origins["slots"] = name
            return devices or None
    return None


def job(env: Mapping[str, str], name: str, origins: dict[str, str]) -> str | None:
    """The job's name, where it can be one here: it is part of paths and of what people read."""
    given = job_name(env.get(name, ""))
    if given:
        origins["name"] = name
    return given


def site(platform: str, facts: Facts, hosts: str, count: str, index: str, slots: str, name: str = "") -> Site:
    """The site of a platform with variables for the hosts, their count, which is this one, and its accelerators."""
    env = facts.env
    origins: dict[str, str] = {}
    unknown: Unknown = {}
    found = counted(names(env.get(hosts, "")), hosts, number(env, count), count, unknown)
    if found:
        origins["hosts"] = hosts
    return Site(
        platform=platform,
        hosts=found,
        index=placed(number(env, index), index, found, hosts, origins, unknown),
        slots=cards(env, (slots,), origins),
        job=job(env, name, origins) if name else None,
        hostname=facts.hostname,
        origins=origins,
        unknown=unknown,
    )
