"""Probes of the network: interfaces, RDMA devices, names; clocks and round trips, which the roll
call has measured."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from entrypoint.base.model import Topology
from entrypoint.base.text import digits
from entrypoint.base.values import frozen
from entrypoint.features.health.probe import Fields, Findings, Inputs, NodeView, Probe
from entrypoint.features.health.probes.container import LockedMemory
from entrypoint.features.health.reading import Named, Number, Rows, String, Strings
from entrypoint.plan.limits import CLOCKS_OF_CHECK, clocks_apart
from entrypoint.system import network
from entrypoint.system.preflight import ROOT

_LINKS = 64  # addresses that are reported
# nodes whose names are looked up: each node asks for others, so that a thousand of them flood no
# server
_NAMES = 64
_REVERSE = 4  # addresses of this node whose names are looked up
_AGAIN = 0.5  # seconds until a name that has no address yet is asked for once more
_ROUND_TRIP = 0.01  # seconds: between two sites of one region it is 1 to 3 ms


@frozen
class Link:
    """An address of a network interface that is up."""

    name: String = ""
    address: String = ""
    network: String = ""
    mtu: Number = None
    speed: Number = None  # Mbit/s

    def __str__(self) -> str:
        more = [f"MTU {self.mtu:g}"] if self.mtu else []
        more += [f"{self.speed / 1000:g} Gbit/s"] if self.speed and self.speed > 0 else []
        details = f" ({', '.join(more)})" if more else ""
        return f"{self.name} {self.address}{details}"


@frozen
class Interfaces(Probe):
    """Network interfaces that are up, with MTU and speed as the kernel has them; or that there is
    none but loopback."""

    name = "interfaces"
    texts = """
    page | interfaces | address, MTU and speed | one that is up | MTU
    interfaces | network interfaces
    interfaces/none | network interfaces | one that is up | see the container's network
    differs-mtu | MTU | set one MTU on all nodes and switches
    """
    is_cheap = True
    links: Rows[Link] = ()
    no_link: bool = False

    @staticmethod
    def read(inputs: Inputs) -> Fields:
        rows = []
        for interface in network.interfaces()[:_LINKS]:
            folder = Path("/sys/class/net", interface.name)
            mtu, speed = (digits(_text(folder / name)) for name in ("mtu", "speed"))  # or -1
            rows.append(Link(interface.name, interface.address, interface.network, mtu, speed))
        return {"links": tuple(rows), "no_link": not rows}

    def judge(self, view: NodeView) -> Findings:
        if self.links:
            yield self.finding("ok", "interfaces", ", ".join(map(str, self.links)))
        elif self.no_link and _has_peers(view):
            yield self.finding("warning", "interfaces/none", "none but loopback")

    def alike(self, view: NodeView) -> Mapping[str, str]:
        names = {link.name for link in self.links}
        if view.report and view.report.interface:  # that the roll call came over
            names = {view.report.interface.name}
        mtus = (link.mtu for link in self.links if names == {link.name} and link.mtu)
        return {"mtu": next((f"{mtu:g}" for mtu in mtus), "")}


@frozen
class Port:
    """A port of an InfiniBand or RoCE device."""

    device: String = ""
    port: String = ""
    link: String = ""  # InfiniBand, or Ethernet for RoCE
    state: String = ""
    rate: String = ""

    @property
    def is_active(self) -> bool:
        """Return whether it can be used."""
        return "active" in self.state.lower()


@frozen
class Rdma(Probe):
    """Ports of InfiniBand and RoCE devices (Linux, sysfs-class-infiniband)."""

    name = "RDMA"
    texts = """
    page | RDMA | InfiniBand and RoCE ports | ports that are active, with device files | number of
        active ports
    rdma | RDMA {device} port {port} | ACTIVE | check the cable, the switch and the subnet manager;
        if it is not to be used, NCCL leaves it out on its own
    rdma-files | RDMA device files | /dev/infiniband/uverbs* | give the container /dev/infiniband,
        and memlock -1
    differs-rdma | active RDMA ports | make sure that every container has /dev/infiniband, and every
        port is up
    """
    is_cheap = True
    ports: Rows[Port] = ()

    @staticmethod
    def read(inputs: Inputs, root: Path = ROOT) -> Fields:
        ports = []
        for place in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
            link, state, rate = (_text(place / name) for name in ("link_layer", "state", "rate"))
            state = state.partition(": ")[2] or state
            ports.append(Port(place.parent.parent.name, place.name, link, state, rate))
        return {"ports": tuple(ports)}

    def judge(self, view: NodeView) -> Findings:
        for port in self.ports:
            seen = f"{port.link} {port.state} {port.rate}".strip()
            level = "ok" if port.is_active else "warning"
            yield self.finding(level, "rdma", seen, device=port.device, port=port.port)
        if self.ports and view.of(LockedMemory).rdma_files == 0:
            seen = f"{len(self.ports)} ports, no device file"
            yield self.finding("warning", "rdma-files", seen)

    def alike(self, view: NodeView) -> Mapping[str, str]:
        return {"rdma": str(sum(port.is_active for port in self.ports))}


@frozen
class Name:
    """A node's name, and the addresses that it has here."""

    host: String = ""
    addresses: Strings = ()
    problem: String = ""


