"""The network interfaces of this machine, as the kernel tells them."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator

from entrypoint.model import Interface

_CONF, _FLAGS, _MASK = 0x8912, 0x8913, 0x891B  # SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFNETMASK of netdevice(7)
_ENTRY, _MOST = 40, 256  # bytes of a struct ifreq, and how many are asked for
_UP, _LOOPBACK = 0x1, 0x8


def interfaces() -> tuple[Interface, ...]:
    """The network interfaces that are up and have an address for others to call; never the loopback one."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            return (*_of_ipv4(asked), *_of_ipv6(asked))
    except OSError:
        return ()


def _of_ipv4(asked: socket.socket) -> Iterator[Interface]:
    buffer = array.array("B", bytes(_ENTRY * _MOST))
    at, _ = buffer.buffer_info()
    size, _ = struct.unpack("iP", fcntl.ioctl(asked.fileno(), _CONF, struct.pack("iP", len(buffer), at)))
    for start in range(0, size, _ENTRY):
        entry = buffer[start : start + _ENTRY].tobytes()
        label = entry[:16].split(b"\0")[0].decode(errors="replace")
        if _is_up(asked, label):
            mask = socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _MASK, entry)[20:24])
            yield _interface(label, socket.inet_ntoa(entry[20:24]), mask)


def _of_ipv6(asked: socket.socket) -> Iterator[Interface]:
    text = ""
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        text = file.read()
    for line in text.splitlines():
        address, _, prefix, scope, _, name = line.split()
        if scope == "00" and _is_up(asked, name):  # 20 is of the link alone
            yield _interface(name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)), str(int(prefix, 16)))


def _is_up(asked: socket.socket, name: str) -> bool:
    request = struct.pack("40s", name.encode()[:15])
    flags = struct.unpack_from("H", fcntl.ioctl(asked.fileno(), _FLAGS, request), 16)[0]
    return bool(flags & _UP) and not flags & _LOOPBACK


def _interface(label: str, address: str, mask: str) -> Interface:
    network = ipaddress.ip_network(f"{address}/{mask}", strict=False)
    return Interface(label.partition(":")[0], address, str(network))  # eth0:1 is a second address of eth0
