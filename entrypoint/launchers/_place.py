"""What several launchers tell their programs: where a node stands among the others, and settings of the spec."""

from __future__ import annotations

from entrypoint.model import EnvVar, Topology
from entrypoint.spec import JobSpec, fields


def endpoint(host: str, port: int) -> str:
    """Host and port in one word, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def master(topology: Topology) -> str:
    """Where the programs of all nodes meet: worker-0, or this container itself where it is the only node."""
    return topology.leader.where if len(topology.nodes) > 1 else "127.0.0.1"


def place(spec: JobSpec, topology: Topology) -> tuple[EnvVar, EnvVar, EnvVar]:
    """NODE_RANK, MASTER_ADDR and MASTER_PORT, as PyTorch's and others' programs know them; a user's own value wins."""
    origins, alone = topology.origins, "the only node"
    hosts = str(origins.get("hosts", "")) if len(topology.nodes) > 1 else alone
    return (
        EnvVar("NODE_RANK", str(topology.me), str(origins.get("node_rank", alone)), default=True),
        EnvVar("MASTER_ADDR", master(topology), hosts, default=True),
        EnvVar("MASTER_PORT", str(spec.torch.port), str(spec.source("torch.port")), default=True),
    )


def settled(spec: JobSpec, *paths: str) -> tuple[EnvVar, ...]:
    """These fields of the spec, where they have a value, as the variables that other tools have for them.

    So what the plan shows is what a script uses.
    """
    named = {field.path: field.aliases[0] for field in fields() if field.path in paths}
    values = {path: spec.value(path) for path in paths}
    return tuple(
        EnvVar(named[path], str(value), str(spec.source(path))) for path, value in values.items() if value is not None
    )
