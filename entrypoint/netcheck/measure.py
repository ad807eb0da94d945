"""One pair of nodes measures: small round trips, then one TCP stream each way.

The first of the two connects and measures, the other serves.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from statistics import median

from entrypoint.netcheck.link import (
    DRAIN,
    ECHO,
    POUR,
    SEALED,
    Deadline,
    PeerLink,
    RejectedByPeer,
    Unauthenticated,
    connect,
    explained,
    read,
)
from entrypoint.netcheck.messages import HANDSHAKE, MARGIN, PATIENCE, TRIPS_SECONDS, Figures

_TRIPS, _LEAST_TRIPS = 200, 5
_WARM = 3  # round trips that do not count: the first ones wait for routes and processors
_CHUNK = bytes(256 << 10)
_RESULT = struct.Struct(">d")  # Gbit/s of a stream that arrived
_MOST = 1e9
_AGAIN = 0.1  # seconds until a node is called again that ended the connection
_never = threading.Event()


def measure(
    host: str, port: int, token: bytes, seconds: float, rejected: tuple[str, ...] = ()
) -> Figures:
    """Return the pair's figures, with the addresses of `rejected` peers.

    Raises OSError or Unauthenticated, with a reason as text, if it fails.
    """
    with _reach(host, port, token, ECHO, 0.0, HANDSHAKE) as link:
        trips = sorted(_trips(link))
    with _reach(host, port, token, DRAIN, seconds, PATIENCE) as link:
        _pour(link.socket, seconds)
        there = _result(link)
    with _reach(host, port, token, POUR, seconds, PATIENCE) as link:
        back = _drain(link.socket, seconds)
    return Figures(median(trips) * 1e3, trips[-1] * 1e3, there, back, rejected)


def serve(link: PeerLink) -> None:
    """Do what the other node needs to measure. It sees what fails, and says so."""
    with link, contextlib.suppress(OSError):
        if link.order == ECHO:
            until = Deadline(TRIPS_SECONDS + HANDSHAKE)
            while True:
                link.socket.sendall(link.seal(read(link.socket, SEALED, until)))
        if link.order == POUR:
            _pour(link.socket, link.seconds)
        else:
            result = _RESULT.pack(_drain(link.socket, link.seconds))
            link.socket.sendall(result + link.seal(result))
        # to close with data unread would take from the other side what was just sent
        until = Deadline(PATIENCE)
        while True:
            until.arm(link.socket)
            if not link.socket.recv(len(_CHUNK)):
                return


def _reach(
    host: str, port: int, token: bytes, order: bytes, seconds: float, limit: float
) -> PeerLink:
    """As `connect`, and again while the other side ends the connection, as it may where many call
    it.

    Once it has done so, that is the reason given: a last attempt that the time cuts short says
    less.
    """
    until = Deadline(limit)
    ended: Exception | None = None
    while True:
        try:
            return connect(host, port, token, order, seconds, until)
        except TimeoutError as error:
            raise ended or error from None
        except (RejectedByPeer, ConnectionError) as error:
            if isinstance(error, ConnectionRefusedError) or until.left <= _AGAIN:
                raise
            ended = error
            _never.wait(_AGAIN)


def _result(link: PeerLink) -> float:
    until = Deadline(link.seconds + MARGIN + PATIENCE)
    with explained("no figures of what it was sent", until):
        sealed = read(link.socket, _RESULT.size + SEALED, until)
    result, seal = sealed[: _RESULT.size], sealed[_RESULT.size :]
    (gbps,) = _RESULT.unpack(result)
    if not link.is_sealed(result, seal) or not 0 <= gbps <= _MOST:
        raise Unauthenticated("a result that was changed on its way, or is none")
    return float(gbps)


def _trips(link: PeerLink) -> list[float]:
    """Seconds of each small round trip."""
    until, enough = Deadline(TRIPS_SECONDS + HANDSHAKE), Deadline(TRIPS_SECONDS)
    took: list[float] = []
    while len(took) < _WARM + _TRIPS and (enough.left or len(took) < _WARM + _LEAST_TRIPS):
        trip = os.urandom(SEALED)
        begun = time.perf_counter()
        link.socket.sendall(trip)
        with explained(f"only {len(took)} round trips", until):
            answer = read(link.socket, SEALED, until)
        took.append(time.perf_counter() - begun)
        if not link.is_sealed(trip, answer):
            raise Unauthenticated("a round trip that was changed on its way")
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
    first_byte = Deadline(PATIENCE)
    with explained("nothing of its stream", first_byte):
        first_byte.arm(link)
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
