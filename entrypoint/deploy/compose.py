"""A compose file: one container for each host of the spec, to try a multi-node job on one machine."""

from __future__ import annotations

from typing import Any

from entrypoint.deploy._options import Options, resources, settings
from entrypoint.errors import ConfigError, UsageError
from entrypoint.render import render as render_template
from entrypoint.spec import HostEntry, JobSpec

__all__ = ["Options", "render"]

_SECRET = "/run/secrets/entrypoint"
_GPU = "nvidia.com/gpu"  # the name that Kubernetes has for it too
# What a container needs beside its cards, as CANN's images are started; not tried on a machine with cards.
_ASCEND = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_ASCEND_DRIVER = "/usr/local/Ascend/driver"


def render(spec: JobSpec, options: Options) -> str:
    """The compose file's text. Works with compose v1 and v2; the secret is a mounted file, not a variable.

    Raises ConfigError when the spec names no hosts, or asks for Ascend cards and not for how many; UsageError for a
    resource that compose cannot give, and for a flag that no container could take.
    """
    hosts = [HostEntry.of(host) for host in spec.hosts]
    hosts = hosts or [HostEntry(f"worker-{rank}") for rank in range(options.nodes or 0)]
    if not hosts:
        raise ConfigError(
            "a compose file needs the names of the nodes", "the spec has no hosts", "add: hosts: [worker-0, worker-1]"
        )
    own = {
        "ENTRYPOINT_SPEC": f"/job/{options.spec_name}",
        "ENTRYPOINT_HOSTS": ",".join(host.name + (f":{host.slots}" if host.slots else "") for host in hosts),
        "ENTRYPOINT_SECRET_FILE": _SECRET,
    }
    gpus = [_gpus(spec, options, rank) for rank in range(len(hosts))]
    return render_template(
        "compose/compose.yaml.j2",
        {
            "origin": f"{options.spec_name}",
            "nodes": [
                {"rank": rank, "host": host.name, "gpus": _own(gpus, rank), "devices": _devices(spec, rank)}
                for rank, host in enumerate(hosts)
            ],
            "settings": settings(spec, own),
            "image": options.image,
            "folder": options.folder,
            "driver": _ASCEND_DRIVER,
            # Arguments after -- replace the spec's command; without them the containers find it in the spec.
            "command": list(spec.command) if spec.source("command").origin == "flag" else [],
            "shm_size": "1gb",
            "stop_grace": f"{round(spec.timeouts.grace) + 10}s",
            "secret": _secret(spec),
        },
    )


def _secret(spec: JobSpec) -> str:
    """The secret's file on this machine, where no variable says another."""
    given = (spec.secret_file if spec.source("secret_file").origin == "flag" else None) or "secret"
    return given if given.startswith("/") else f"./{given}"


def _gpus(spec: JobSpec, options: Options, rank: int) -> int | None:
    """How many GPUs a container gets; None: all of them."""
    asked = resources(options)
    if other := sorted(set(asked) - {_GPU}):
        do = f"compose gives {_GPU}=N alone; write others into the file, or use the target kubernetes"
        raise UsageError("compose cannot give such a resource", ", ".join(other), do)
    if _GPU in asked:
        if not asked[_GPU].isdecimal():
            raise UsageError("a number of GPUs is a whole number", asked[_GPU], f"write --resource {_GPU}=2")
        return int(asked[_GPU])
    return spec.slots_of(rank) if spec.device == "nvidia" else 0


def _own(counts: list[int | None], rank: int) -> dict[str, Any]:
    """The GPUs of a node, next to those of the nodes before it: all containers are on one machine."""
    count, first = counts[rank], sum(count or 0 for count in counts[:rank])
    if count is None:
        return {"count": "all"}
    return {"device_ids": [str(card) for card in range(first, first + count)]} if count else {}


def _devices(spec: JobSpec, rank: int) -> list[str]:
    """The Ascend cards of a node, chosen as GPUs are, and the devices of their driver."""
    if spec.device != "ascend":
        return []
    counts = [spec.slots_of(each) for each in range(rank + 1)]
    if None in counts:
        raise ConfigError("how many cards has each node?", "device: ascend, and no slots", "add slots: 8")
    *before, own = (count or 0 for count in counts)
    cards = range(sum(before), sum(before) + own)
    return [*(f"/dev/davinci{card}" for card in cards), *_ASCEND]