@frozen
class Names(Probe):
    """The addresses of nodes' names, and of this container's own host name; and the names that
    addresses of this node lead back to."""

    texts = """
    page | names | the addresses of the leader's name, of this node's, and of the next 63; the names
        of this node's addresses | an address for each; a node's name resolves to that node |
        addresses of names
    dns | names of the nodes
    dns/unknown | the name {host} | an address | make sure that DNS knows it here, or give its
        address: hosts: [NAME=ADDRESS]
    own-name | own name {host} | an address, for Gloo | give the container a name that it can look
        up (/etc/hosts, --hostname), or set network.interface
    own-name/loopback | own name {host} | no loopback address | correct /etc/hosts, for programs
        that listen at this name's address
    reverse-dns | name of its address
    differs-dns | the address of {name} | compare /etc/resolv.conf and /etc/hosts of the nodes: they
        use different name servers
    dns-elsewhere | name resolves elsewhere | its own address | a name must resolve to the container
        itself (in Kubernetes a headless Service): ranks call each other
    """
    names: Rows[Name] = ()
    own: Name = Name()
    reverse: Rows[Named] = ()

    @classmethod
    def readings(cls, inputs: Inputs) -> dict[str, Callable[[], Fields]]:
        own, until = inputs.facts.hostname, time.monotonic() + inputs.limit
        return {
            f"own name {own}": lambda: {"own": _name(own)},
            **{
                f"the name {host}": partial(_lookup, host, until)
                for host in _asked(inputs.plan.topology)
            },
            **{
                f"the name of {interface.address}": partial(_reverse, interface.address)
                for interface in inputs.facts.interfaces[:_REVERSE]
            },
        }

    def judge(self, view: NodeView) -> Findings:
        own, resolved = self.own, [name for name in self.names if name.addresses]
        for name in self.names:
            if not name.addresses:
                level = "error" if name.host == view.plan.topology.leader.host else "warning"
                seen = name.problem or "no address"
                yield self.finding(level, "dns/unknown", seen, host=name.host)
        if resolved:
            seen = f"{len(resolved)} of {len(self.names)} have an address here"
            yield self.finding("ok", "dns", seen)
        if _has_peers(view):
            if own.host and not own.addresses:
                seen = own.problem or "no address"
                yield self.finding("warning", "own-name", seen, host=own.host)
            elif _is_loopback(*own.addresses):
                seen = f"resolves to {', '.join(own.addresses)}"
                yield self.finding("warning", "own-name/loopback", seen, host=own.host)
        for row in self.reverse:
            seen = f"{row.name} is {row.value or 'without a name'}"
            yield self.finding("ok", "reverse-dns", seen)

    def alike(self, view: NodeView) -> Mapping[str, str]:
        return {
            f"dns {name.host}": ", ".join(sorted(name.addresses))
            for name in self.names
            if name.host != view.node.host  # its own /etc/hosts may have another address
        }

    @classmethod
    def compare(cls, views: Sequence[NodeView]) -> Findings:
        """Yield also names that lead to an address that their node does not have."""
        yield from super().compare(views)
        answered = [view for view in views if view.results]
        answers: dict[str, list[str]] = {}
        for view in answered:
            for key, addresses in view.of(cls).alike(view).items():
                answers.setdefault(key, []).append(addresses)
        for view in answered:
            host, own = view.node.host, {link.address for link in view.of(Interfaces).links}
            values = [value for value in answers.get(f"dns {host}", ()) if value]
            usual = max(values, key=values.count, default="")
            if own and usual and not own & set(usual.split(", ")):
                seen = f"{host} resolves to {usual}, the node has {', '.join(sorted(own))}"
                yield cls.finding("warning", "dns-elsewhere", seen, (view.node.label,))


