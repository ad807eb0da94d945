"""One pair of nodes measures: small round trips, then one TCP stream each way.

The first of the two connects and measures, the other serves.
"""

from __future__ import annotations

import contextlib
import socket
import time
from statistics import median

from entrypoint.programs.netlink import (
    HANDSHAKE,
    Deadline,
    Stranger,
    admit,
    connect,
    listen,
    read,
    receive,
    send,
    serve,
)

_TRIP = 64  # bytes of a round trip
_TRIPS, _LEAST_TRIPS, _TRIPS_SECONDS = 200, 5, 1.0
_WARM = 3  # round trips that do not count: the first ones wait for routes and processors
_CHUNK = bytes(256 << 10)
_MARGIN = 2.0  # seconds after a stream's own, until what was sent has arrived or is given up
MOST_STRANGERS, _MOST_AT_ONCE = 16, 128  # that are named; connections that are served at one time


def limit(seconds: float) -> float:
    """Seconds in which a pair has measured, or has failed."""
    return 3 * 2 * HANDSHAKE + _TRIPS_SECONDS + HANDSHAKE + 2 * (seconds + 2 * _MARGIN)


def measure(host: str, port: int, token: bytes, seconds: float) -> dict[str, float]:
    """The pair's figures, as a Measured has them. Raises OSError or Stranger, with words for people, where it fails."""
    with connect(host, port, token) as link:
        trips = sorted(_trips(link))
    with connect(host, port, token) as link:
        send(link, {"do": "sink", "seconds": seconds}, HANDSHAKE)
        _pour(link, seconds)
        there = receive(link, seconds + 2 * _MARGIN)
    with connect(host, port, token) as link:
        send(link, {"do": "source", "seconds": seconds}, HANDSHAKE)
        back = _drain(link, seconds)
    return {
        "latency_ms": median(trips) * 1e3,
        "worst_ms": trips[-1] * 1e3,
        "there_gbps": float(there["gbps"]),
        "back_gbps": back,
    }


def _trips(link: socket.socket) -> list[float]:
    """Seconds of each small round trip."""
    send(link, {"do": "echo"}, HANDSHAKE)
    until, enough = Deadline(_TRIPS_SECONDS + HANDSHAKE), Deadline(_TRIPS_SECONDS)
    took: list[float] = []
    while len(took) < _WARM + _TRIPS and (enough.left or len(took) < _WARM + _LEAST_TRIPS):
        begun = time.perf_counter()
        link.sendall(bytes(_TRIP))
        read(link, _TRIP, until)
        took.append(time.perf_counter() - begun)
    return took[_WARM:]


def _pour(link: socket.socket, seconds: float) -> None:
    """Send as much as goes in this time."""
    until = Deadline(seconds)
    with contextlib.suppress(TimeoutError):  # the other side counts what has arrived
        while until.left:
            until.arm(link)
            link.send(_CHUNK)
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_WR)


def _drain(link: socket.socket, seconds: float) -> float:
    """Gbit/s of what arrives until the sender's end, from its first byte on."""
    buffer, got = bytearray(len(_CHUNK)), 0
    link.settimeout(2 * HANDSHAKE)
    first = link.recv_into(buffer)
    begun, until = time.perf_counter(), Deadline(seconds + _MARGIN)
    last = begun
    with contextlib.suppress(TimeoutError):
        while first:
            until.arm(link)
            count = link.recv_into(buffer)
            if not count:
                break
            got, last = got + count, time.perf_counter()
    return got * 8 / (last - begun) / 1e9 if last > begun else 0.0


class Server:
    """Serves the others of this job; `strangers` are those that could not prove themselves."""

    def __init__(self, token: bytes) -> None:
        self._token, self._socket = token, listen(0)
        self.port: int = self._socket.getsockname()[1]
        self.strangers: list[str] = []
        serve(self._socket, _MOST_AT_ONCE, self._serve)

    def _serve(self, link: socket.socket, address: str) -> None:
        try:
            with link:
                admit(link, self._token)
                self._do(link, receive(link, HANDSHAKE))
        except Stranger:
            if address not in self.strangers and len(self.strangers) < MOST_STRANGERS:
                self.strangers.append(address)
        except (OSError, KeyError, ValueError, TypeError):
            pass  # who measured sees it, and says so

    def _do(self, link: socket.socket, order: dict[str, object]) -> None:
        if order["do"] == "echo":
            until = Deadline(_TRIPS_SECONDS + HANDSHAKE)
            while True:
                link.sendall(read(link, _TRIP, until))
        seconds = min(60.0, float(str(order["seconds"])))
        if order["do"] == "source":
            _pour(link, seconds)
        else:
            send(link, {"gbps": _drain(link, seconds)}, HANDSHAKE)
        until = Deadline(_MARGIN)  # to close with data unread would take from the other side what was just sent
        while True:
            until.arm(link)
            if not link.recv(len(_CHUNK)):
                return

    def close(self) -> None:
        self._socket.close()
