"""The choice of the network interface for a job's traffic: the one asked for; otherwise, if a node
has several, the roll call's.

One that leads nowhere, such as docker0, has Open MPI, NCCL and Gloo wait for connections that never
come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from entrypoint.base.model import Interface, NodeReport

if TYPE_CHECKING:
    import ipaddress

ANY = "^lo,docker"  # NCCL's own choice, in its words


def ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a text is; None where it is none."""
    import ipaddress  # a program alone asks for no address

    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def of_address(interfaces: Sequence[Interface], addresses: Iterable[str]) -> Interface | None:
    """The one that has these addresses; None where they are of several, or of none (loopback, or
    translated)."""
    wanted = {_plain(address) for address in addresses}
    matches = [
        next((interface for interface in interfaces if _plain(interface.address) == address), None)
        for address in wanted
    ]
    return (
        matches[0]
        if len({interface.name if interface else "" for interface in matches}) == 1
        else None
    )


def pick(
    interfaces: Iterable[Interface], wanted: str, usual: Interface | None = None
) -> Interface | None:
    """The one that a name, the beginning of a name, or a network (CIDR) means; None where there is
    none.

    A whole name wins over the beginning of another. Of several: `usual`, which the roll call came
    over; else one with an IPv4 address, which all libraries know; else the kernel's first.
    """

    def order(interface: Interface) -> tuple[bool, bool, bool]:
        return (
            interface != usual,
            usual is None or interface.name != usual.name,
            ":" in interface.address,
        )

    return min(_fitting(tuple(interfaces), wanted), key=order, default=None)


def _fitting(interfaces: Sequence[Interface], wanted: str) -> list[Interface]:
    if "/" in wanted:
        import ipaddress

        network = ipaddress.ip_network(wanted)
        return [
            interface
            for interface in interfaces
            if (address := ip(interface.address)) and address in network
        ]
    whole = [interface for interface in interfaces if interface.name == wanted]
    return whole or [interface for interface in interfaces if interface.name.startswith(wanted)]


def names(interfaces: Iterable[Interface]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(interface.name for interface in interfaces))


def of_node(report: NodeReport, wanted: str = "") -> str:
    """The name of the interface that programs of this node should take; "" where nobody asked and
    it has no other."""
    is_asked = wanted or len(report.interfaces) > 1
    return report.interface.name if report.interface and is_asked else ""


def of_all(reports: Sequence[NodeReport], wanted: str = "") -> str:
    """Return what Open MPI takes them by on all nodes: one name, else networks, since names differ.
    "" for no choice."""
    chosen = [report.interface for report in reports if report.interface]
    if len(chosen) < len(reports) or not any(of_node(report, wanted) for report in reports):
        return ""
    if len(common := names(chosen)) == 1:
        return common[0]
    networks = (
        [wanted]
        if "/" in wanted
        else list(dict.fromkeys(interface.network for interface in chosen))
    )
    # it knows no IPv6 networks
    return "" if any(":" in network for network in networks) else ",".join(networks)


def _plain(address: str) -> str:
    """One spelling: without a zone, and not mapped into IPv6."""
    parsed = ip(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed or address)
