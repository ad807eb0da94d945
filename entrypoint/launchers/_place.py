"""What several launchers give their programs: variables for a node's place among the others, and
files of templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from entrypoint.errors import ConfigError
from entrypoint.model import EnvVar, File, LaunchPort, Members, Topology
from entrypoint.render import render
from entrypoint.spec import JobSpec


def file(template: str, context: Mapping[str, Any] | None = None, mode: int = 0o600) -> File:
    """Return the file that this template gives, of the template's own name."""
    name = PurePath(template).name.removesuffix(".j2")
    return File(name, render(template, context or {}), template, mode)


def endpoint(host: str, port: int | str) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def master(topology: Topology) -> str:
    """Return the host at which the programs of all nodes meet: worker-0, or this container if it is
    the only node."""
    return topology.leader.where if topology.has_peers else "127.0.0.1"


def place(spec: JobSpec, topology: Topology) -> tuple[EnvVar, EnvVar, EnvVar]:
    """Return NODE_RANK, MASTER_ADDR and MASTER_PORT, as used by PyTorch and others; a user's own
    value wins."""
    origins = topology.origins
    alone = "the only node"
    hosts = str(origins.get("hosts", "")) if topology.has_peers else alone
    return (
        EnvVar("NODE_RANK", str(topology.me), str(origins.get("node_rank", alone)), default=True),
        EnvVar("MASTER_ADDR", master(topology), hosts, default=True),
        EnvVar("MASTER_PORT", str(spec.torch.port), str(spec.source("torch.port")), default=True),
    )


def meeting_port(
    spec: JobSpec, topology: Topology, path: str, variable: str = "", needed: bool = True
) -> LaunchPort | None:
    """Return the port of the setting at `path`, on which a program of worker-0 listens.

    None if the spec's own `env` has the variable that names it, or a single node needs none.
    """
    if not topology.has_peers or variable in spec.env:
        return None
    here = (0,) if topology.is_leader else ()
    return LaunchPort(path, spec.value(path), here=here, needed=needed)


def equal_slots(launcher: str, topology: Topology, members: Members) -> int:
    """Return the number of ranks. Raises ConfigError if one node has more slots than another."""
    if len(set(members.slots)) > 1:
        detail = ", ".join(
            f"{node.name} has {count}"
            for node, count in zip(topology.nodes, members.slots, strict=True)
        )
        summary = f"EP121 {launcher} needs the same number of processes on every node"
        raise ConfigError(summary, detail, "set slots for all nodes")
    return sum(members.slots)
