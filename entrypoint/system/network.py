"""The network interfaces of this host, as the kernel lists them, and its resolver of names."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import Any

from entrypoint.base.model import Interface

# SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFNETMASK of netdevice(7)
_CONF = 0x8912
_FLAGS = 0x8913
_MASK = 0x891B
_ENTRY = 40  # bytes of a struct ifreq
_MOST = 256  # entries that are requested
_UP = 0x1
_LOOPBACK = 0x8

Address = tuple[int, int, int, str, Any]  # as socket.getaddrinfo gives them


def addresses(host: str, port: int | None = None, flags: int = 0) -> list[Address]:
    """Return all addresses of the host, of either family, in the system's order of preference;
    `flags` as for socket.getaddrinfo.

    Raises LookupError if there is none now; a starting container may get its DNS entry later.
    """
    try:
        # As bytes, since Python would import the IDNA tables for a string: host names are ASCII.
        return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=flags))
    except (socket.gaierror, UnicodeError) as error:
        raise LookupError(str(error)) from None


def interfaces() -> tuple[Interface, ...]:
    """Return the network interfaces that are up and have an address, except the loopback
    interface."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
            return (*_of_ipv4(query), *_of_ipv6(query))
    except OSError:
        return ()


def _of_ipv4(query: socket.socket) -> Iterator[Interface]:
    buffer = array.array("B", bytes(_ENTRY * _MOST))
    at, _ = buffer.buffer_info()
    size, _ = struct.unpack(
        "iP", fcntl.ioctl(query.fileno(), _CONF, struct.pack("iP", len(buffer), at))
    )
    for start in range(0, size, _ENTRY):
        entry = buffer[start : start + _ENTRY].tobytes()
        label = entry[:16].split(b"\0")[0].decode(errors="replace")
        if _is_up(query, label):
            mask = socket.inet_ntoa(fcntl.ioctl(query.fileno(), _MASK, entry)[20:24])
            yield _interface(label, socket.inet_ntoa(entry[20:24]), mask)


def _of_ipv6(query: socket.socket) -> Iterator[Interface]:
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as lines:
        for line in lines:
            address, _, prefix, scope, _, name = line.split()
            if scope == "00" and _is_up(query, name):  # 20 is link-local
                shown = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
                yield _interface(name, shown, str(int(prefix, 16)))


def _is_up(query: socket.socket, name: str) -> bool:
    request = struct.pack("40s", name.encode()[:15])
    flags = struct.unpack_from("H", fcntl.ioctl(query.fileno(), _FLAGS, request), 16)[0]
    return bool(flags & _UP) and not flags & _LOOPBACK


def _interface(label: str, address: str, mask: str) -> Interface:
    network = ipaddress.ip_network(f"{address}/{mask}", strict=False)
    # eth0:1 is a second address of eth0
    return Interface(label.partition(":")[0], address, str(network))
