"""Connections of the network check, over real sockets: who gets in, what travels, and that every
wait ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from entrypoint.netcheck import link as netlink
from entrypoint.netcheck import measure
from entrypoint.netcheck.link import (
    DRAIN,
    ECHO,
    POUR,
    Deadline,
    Listener,
    PeerLink,
    Unauthenticated,
    admit,
    connect,
)

pytestmark = pytest.mark.see
TOKEN, OTHER = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4


def reach(port: int, order: bytes = ECHO, seconds: float = 0.0, within: float = 5.0) -> PeerLink:
    return connect("127.0.0.1", port, TOKEN, order, seconds, Deadline(within))


@pytest.fixture
def server() -> Iterator[Listener]:
    made = Listener(TOKEN, measure.serve)
    yield made
    made.close()


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """A server of a test's own, which does this with its first connection; its port."""
    sockets: list[socket.socket] = []

    def make(does: Callable[[socket.socket], None]) -> int:
        listener = netlink.listen()
        sockets.append(listener)

        def serve() -> None:
            link, _ = listener.accept()
            sockets.append(link)
            does(link)

        threading.Thread(target=serve, daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield make
    for each in sockets:
        each.close()


@pytest.mark.control("nobody without the job's token takes part in its network check")
def test_two_nodes_of_a_job_measure(server: Listener) -> None:
    figures = measure.measure("127.0.0.1", server.port, TOKEN, 0.1)
    assert 0 < figures.latency_ms <= figures.worst_ms < 1000
    assert figures.there_gbps > 0.01
    assert figures.back_gbps > 0.01
    assert server.rejected == []


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_a_node_of_another_job_is_turned_away_and_named(server: Listener) -> None:
    with pytest.raises(Unauthenticated, match="it turned this node away: another secret"):
        measure.measure("127.0.0.1", server.port, OTHER, 0.1)
    assert [each.rpartition(":")[2] for each in server.rejected] == ["127.0.0.1"]


def test_a_last_attempt_that_the_time_cuts_short_hides_no_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first attempt is turned away, the second one gets no answer before the end."""
    errors = iter((netlink.RejectedByPeer("turned away"), TimeoutError("no answer")))

    def fail(*_: object) -> None:
        raise next(errors)

    monkeypatch.setattr(measure, "connect", fail)
    with pytest.raises(Unauthenticated, match="turned away"):
        measure.measure("127.0.0.1", 9, OTHER, 0.1)


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_who_answers_without_the_token_is_no_peer(peer: Callable[..., int]) -> None:
    """He cannot use what a node says to him, either: it answers his challenge as a client, never as
    a server."""

    def imitate(link: socket.socket) -> None:
        link.sendall(netlink._MAGIC + bytes(32))
        said = netlink.read(link, 73, Deadline(5))
        link.sendall(said[41:])  # the client's own proof, sent back

    with pytest.raises(Unauthenticated, match="it does not have this job's token"):
        reach(peer(imitate))


def test_something_else_on_the_port_is_said(peer: Callable[..., int]) -> None:
    with pytest.raises(Unauthenticated, match="something else answers there"):
        reach(peer(lambda link: link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(64))))


def between(
    peer: Callable[..., int], server: Listener, change: Callable[[int, bytes], bytes]
) -> tuple[int, list[bytes]]:
    """A port whose connections one without the token passes on to the server; what it saw of the
    handshake."""
    seen: list[bytes] = []

    def pass_on(link: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", server.port)) as there,
        ):
            for number, (source, sink, size) in enumerate(
                ((there, link, 54), (link, there, 73), (there, link, 32))
            ):
                seen.append(netlink.read(source, size, Deadline(5)))
                sink.sendall(change(number, seen[-1]))
        link.close()

    return peer(pass_on), seen


def test_a_peer_that_has_answered_may_be_slow(
    server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link is full of the stream before, or it is busy: slow is not gone."""
    monkeypatch.setattr(measure, "HANDSHAKE", 0.5)

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def relay(listener: socket.socket) -> None:
        for late in (0, 1, 1):  # seconds
            link, _ = listener.accept()
            there = ends.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            ends.enter_context(link)
            time.sleep(late)
            for source, sink in ((link, there), (there, link)):
                threading.Thread(target=copy, args=(source, sink), daemon=True).start()

    with contextlib.ExitStack() as ends:
        listener = ends.enter_context(netlink.listen())
        threading.Thread(target=relay, args=(listener,), daemon=True).start()
        figures = measure.measure("127.0.0.1", listener.getsockname()[1], TOKEN, 0.1)
    assert figures.latency_ms < 1000
    assert figures.back_gbps > 0


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_the_token_never_travels(peer: Callable[..., int], server: Listener) -> None:
    port, seen = between(peer, server, lambda number, data: data)
    with reach(port):
        pass
    assert [len(each) for each in seen] == [54, 73, 32]
    whole = b"".join(seen)
    assert TOKEN not in whole
    assert not any(TOKEN[at : at + 8] in whole for at in range(len(TOKEN) - 8))


@pytest.mark.promise(
    "a relay changes, repeats or invents nothing of a network check",
    control="the handshake above, which passes",
)
@pytest.mark.parametrize(("part", "at"), [(0, 30), (1, 0), (1, 32), (1, 40), (1, 50), (2, 5)])
def test_every_byte_of_a_handshake_and_its_order_is_authenticated(
    part: int, at: int, peer: Callable[..., int], server: Listener
) -> None:
    def change(number: int, data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if number == part else data

    port, _ = between(peer, server, change)
    with pytest.raises(Unauthenticated):
        reach(port, DRAIN, 0.5)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 61.0])
