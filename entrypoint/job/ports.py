"""The choice of the port at which the programs of all nodes meet, from what the nodes offer."""

from __future__ import annotations

from entrypoint.errors import OsError
from entrypoint.model import LaunchPort, Members, Topology
from entrypoint.text import some

_SHOWN = 4  # nodes in one line


def choose(
    wanted: LaunchPort | None, topology: Topology, members: Members
) -> tuple[int, tuple[str, ...]]:
    """Return the port, or 0 if the planned one is free wherever it is needed; and what to log.

    Raises OsError if none of the ports that worker-0 offers is free on all nodes.
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
        raise OsError(
            f"EP436 no port for {wanted.path} is free on all nodes",
            words,
            "give network.ports another or a wider range, the same on all nodes",
        )
    return port, ("; ".join(filter(None, (words, f"{wanted.path} is {port}"))),)