class Clocks(Probe):
    """The clocks of the nodes, as the roll call compared them."""

    texts = """
    page | clocks | how far each is from the others | within 10 s
    clock | clock | within {limit:.0f}s | set the host's clock with NTP: logs, certificates and
        checks for new files go wrong
    """

    @classmethod
    def compare(cls, views: Sequence[NodeView]) -> Findings:
        clocks = {view.node.rank: view.report.clock for view in views if view.report}
        apart = clocks_apart(clocks, CLOCKS_OF_CHECK)
        for node in (view.node for view in views if view.node.rank in apart):
            by = apart[node.rank]
            yield cls.finding("warning", "clock", by, (node.label,), limit=CLOCKS_OF_CHECK)


class RoundTrips(Probe):
    """The fastest round trip of a packet between worker-0 and each node: worker-0 itself is slow,
    where those of several others all are."""

    texts = """
    page | round trips | the fastest round trip between worker-0 and each node, as the kernel
        measured it during the roll call. If the round trips of several nodes are all slow, worker-0
        is named; with two nodes, both are named | 10 ms. [`entrypoint
        netcheck`](network.md#find-a-slow-node) measures all pairs
    latency | round trip | within {limit:.0f} ms | `entrypoint netcheck` measures all pairs: look
        for a host in another zone, or a bad link
    """

    @classmethod
    def compare(cls, views: Sequence[NodeView]) -> Findings:
        trips = {
            view.node.label: view.report.round_trip
            for view in views
            if view.report and view.report.round_trip > 0
        }
        late = {label: trip for label, trip in trips.items() if trip > _ROUND_TRIP}
        leader = views[0].plan.topology.leader.label
        if 1 < len(late) == len(trips):
            late = {leader: median(trips.values())}
        for label, trip in late.items():
            peer = "to worker-0" if label != leader else "to the others"
            seen = f"{trip * 1000:.0f} ms {peer} and back"
            # of two nodes nobody can tell which
            nodes = (label,) if len(trips) > 1 else (leader, label)
            yield cls.finding("warning", "latency", seen, nodes, limit=_ROUND_TRIP * 1000)


def _asked(topology: Topology) -> list[str]:
    """Names of the leader, of this node, and of the next ones, that have no address in the spec."""
    nodes = topology.nodes
    turned = (nodes[0], *nodes[topology.me :], *nodes[: topology.me])
    names = dict.fromkeys(node.host for node in turned[: _NAMES + 1] if not node.address)
    return list(names) if topology.has_peers else []


def _lookup(host: str, until: float) -> Fields:
    name = _name(host)
    while not name.addresses and time.monotonic() + _AGAIN < until:
        threading.Event().wait(_AGAIN)  # a name that appears sends no event
        name = _name(host)
    return {"names": (name,)}


def _name(host: str) -> Name:
    try:
        known = dict.fromkeys(str(address[0]) for *_, address in network.addresses(host, None))
    except LookupError as error:
        return Name(host, problem=str(error))
    return Name(host, tuple(known)[:64])


def _reverse(address: str) -> Fields:
    name = ""
    with contextlib.suppress(OSError):
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    return {"reverse": (Named(address, name),)}


def _has_peers(view: NodeView) -> bool:
    """Return whether other containers have to reach this node."""
    return view.plan.topology.has_peers and not _is_loopback(view.node.address or "")


def _is_loopback(*addresses: str) -> bool:
    return bool(addresses) and all(
        address.startswith("127.") or address == "::1" for address in addresses
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # a speed that the driver does not know is an error
        return ""
