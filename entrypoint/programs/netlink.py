"""Connections of the network check: both sides prove that they have the job's token, and every wait ends.

The token is never sent: each side answers the other's random challenge with an HMAC (RFC 2104, SHA-256). The words
before each HMAC tell the two sides apart, so that nobody is answered with his own challenge.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

_MAGIC = b"entrypoint netcheck 1\n"
_CHALLENGE = _PROOF = 32  # bytes
_MOST = 1 << 20  # bytes of a message
HANDSHAKE = 5.0  # seconds to connect, and again to prove oneself


class Stranger(Exception):
    """The other side does not have the job's token."""


class Deadline:
    """A moment at which a wait ends."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it is over."""
        return max(0.0, self._end - time.monotonic())

    def arm(self, link: socket.socket) -> None:
        """Have the link's next wait end by then. Raises TimeoutError where it is over."""
        if not (left := self.left):
            raise TimeoutError("out of time")
        link.settimeout(left)


def read(link: socket.socket, size: int, until: Deadline) -> bytes:
    """So many bytes. Raises ConnectionError at the end of the connection, TimeoutError after the deadline."""
    data = bytearray()
    while len(data) < size:
        until.arm(link)
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection ended")
        data += part
    return bytes(data)


def send(link: socket.socket, message: dict[str, Any], seconds: float) -> None:
    """One message, as JSON after its length."""
    text = json.dumps(message).encode()
    link.settimeout(seconds)
    link.sendall(struct.pack(">I", len(text)) + text)


def receive(link: socket.socket, seconds: float) -> dict[str, Any]:
    """The next message. Raises ConnectionError where it is none."""
    until = Deadline(seconds)
    (size,) = struct.unpack(">I", read(link, 4, until))
    if size > _MOST:
        raise ConnectionError(f"a message of {size} bytes")
    try:
        message = json.loads(read(link, size, until))
    except ValueError:
        raise ConnectionError("a message that is no JSON") from None
    if not isinstance(message, dict):
        raise ConnectionError("a message that is no object")
    return message


def listen(port: int) -> socket.socket:
    """A socket that listens on all addresses of this node; port 0 takes a free one."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=256)


def connect(host: str, port: int, token: bytes) -> socket.socket:
    """A link to a node that has proved itself.

    Raises OSError where it cannot be reached in time, Stranger where it has another token.
    """
    link = socket.create_connection((host, port), timeout=HANDSHAKE)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = Deadline(HANDSHAKE)
        theirs = read(link, len(_MAGIC) + _CHALLENGE, until)
        if not theirs.startswith(_MAGIC):
            raise Stranger("something else answers there")
        theirs, mine = theirs[len(_MAGIC) :], os.urandom(_CHALLENGE)
        link.sendall(mine + _proof(token, b"client", theirs, mine))
        try:
            answer = read(link, _PROOF, until)
        except ConnectionError:
            raise Stranger("it turned this node away: another secret?") from None
        if not hmac.compare_digest(answer, _proof(token, b"server", theirs, mine)):
            raise Stranger("it does not have this job's token")
    except BaseException:
        link.close()
        raise
    return link


def admit(link: socket.socket, token: bytes) -> None:
    """Have who connected here prove himself. Raises Stranger where he cannot, or takes too long."""
    until, mine = Deadline(HANDSHAKE), os.urandom(_CHALLENGE)
    try:
        until.arm(link)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(_MAGIC + mine)
        answer = read(link, _CHALLENGE + _PROOF, until)
        theirs, proof = answer[:_CHALLENGE], answer[_CHALLENGE:]
        if not hmac.compare_digest(proof, _proof(token, b"client", mine, theirs)):
            raise Stranger("no token")
        link.sendall(_proof(token, b"server", mine, theirs))
    except OSError as error:
        raise Stranger(str(error)) from None


def _proof(token: bytes, side: bytes, server: bytes, client: bytes) -> bytes:
    return hmac.digest(token, side + server + client, "sha256")


def serve(listener: socket.socket, most: int, each: Callable[[socket.socket, str], None]) -> None:
    """Give `each` every connection and its address, in threads, until the listener is closed; above `most`, none."""
    room = threading.BoundedSemaphore(most)

    def one(link: socket.socket, address: str) -> None:
        try:
            each(link, address)
        finally:
            room.release()

    def accept() -> None:
        while True:
            try:
                link, address = listener.accept()
            except OSError:
                return  # closed
            if room.acquire(blocking=False):
                threading.Thread(target=one, args=(link, address[0]), daemon=True).start()
            else:
                link.close()

    threading.Thread(target=accept, daemon=True).start()
