"""Hosts with ports, as platforms write them: `host:port`, `[address]:port`, or a host alone."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.interfaces import ip

Listener = tuple[str, int | None]  # host, and port where it is given


def listener(entry: str) -> Listener:
    """Host and port of one entry. The last part of an IPv6 address without brackets is no port."""
    host, _, port = entry.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and len(port) < 9) or ip(entry):
        return entry, None
    inner = host[1:-1]  # of the brackets around an IPv6 address
    return inner if ":" in inner and ip(inner) else host, int(port)


def is_port(text: str) -> bool:
    """Whether this is the number of a TCP port."""
    return text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= 65535


def ports(listeners: Sequence[Listener]) -> tuple[int, ...]:
    """Return the port of each; nothing if one has none."""
    numbers = tuple(port for _, port in listeners if port is not None)
    return numbers if len(numbers) == len(listeners) else ()


def wrong_ports(listeners: Sequence[Listener], lists: str) -> tuple[str, str, str] | None:
    """Return why the hosts are unknown if a port cannot be one; `lists` names the variables."""
    wrong = [f"{host}:{port}" for host, port in listeners if port is not None and not is_port(str(port))]
    if not wrong:
        return None
    summary = f"a port is a number from 1 to 65535 ({lists})"
    return summary, ", ".join(wrong), "fix the list, or set ENTRYPOINT_HOSTS"
