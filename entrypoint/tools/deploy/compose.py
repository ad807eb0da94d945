"""A compose file: one container for each host of the spec, to test a multi-node job on one
machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, UsageError
from entrypoint.base.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec
from entrypoint.tools.deploy._options import (
    DEFAULT,
    Options,
    metrics_address,
    resources,
    settings,
    start_command,
    toolkit_image,
    unknown_cards,
    unmountable,
)

TAKES = (*DEFAULT, "mount", "inject", "start")
NEEDS_NAMES = True  # each node is a service of its own
FILES_ARE_HERE = True  # the secret and what is mounted are files of this machine
_SECRET = "/run/secrets/entrypoint"


def render(spec: JobSpec, options: Options) -> str:
    """Return the compose file, for compose v1 and v2; the secret is a mounted file, not a variable.

    Raises ConfigError if the spec names no hosts, or has no number of cards although each card has
    to be named; UsageError for a resource that compose does not support, a toolkit that is no
    image, and a flag that cannot apply to all containers.
    """
    hosts = [HostEntry.of(host) for host in spec.hosts]
    hosts = hosts or [HostEntry(f"worker-{rank}") for rank in range(options.nodes or 0)]
    if not hosts:
        raise ConfigError(
            "EP800 a compose file needs the names of the nodes",
            "the spec has no hosts",
            "add: hosts: [worker-0, worker-1]",
        )
    if invalid := [mount for mount in options.mount if ":" in mount.source]:
        raise unmountable(invalid, "use a folder of this host whose path has no :")
    variables = {
        "ENTRYPOINT_SPEC": f"/job/{options.spec_name}",
        "ENTRYPOINT_HOSTS": ",".join(
            host.name + (f":{host.slots}" if host.slots else "") for host in hosts
        ),
        "ENTRYPOINT_SECRET_FILE": _SECRET,
        **metrics_address(spec),
    }
    counts = _counts(spec, options, len(hosts))
    return render_template(
        "compose/compose.yaml.j2",
        {
            "origin": options.spec_name,
            "nodes": [
                {"rank": rank, "host": host.name, **_cards(counts, rank)}
                for rank, host in enumerate(hosts)
            ],
            "settings": settings(spec, options, variables),
            "image": options.image,
            "toolkit": toolkit_image(options),
            "folder": options.folder,
            "mounts": list(map(str, options.mount)),
            "command": start_command(spec, options),
            "shm_size": "1gb",
            "stop_grace": f"{round(spec.timeouts.grace) + 10}s",
            "secret": _secret(spec),
        },
    )


def _secret(spec: JobSpec) -> str:
    """Return the secret's file on this machine, unless a variable names another."""
    path = (spec.secret_file if spec.source("secret_file").origin == "flag" else None) or "secret"
    return path if path.startswith("/") else f"./{path}"


def _counts(spec: JobSpec, options: Options, nodes: int) -> dict[str, list[int | None]]:
    """Return device -> number of its cards for each container; None: all of them."""
    devices = {
        device: access
        for device in registry.names("devices")
        if (access := registry.access(device)).driver or access.card
    }
    requested = resources(options)
    if other := sorted(set(requested) - {access.resource for access in devices.values()}):
        takes = " or ".join(f"{access.resource}=N" for access in devices.values())
        hint = (
            f"compose gives {takes} alone; write others into the file, or use the target kubernetes"
        )
        raise UsageError("EP804 compose cannot give such a resource", ", ".join(other), hint)
    counts: dict[str, list[int | None]] = {}
    for device, access in devices.items():
        if number := requested.get(access.resource):
            if not number.isdecimal():
                hint = f"write --resource {access.resource}=2"
                raise UsageError("EP804 a number of cards is a whole number", number, hint)
            counts[device] = [int(number)] * nodes
        elif spec.device == device:
            counts[device] = [spec.slots_of(rank) for rank in range(nodes)]
    return counts


def _cards(counts: Mapping[str, Sequence[int | None]], rank: int) -> dict[str, list[Any]]:
    """Return a container's settings for its cards, which follow those of earlier nodes on the same
    machine."""
    context: dict[str, list[Any]] = {"reserved": [], "files": [], "folders": []}
    for device, numbers in counts.items():
        access = registry.access(device)
        number = numbers[rank]
        first = sum(count or 0 for count in numbers[:rank])
        if number is None and not access.driver:
            raise unknown_cards(device, "add slots: 8")
        cards = [str(card) for card in range(first, first + (number or 0))]
        if access.driver and number != 0:
            which = {"count": "all"} if number is None else {"device_ids": cards}
            context["reserved"].append({**which, "driver": access.driver, "capabilities": ["gpu"]})
        elif cards:
            context["files"] += [*map(access.card.format, cards), *access.files]
            context["folders"] += access.folders
    return context