@pytest.mark.parametrize("order", [ECHO, DRAIN, POUR])
def test_an_order_that_no_node_gives_is_refused(
    order: bytes, seconds: float, server: Listener
) -> None:
    with pytest.raises(Unauthenticated):
        reach(server.port, order, seconds)
    with pytest.raises(Unauthenticated):
        reach(server.port, b"x", 0.5)


def test_no_two_challenges_are_alike(server: Listener) -> None:
    said = []
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            said.append(netlink.read(link, 54, Deadline(5)))
    assert said[0] != said[1]


@pytest.mark.control("unauthenticated connections keep no node out of a network check")
def test_who_says_nothing_is_not_waited_for(
    peer: Callable[..., int], monkeypatch: pytest.MonkeyPatch, server: Listener
) -> None:
    monkeypatch.setattr(netlink, "PATIENCE", 0.3)
    silent = threading.Event()
    with pytest.raises(TimeoutError, match=r"^connected, but no answer within 0\.3 s$"):
        reach(peer(lambda link: silent.wait(600) and None), within=0.3)
    with socket.create_connection(("127.0.0.1", server.port)) as link, link.makefile("rb") as said:
        assert len(said.read()) == 54  # and then the end
    silent.set()


def test_who_sends_a_byte_at_a_time_has_no_more_time_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(netlink, "PATIENCE", 0.5)
    mine, theirs = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.1):
            try:
                theirs.sendall(b"x")
            except OSError:
                return

    # these sockets have no TCP
    monkeypatch.setattr(mine.__class__, "setsockopt", lambda *given: None)
    threading.Thread(target=drip, daemon=True).start()
    with pytest.raises(Unauthenticated, match=r"^(out of time|timed out)$"):
        admit(mine, TOKEN)
    over.set()
    mine.close()
    theirs.close()


def test_a_peer_that_takes_nothing_ends_by_its_time(peer: Callable[..., int]) -> None:
    """A network that swallows what is sent: the stream ends by its time, and the pair fails in
    words."""
    silent = threading.Event()

    def swallow(link: socket.socket) -> None:
        admit(link, TOKEN)
        silent.wait(600)

    with pytest.raises(TimeoutError, match=r"^only 0 round trips within 9 s$"):
        measure.measure("127.0.0.1", peer(swallow), TOKEN, 0.1)
    silent.set()


def test_two_links_of_the_same_nodes_have_other_keys(server: Listener) -> None:
    with reach(server.port) as one, reach(server.port) as other:
        assert one.expected(bytes(64)) != other.expected(bytes(64))
        assert one.expected(bytes(64)) != one.seal(bytes(64))  # nor have the two directions


@pytest.mark.promise("a relay changes, repeats or invents nothing of a network check")
def test_a_round_trip_that_another_answers_is_none(peer: Callable[..., int]) -> None:
    """A relay that sends a trip back at once would make the network look better than it is."""

    def echo(link: socket.socket) -> None:
        admit(link, TOKEN)
        with contextlib.suppress(OSError):
            while True:
                link.sendall(netlink.read(link, 64, Deadline(5)))

    with pytest.raises(Unauthenticated, match="a round trip that was changed on its way"):
        measure.measure("127.0.0.1", peer(echo), TOKEN, 0.1)


@pytest.mark.promise("unauthenticated connections keep no node out of a network check")
def test_idle_connections_of_one_address_keep_nobody_out(server: Listener) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
    try:
        figures = measure.measure("127.0.0.1", server.port, TOKEN, 0.1)
        assert figures.there_gbps > 0.01
        assert [each.rpartition(":")[2] for each in server.rejected] == ["127.0.0.1"]
        assert len(server._waiting) <= netlink._MOST_OF_ONE
    finally:
        for each in idle:
            each.close()


def test_too_few_file_handles_do_not_end_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on once there are some again."""

    class Short(socket.socket):
        refused = 3

        def accept(self) -> tuple[socket.socket, object]:
            if Short.refused:
                Short.refused -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    def listen() -> socket.socket:
        plain = plain_listen()
        return Short(plain.family, plain.type, plain.proto, plain.detach())

    plain_listen = netlink.listen
    monkeypatch.setattr(netlink, "listen", listen)
    server = Listener(TOKEN, measure.serve)
    assert measure.measure("127.0.0.1", server.port, TOKEN, 0.1).there_gbps > 0.01
    assert Short.refused == 0
    server.close()
