"""This host's resolver of names."""

from __future__ import annotations

import socket
from typing import Any

Address = tuple[int, int, int, str, Any]  # as socket.getaddrinfo gives them


def addresses(host: str, port: int | None) -> list[Address]:
    """Return all addresses of the host, of either family, in the system's order of preference.

    Raises LookupError if there is none now; a starting container may get its DNS entry later.
    """
    try:
        # As bytes, since Python would import the IDNA tables for a string: host names are ASCII.
        return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM))
    except (socket.gaierror, UnicodeError) as error:
        raise LookupError(str(error)) from None
