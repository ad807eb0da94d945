"""Connections of the network check: both sides prove that they have the job's token, and every wait ends.

The token is never sent: each side answers the other's random challenge with an HMAC (RFC 2104, SHA-256). The words
before each HMAC tell the two sides apart, so that nobody is answered with his own challenge. Every message after that
carries a MAC; what is sent to be measured does not: who is on the path can delay it, or hold it back and pass it on at
once, whatever it carries.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from entrypoint.netcheck.messages import HANDSHAKE, MOST, pack, unpack
from entrypoint.wire import Invalid

_MAGIC = b"entrypoint netcheck 2\n"
_CHALLENGE = _PROOF = 32  # bytes
_MAC = 32
_MOST_WAITING, _MOST_OF_ONE = 128, 32  # connections that may prove themselves at one time; those of one address
_MOST_SERVED = 256  # that have done so, and are served at one time
_AGAIN = 0.05  # seconds until connections are accepted again, where that failed
_never = threading.Event()


class Unauthenticated(Exception):
    """The other side does not have the job's token."""


class RejectedByPeer(Unauthenticated):
    """The other side ended the connection: this side could not prove itself, or too many wait to do so."""


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


class PeerLink:
    """A connection both of whose sides have proved themselves: each message carries a MAC.

    The keys come from the token and both challenges, one for each direction, and each message has its number: nobody
    without the token can change, repeat, reorder or send back a message.
    """

    def __init__(self, connection: socket.socket, sending: bytes, receiving: bytes) -> None:
        """`sending` and `receiving` are the keys of the two directions."""
        self.socket = connection
        self._sending = sending
        self._receiving = receiving
        self._sent = 0
        self._received = 0

    def send(self, message: Any, seconds: float) -> None:
        """Send a message, as JSON after its length."""
        text = pack(message)
        text = struct.pack(">I", len(text)) + text
        self.socket.settimeout(seconds)
        self.socket.sendall(text + _mac(self._sending, self._sent, text))
        self._sent += 1

    def receive(self, seconds: float, *kinds: type) -> Any:
        """The next message, which has to be of one of these kinds.

        Raises Invalid where it is not, or not the other side's; ConnectionError where the connection has ended.
        """
        until = Deadline(seconds)
        head = read(self.socket, 4, until)
        (size,) = struct.unpack(">I", head)
        if size > MOST:
            raise Invalid("a message that is too long, or was changed on its way")
        text = read(self.socket, size, until)
        if not hmac.compare_digest(read(self.socket, _MAC, until), _mac(self._receiving, self._received, head + text)):
            raise Invalid("a message that was changed on its way")
        self._received += 1
        return unpack(text, *kinds)

    def answer(self, trip: bytes) -> bytes:
        """What the server of a small round trip sends back: nobody on the way can know it earlier."""
        return hmac.digest(self._sending, trip, "sha512")

    def expected(self, trip: bytes) -> bytes:
        """What its client waits for."""
        return hmac.digest(self._receiving, trip, "sha512")

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> PeerLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mac(key: bytes, number: int, text: bytes) -> bytes:
    return hmac.digest(key, struct.pack(">Q", number) + text, "sha256")


def listen() -> socket.socket:
    """Return a socket that listens on all addresses of this node, on a free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", 0), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=256)


def connect(host: str, port: int, token: bytes) -> PeerLink:
    """A link to a node that has proved itself.

    Raises OSError where it cannot be reached in time, Unauthenticated where it has another token.
    """
    link = socket.create_connection((host, port), timeout=HANDSHAKE)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = Deadline(HANDSHAKE)
        theirs = read(link, len(_MAGIC) + _CHALLENGE, until)
        if not theirs.startswith(_MAGIC):
            raise Unauthenticated("something else answers there")
        theirs, mine = theirs[len(_MAGIC) :], os.urandom(_CHALLENGE)
        link.sendall(mine + _proof(token, b"client", theirs, mine))
        try:
            answer = read(link, _PROOF, until)
        except ConnectionError:
            raise RejectedByPeer("it turned this node away: another secret?") from None
        if not hmac.compare_digest(answer, _proof(token, b"server", theirs, mine)):
            raise Unauthenticated("it does not have this job's token")
    except BaseException:
        link.close()
        raise
    return PeerLink(link, _proof(token, b"to server", theirs, mine), _proof(token, b"to client", theirs, mine))


def admit(link: socket.socket, token: bytes, may_stay: Callable[[], bool] = lambda: True) -> PeerLink:
    """The link to who connected here, once he has proved himself.

    Raises Unauthenticated where he cannot, or takes too long, or then may not stay.
    """
    until, mine = Deadline(HANDSHAKE), os.urandom(_CHALLENGE)
    try:
        until.arm(link)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(_MAGIC + mine)
        answer = read(link, _CHALLENGE + _PROOF, until)
        theirs, proof = answer[:_CHALLENGE], answer[_CHALLENGE:]
        if not hmac.compare_digest(proof, _proof(token, b"client", mine, theirs)):
            raise Unauthenticated("no token")
        if not may_stay():
            raise Unauthenticated("too many others")
        link.sendall(_proof(token, b"server", mine, theirs))
    except OSError as error:
        raise Unauthenticated(str(error)) from None
    return PeerLink(link, _proof(token, b"to client", mine, theirs), _proof(token, b"to server", mine, theirs))


def _proof(token: bytes, side: bytes, server: bytes, client: bytes) -> bytes:
    return hmac.digest(token, side + server + client, "sha256")


class Listener:
    """Has everybody who connects prove himself, and serves those who can, each in a thread.

    Connections that prove nothing cannot keep others out: where too many wait, the oldest one ends, first of the same
    address.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        served: Callable[[PeerLink], None],
        stranger: Callable[[str], None],
    ) -> None:
        """`served` has the link, and is to close it; `stranger` gets the address of who could not prove himself."""
        self._socket = listener
        self._token = token
        self._served = served
        self._stranger = stranger
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, str] = {}  # who has not proved himself yet, by arrival -> his address
        self._room = threading.BoundedSemaphore(_MOST_SERVED)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, address = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return  # closed
                self._end_oldest(list(self._waiting))  # too few file handles, as a rule
                _never.wait(_AGAIN)
                continue
            with self._lock:
                same = [each for each, theirs in self._waiting.items() if theirs == address[0]]
                self._waiting[link] = address[0]
                every = list(self._waiting)
            self._end_oldest(same if len(same) >= _MOST_OF_ONE else every if len(every) > _MOST_WAITING else [])
            try:
                threading.Thread(target=self._one, args=(link, address[0]), daemon=True).start()
            except RuntimeError:  # too many threads
                self._leaves(link)
                link.close()

    def _end_oldest(self, links: list[socket.socket]) -> None:
        for link in links[:1]:
            if self._leaves(link):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)  # its thread wakes, and closes it

    def _leaves(self, link: socket.socket) -> bool:
        """Take it from those that wait; whether it was still one of them."""
        with self._lock:
            return self._waiting.pop(link, None) is not None

    def _one(self, connection: socket.socket, address: str) -> None:
        try:
            link = admit(connection, self._token, lambda: self._leaves(connection))
        except Unauthenticated:
            self._leaves(connection)
            connection.close()
            self._stranger(address)
            return
        if not self._room.acquire(blocking=False):
            link.close()
            return
        try:
            self._served(link)
        finally:
            self._room.release()

    def close(self) -> None:
        self._socket.close()
