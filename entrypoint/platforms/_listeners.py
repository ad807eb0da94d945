"""Hosts with ports in the forms of platforms: `host:port`, `[address]:port`, or only a host."""

from __future__ import annotations

from collections.abc import Sequence

from entrypoint.interfaces import ip

Listener = tuple[str, int | None]  # host, and port if there is one


def digits(text: str) -> int | None:
    """Return the number that this text is; None if it is none, or larger than any number here."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def listener(entry: str) -> Listener:
    """Return host and port of an entry. The last part of an IPv6 address without brackets is no
    port."""
    host, _, port = entry.rpartition(":")
    number = digits(port)
    if not host or number is None or ip(entry):
        return entry, None
    inner = host[1:-1]  # inside the brackets around an IPv6 address
    return inner if ":" in inner and ip(inner) else host, number


def is_port(text: str) -> bool:
    """Return whether this is the number of a TCP port."""
    return 1 <= (digits(text) or 0) <= 65535


def ports(listeners: Sequence[Listener]) -> tuple[int, ...]:
    """Return the port of each; nothing if one has none."""
    numbers = tuple(port for _, port in listeners if port is not None)
    return numbers if len(numbers) == len(listeners) else ()


def wrong_ports(listeners: Sequence[Listener], lists: str) -> tuple[str, str, str] | None:
    """Return why the hosts are unknown if a port cannot be one; `lists` names the variables."""
    invalid = [
        f"{host}:{port}" for host, port in listeners if port is not None and not is_port(str(port))
    ]
    if not invalid:
        return None
    summary = f"a port is a number from 1 to 65535 ({lists})"
    return summary, ", ".join(invalid), "fix the list, or set ENTRYPOINT_HOSTS"
