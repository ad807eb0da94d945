"""Connections between two nodes of a network check: both prove that they have the job's token, and
every wait ends.

The token is never sent: each side answers the other's random challenge with an HMAC (RFC 2104,
SHA-256), which covers the order, too: what the connection is for. The words before each HMAC tell
the two sides apart, so that nobody is answered with his own challenge. What is sent to be measured
carries no MAC: who is on the path can delay it, or hold it back and pass it on at once, whatever it
carries.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from entrypoint.netcheck.messages import MOST_REJECTED, PATIENCE
from entrypoint.values import dataclass

_MAGIC = b"entrypoint netcheck 3\n"
_CHALLENGE = _PROOF = 32  # bytes
SEALED = 64  # bytes of what PeerLink.seal gives
_ORDER = struct.Struct(">cd")
ECHO = b"e"  # send back what comes
DRAIN = b"d"  # take a stream and say how fast it came
POUR = b"p"  # send a stream
_LONGEST = 60.0  # seconds of a stream
_MOST_WAITING = 128  # connections that may prove themselves at the same time
_MOST_OF_ONE = 32  # those of one address
_MOST_SERVED = 256  # that have done so, and are served at one time
_AGAIN = 0.05  # seconds until connections are accepted again, where that failed
_never = threading.Event()


class Unauthenticated(Exception):
    """The other side does not have the job's token."""


class RejectedByPeer(Unauthenticated):
    """The other side ended the connection: this side could not prove itself, or too many wait to do
    so."""


class Deadline:
    """A moment at which a wait ends."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it is over."""
        return max(0.0, self._end - time.monotonic())

    def rest(self) -> float:
        """Return the seconds until then. Raises TimeoutError where it is over."""
        if not (left := self.left):
            raise TimeoutError("out of time")
        return left

    def arm(self, link: socket.socket) -> None:
        """Have the link's next wait end by then. Raises TimeoutError where it is over."""
        link.settimeout(self.rest())


@contextlib.contextmanager
def explained(missing: str, until: Deadline) -> Iterator[None]:
    """Have a TimeoutError say what did not come, and within how many seconds."""
    try:
        yield
    except TimeoutError:
        raise TimeoutError(f"{missing} within {until.seconds:g} s") from None


def read(link: socket.socket, size: int, until: Deadline) -> bytes:
    """So many bytes. Raises ConnectionError at the end of the connection, TimeoutError after the
    deadline."""
    data = bytearray()
    while len(data) < size:
        until.arm(link)
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection ended")
        data += part
    return bytes(data)


@dataclass(frozen=True)
class PeerLink:
    """A connection both of whose sides have proved themselves, for one order.

    The keys come from the token, both challenges and the order, one for each direction.
    """

    socket: socket.socket
    order: bytes
    seconds: float
    _sending: bytes
    _receiving: bytes

    def seal(self, data: bytes) -> bytes:
        """Return what only this side can say to this data."""
        return hmac.digest(self._sending, data, "sha512")

    def expected(self, data: bytes) -> bytes:
        """Return what only the other side can say to this data."""
        return hmac.digest(self._receiving, data, "sha512")

    def is_sealed(self, data: bytes, seal: bytes) -> bool:
        """Return whether the other side has said this to the data."""
        return hmac.compare_digest(seal, self.expected(data))

    def __enter__(self) -> PeerLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def listen() -> socket.socket:
    """Return a socket that listens on all addresses of this node, on a free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", 0), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True
        )
    return socket.create_server(("", 0), backlog=256)


def connect(
    host: str, port: int, token: bytes, order: bytes, seconds: float, until: Deadline
) -> PeerLink:
    """A link to a node that has proved itself.

    Raises OSError where it cannot be reached in time, Unauthenticated where it has another token.
    """
    with explained("no connection", until):
        link = socket.create_connection((host, port), timeout=until.rest())
    try:
        with explained("connected, but no answer", until):
            return _introduced(link, token, order, seconds, until)
    except BaseException:
        link.close()
        raise


def _introduced(
    link: socket.socket, token: bytes, order: bytes, seconds: float, until: Deadline
) -> PeerLink:
    """The link, once both sides have proved themselves."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    greeting = read(link, len(_MAGIC) + _CHALLENGE, until)
    if not greeting.startswith(_MAGIC):
        raise Unauthenticated("something else answers there")
    request = os.urandom(_CHALLENGE) + _ORDER.pack(order, seconds)
    both = greeting[len(_MAGIC) :] + request
    link.sendall(request + _proof(token, b"client", both))
    try:
        answer = read(link, _PROOF, until)
    except ConnectionError:
        raise RejectedByPeer("it turned this node away: another secret?") from None
    if not hmac.compare_digest(answer, _proof(token, b"server", both)):
        raise Unauthenticated("it does not have this job's token")
    return PeerLink(
        link, order, seconds, _proof(token, b"to server", both), _proof(token, b"to client", both)
    )


