"""The ports from which the nodes choose if a default port is taken, and worker-0's choice.
Every node computes the same ones."""

from __future__ import annotations

from entrypoint.base.errors import HostError
from entrypoint.base.model import DEFAULT, LaunchPort, Members, Source, Topology
from entrypoint.base.text import some
from entrypoint.base.values import replace
from entrypoint.spec import JobSpec
from entrypoint.spec.rules import port_blocks

EVERYWHERE = 8  # ports that every node of a job offers
_ALONE = 64  # that worker-0 probes if it alone decides
_SHOWN = 4  # nodes in one line


def is_fixed(spec: JobSpec) -> bool:
    """Return whether the user has set the port, which is then kept."""
    return spec.source("port") != DEFAULT


def candidates(
    spec: JobSpec, wanted: LaunchPort, job: str, shared: bool = False
) -> tuple[int, ...]:
    """Return the planned port, and first ports of blocks of the range that can replace it.

    They begin at another block for each `job`, a text that all its nodes know, so that jobs that
    start together seldom want the same ones. If a scheduler may start several jobs on one host
    (`shared`), the planned port comes last.
    """
    if is_fixed(spec):
        return (wanted.first,)
    number = EVERYWHERE if wanted.everywhere else _ALONE
    blocks = port_blocks(spec.network.ports, wanted.span, job, number - 1)
    return (*blocks, wanted.first) if shared else (wanted.first, *blocks)


def choose(
    wanted: LaunchPort | None, topology: Topology, members: Members
) -> tuple[int, tuple[str, ...]]:
    """Return the port, or 0 if the planned one is free wherever it is needed; and what to log.

    Raises HostError if none of the ports that worker-0 offers is free on all nodes.
    """
    offers = [report for report in members.reports if report.ports is not None]
    if wanted is None or not offers:
        return 0, ()
    common = set(offers[0].ports or ()).intersection(*(report.ports or () for report in offers))
    port = next((port for port in offers[0].ports or () if port in common), 0)
    if port == wanted.first:
        return 0, ()
    taken = [
        f"{topology.name(report.rank)} by {report.holder}"
        for report in offers
        if report.holder and wanted.first not in (report.ports or ())
    ]
    words = f"port {wanted.first} is taken on {some(taken, _SHOWN)}" if taken else ""
    if not port:
        raise HostError(
            "EP436 no port for the launcher is free on all nodes",
            words,
            "give network.ports another or a wider range, the same on all nodes",
        )
    return port, ("; ".join(filter(None, (words, f"the launcher gets port {port}"))),)


def with_chosen(spec: JobSpec, wanted: LaunchPort | None, port: int) -> JobSpec:
    """Return the spec with the port that the roll call has chosen, 0 for the planned one."""
    if not port or wanted is None or port == wanted.first:
        return spec
    sources = {**spec._sources, "port": Source("the roll call")}
    return replace(spec, port=port, _sources=sources)
