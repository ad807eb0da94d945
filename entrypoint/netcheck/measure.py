"""One pair of nodes measures: small round trips, then one TCP stream each way.

The first of the two connects and measures, the other serves.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from statistics import median

from entrypoint.netcheck.link import Deadline, Listener, PeerLink, RejectedByPeer, connect, listen, read
from entrypoint.netcheck.messages import (
    HANDSHAKE,
    MARGIN,
    STRANGERS,
    TRIPS_SECONDS,
    Drain,
    Echo,
    Figures,
    Pour,
    Received,
)
from entrypoint.wire import Invalid

_TRIP = 64  # bytes of a round trip, as many as PeerLink.answer gives
_TRIPS, _LEAST_TRIPS = 200, 5
_WARM = 3  # round trips that do not count: the first ones wait for routes and processors
_CHUNK = bytes(256 << 10)
_AGAIN = 0.1  # seconds until a node is called again that ended the connection
_never = threading.Event()


def measure(host: str, port: int, token: bytes, seconds: float, strangers: Sequence[str] = ()) -> Figures:
    """The pair's figures; `strangers` go with them.

    Raises OSError or Unauthenticated, with words for people, where it fails; Invalid where the other node
    answers nonsense.
    """
    with _reach(host, port, token) as link:
        trips = sorted(_trips(link))
    with _reach(host, port, token) as link:
        link.send(Drain(seconds), HANDSHAKE)
        _pour(link.socket, seconds)
        there = link.receive(seconds + 2 * MARGIN, Received).gbps
    with _reach(host, port, token) as link:
        link.send(Pour(seconds), HANDSHAKE)
        back = _drain(link.socket, seconds)
    return Figures(median(trips) * 1e3, trips[-1] * 1e3, there, back, tuple(strangers))


def _reach(host: str, port: int, token: bytes) -> PeerLink:
    """As `connect`, and again while the other side ends the connection, as it may where many call it."""
    until = Deadline(HANDSHAKE)
    while True:
        try:
            return connect(host, port, token)
        except (RejectedByPeer, ConnectionError) as error:
            if isinstance(error, ConnectionRefusedError) or not until.left:
                raise
            _never.wait(_AGAIN)


def _trips(link: PeerLink) -> list[float]:
    """Seconds of each small round trip."""
    link.send(Echo(), HANDSHAKE)
    until, enough = Deadline(TRIPS_SECONDS + HANDSHAKE), Deadline(TRIPS_SECONDS)
    took: list[float] = []
    while len(took) < _WARM + _TRIPS and (enough.left or len(took) < _WARM + _LEAST_TRIPS):
        trip = os.urandom(_TRIP)
        begun = time.perf_counter()
        link.socket.sendall(trip)
        answer = read(link.socket, _TRIP, until)
        took.append(time.perf_counter() - begun)
        if answer != link.expected(trip):
            raise Invalid("a round trip that was changed on its way")
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
    begun, until = time.perf_counter(), Deadline(seconds + MARGIN)
    last = begun
    with contextlib.suppress(TimeoutError):
        while first:
            until.arm(link)
            count = link.recv_into(buffer)
            if not count:
                break
            got, last = got + count, time.perf_counter()
    return got * 8 / (last - begun) / 1e9 if last > begun else 0.0


class PairServer:
    """Serves the others of this job; `strangers` are those that could not prove themselves."""

    def __init__(self, token: bytes) -> None:
        self._socket = listen()
        self.port: int = self._socket.getsockname()[1]
        self.strangers: list[str] = []
        self._listener = Listener(self._socket, token, self._serve, self._note)

    def _note(self, address: str) -> None:
        if address not in self.strangers and len(self.strangers) < STRANGERS:
            self.strangers.append(address)

    def _serve(self, link: PeerLink) -> None:
        with link, contextlib.suppress(OSError, Invalid):  # who measured sees it, and says so
            self._do(link, link.receive(HANDSHAKE, Echo, Drain, Pour))

    def _do(self, link: PeerLink, order: Echo | Drain | Pour) -> None:
        if isinstance(order, Echo):
            until = Deadline(TRIPS_SECONDS + HANDSHAKE)
            while True:
                link.socket.sendall(link.answer(read(link.socket, _TRIP, until)))
        if isinstance(order, Pour):
            _pour(link.socket, order.seconds)
        else:
            link.send(Received(_drain(link.socket, order.seconds)), HANDSHAKE)
        until = Deadline(MARGIN)  # to close with data unread would take from the other side what was just sent
        while True:
            until.arm(link.socket)
            if not link.socket.recv(len(_CHUNK)):
                return

    def close(self) -> None:
        self._listener.close()