def admit(
    link: socket.socket, token: bytes, may_stay: Callable[[], bool] = lambda: True
) -> PeerLink:
    """The link to who connected here, once he has proved himself.

    Raises Unauthenticated where he cannot, or takes too long, or orders what no node does, or then
    may not stay.
    """
    until, challenge = Deadline(PATIENCE), os.urandom(_CHALLENGE)
    try:
        until.arm(link)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(_MAGIC + challenge)
        request = read(link, _CHALLENGE + _ORDER.size, until)
        both, (order, seconds) = challenge + request, _ORDER.unpack(request[_CHALLENGE:])
        if not hmac.compare_digest(read(link, _PROOF, until), _proof(token, b"client", both)):
            raise Unauthenticated("no token")
        if order not in (ECHO, DRAIN, POUR) or not 0 <= seconds <= _LONGEST:
            raise Unauthenticated("no order")
        if not may_stay():
            raise Unauthenticated("too many others")
        link.sendall(_proof(token, b"server", both))
    except OSError as error:
        raise Unauthenticated(str(error)) from None
    return PeerLink(
        link, order, seconds, _proof(token, b"to client", both), _proof(token, b"to server", both)
    )


def _proof(token: bytes, side: bytes, both: bytes) -> bytes:
    return hmac.digest(token, side + both, "sha256")


class Listener:
    """Has everybody who connects prove himself, and serves those who can, each in a thread.

    Connections that prove nothing cannot keep others out: where too many wait, the oldest one ends,
    first of the same address. `rejected` are the addresses of those that could not prove
    themselves.
    """

    def __init__(self, token: bytes, serve: Callable[[PeerLink], None]) -> None:
        """`serve` has the link, and is to close it."""
        self._socket = listen()
        self.port: int = self._socket.getsockname()[1]
        self.rejected: list[str] = []
        self._token = token
        self._serve = serve
        self._lock = threading.Lock()
        # who has not proved himself yet, by arrival -> his address
        self._waiting: dict[socket.socket, str] = {}
        self._room = threading.BoundedSemaphore(_MOST_SERVED)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, address = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return  # closed
                self._end_oldest(list(self._waiting))  # usually too few file handles
                _never.wait(_AGAIN)
                continue
            with self._lock:
                same = [other for other, host in self._waiting.items() if host == address[0]]
                self._waiting[link] = address[0]
                waiting = list(self._waiting)
            if len(same) >= _MOST_OF_ONE:
                self._end_oldest(same)
            elif len(waiting) > _MOST_WAITING:
                self._end_oldest(waiting)
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
            if address not in self.rejected and len(self.rejected) < MOST_REJECTED:
                self.rejected.append(address)
            return
        if not self._room.acquire(blocking=False):
            connection.close()
            return
        try:
            self._serve(link)
        finally:
            self._room.release()

    def close(self) -> None:
        self._socket.close()
