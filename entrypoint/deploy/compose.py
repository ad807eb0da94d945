"""A compose file: one container for each host of the spec, to try a multi-node job on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint import registry
from entrypoint.deploy._options import Options, own_command, resources, settings
from entrypoint.errors import ConfigError, UsageError
from entrypoint.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec

__all__ = ["Options", "render"]

_SECRET = "/run/secrets/entrypoint"


def render(spec: JobSpec, options: Options) -> str:
    """The compose file's text. Works with compose v1 and v2; the secret is a mounted file, not a variable.

    Raises ConfigError when the spec names no hosts, or does not say how many cards a node has where each card has to be
    named; UsageError for a resource that compose cannot give, and for a flag that no container could take.
    """
    hosts = [HostEntry.of(host) for host in spec.hosts]
    hosts = hosts or [HostEntry(f"worker-{rank}") for rank in range(options.nodes or 0)]
    if not hosts:
        raise ConfigError(
            "EP800 a compose file needs the names of the nodes",
            "the spec has no hosts",
            "add: hosts: [worker-0, worker-1]",
        )
    own = {
        "ENTRYPOINT_SPEC": f"/job/{options.spec_name}",
        "ENTRYPOINT_HOSTS": ",".join(host.name + (f":{host.slots}" if host.slots else "") for host in hosts),
        "ENTRYPOINT_SECRET_FILE": _SECRET,
    }
    counts = _counts(spec, options, len(hosts))
    return render_template(
        "compose/compose.yaml.j2",
        {
            "origin": f"{options.spec_name}",
            "nodes": [{"rank": rank, "host": host.name, **_cards(counts, rank)} for rank, host in enumerate(hosts)],
            "settings": settings(spec, own),
            "image": options.image,
            "folder": options.folder,
            "command": own_command(spec),
            "shm_size": "1gb",
            "stop_grace": f"{round(spec.timeouts.grace) + 10}s",
            "secret": _secret(spec),
        },
    )


def _secret(spec: JobSpec) -> str:
    """The secret's file on this machine, where no variable says another."""
    given = (spec.secret_file if spec.source("secret_file").origin == "flag" else None) or "secret"
    return given if given.startswith("/") else f"./{given}"


def _counts(spec: JobSpec, options: Options, nodes: int) -> dict[str, list[int | None]]:
    """Device -> how many of its cards each container gets; None: all of them."""
    known = {device: access for device in registry.names("devices") if (access := registry.access(device)).in_compose}
    asked = resources(options)
    if other := sorted(set(asked) - {access.resource for access in known.values()}):
        takes = " or ".join(f"{access.resource}=N" for access in known.values())
        do = f"compose gives {takes} alone; write others into the file, or use the target kubernetes"
        raise UsageError("EP804 compose cannot give such a resource", ", ".join(other), do)
    counts: dict[str, list[int | None]] = {}
    for device, access in known.items():
        if number := asked.get(access.resource):
            if not number.isdecimal():
                do = f"write --resource {access.resource}=2"
                raise UsageError("EP804 a number of cards is a whole number", number, do)
            counts[device] = [int(number)] * nodes
        elif spec.device == device:
            counts[device] = [spec.slots_of(rank) for rank in range(nodes)]
    return counts


def _cards(counts: Mapping[str, Sequence[int | None]], rank: int) -> dict[str, list[Any]]:
    """What a container needs for its cards, which are next to those of the nodes before: all are on one machine."""
    given: dict[str, list[Any]] = {"reserved": [], "files": [], "folders": []}
    for device, numbers in counts.items():
        access, own, first = registry.access(device), numbers[rank], sum(number or 0 for number in numbers[:rank])
        if own is None and not access.driver:
            raise ConfigError("EP801 how many cards has each node?", f"device: {device}, and no slots", "add slots: 8")
        cards = [str(card) for card in range(first, first + (own or 0))]
        if access.driver and own != 0:
            which = {"count": "all"} if own is None else {"device_ids": cards}
            given["reserved"].append({**which, "driver": access.driver, "capabilities": ["gpu"]})
        elif cards:
            given["files"] += [*map(access.card.format, cards), *access.files]
            given["folders"] += access.folders
    return given
