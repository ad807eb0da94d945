"""Connections of the network check, over real sockets: who gets in, what travels, and that every wait ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from entrypoint.netcheck import link as netlink
from entrypoint.netcheck import measure
from entrypoint.netcheck.link import Deadline, PeerLink, Unauthenticated, admit, connect
from entrypoint.netcheck.messages import Drain, Echo, MeasurePair, Pour, Received, pair_limit
from entrypoint.wire import Invalid

pytestmark = pytest.mark.see
TOKEN, OTHER = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4


@pytest.fixture
def server() -> Iterator[measure.PairServer]:
    made = measure.PairServer(TOKEN)
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
def test_two_nodes_of_a_job_measure(server: measure.PairServer) -> None:
    figures = measure.measure("127.0.0.1", server.port, TOKEN, 0.1)
    assert 0 < figures.latency_ms <= figures.worst_ms < 1000
    assert figures.there_gbps > 0.01
    assert figures.back_gbps > 0.01
    assert server.strangers == []


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_a_node_of_another_job_is_turned_away_and_named(server: measure.PairServer) -> None:
    with pytest.raises(Unauthenticated, match="it turned this node away: another secret"):
        measure.measure("127.0.0.1", server.port, OTHER, 0.1)
    assert [each.rpartition(":")[2] for each in server.strangers] == ["127.0.0.1"]


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_who_answers_without_the_token_is_no_peer(peer: Callable[..., int]) -> None:
    """He cannot use what a node says to him, either: it answers his challenge as a client, never as a server."""

    def imitate(link: socket.socket) -> None:
        link.sendall(netlink._MAGIC + bytes(32))
        said = netlink.read(link, 64, Deadline(5))
        link.sendall(said[32:])  # the client's own proof, sent back

    with pytest.raises(Unauthenticated, match="it does not have this job's token"):
        connect("127.0.0.1", peer(imitate), TOKEN)


def test_something_else_on_the_port_is_said(peer: Callable[..., int]) -> None:
    with pytest.raises(Unauthenticated, match="something else answers there"):
        connect("127.0.0.1", peer(lambda link: link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(64))), TOKEN)


@pytest.mark.promise("nobody without the job's token takes part in its network check")
def test_the_token_never_travels(peer: Callable[..., int], server: measure.PairServer) -> None:
    """All bytes of both sides, seen by one who passes them on."""
    seen: list[bytes] = []

    def pass_on(link: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as there:
            for source, sink, size in ((there, link, 54), (link, there, 64), (there, link, 32)):
                seen.append(netlink.read(source, size, Deadline(5)))
                sink.sendall(seen[-1])

    connect("127.0.0.1", peer(pass_on), TOKEN).close()
    assert [len(each) for each in seen] == [54, 64, 32]
    whole = b"".join(seen)
    assert TOKEN not in whole
    assert not any(TOKEN[at : at + 8] in whole for at in range(len(TOKEN) - 8))


def test_no_two_challenges_are_alike(server: measure.PairServer) -> None:
    said = []
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            said.append(netlink.read(link, 54, Deadline(5)))
    assert said[0] != said[1]


@pytest.mark.control("unauthenticated connections keep no node out of a network check")
def test_who_says_nothing_is_not_waited_for(
    peer: Callable[..., int], monkeypatch: pytest.MonkeyPatch, server: measure.PairServer
) -> None:
    monkeypatch.setattr(netlink, "HANDSHAKE", 0.3)
    silent, begun = threading.Event(), time.monotonic()
    with pytest.raises(TimeoutError):
        connect("127.0.0.1", peer(lambda link: silent.wait(10) and None), TOKEN)
    with socket.create_connection(("127.0.0.1", server.port)) as link, link.makefile("rb") as said:
        assert len(said.read()) == 54  # and then the end
    assert time.monotonic() - begun < 5
    silent.set()


def test_who_sends_a_byte_at_a_time_has_no_more_time_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "HANDSHAKE", 0.5)
    mine, theirs = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.1):
            try:
                theirs.sendall(b"x")
            except OSError:
                return

    monkeypatch.setattr(mine.__class__, "setsockopt", lambda *given: None)  # these sockets have no TCP
    threading.Thread(target=drip, daemon=True).start()
    begun = time.monotonic()
    with pytest.raises(Unauthenticated):
        admit(mine, TOKEN)
    over.set()
    assert time.monotonic() - begun < 3
    mine.close()
    theirs.close()


def test_a_peer_that_takes_nothing_ends_by_its_time(peer: Callable[..., int]) -> None:
    """A network that swallows what is sent: the stream ends by its time, and the pair fails in words."""
    silent = threading.Event()

    def swallow(link: socket.socket) -> None:
        admit(link, TOKEN).receive(5, Echo, Drain, Pour)
        silent.wait(10)

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        measure.measure("127.0.0.1", peer(swallow), TOKEN, 0.1)
    assert time.monotonic() - begun < pair_limit(0.1)
    silent.set()


@pytest.fixture
def pair(server: measure.PairServer) -> Iterator[tuple[PeerLink, PeerLink]]:
    """The two ends of a link, both in this test."""
    one, other = socket.socketpair()
    yield PeerLink(one, b"a" * 32, b"b" * 32), PeerLink(other, b"b" * 32, b"a" * 32)
    one.close()
    other.close()


@pytest.mark.control("a relay changes, repeats or invents nothing of a network check")
def test_a_message_passes(pair: tuple[PeerLink, PeerLink]) -> None:
    for number in range(3):
        order = MeasurePair(f"worker-{number}", "é", 7, 0.5)
        pair[0].send(order, 5)
        pair[1].send(Received(float(number)), 5)
        assert pair[1].receive(5, MeasurePair) == order
        assert pair[0].receive(5, MeasurePair, Received) == Received(float(number))


@pytest.mark.promise("a relay changes, repeats or invents nothing of a network check")
def test_every_byte_of_a_message_is_authenticated(pair: tuple[PeerLink, PeerLink]) -> None:
    """The same message passes where nobody has touched it: the control."""
    here, there = pair
    here.send(Received(9.5), 5)
    whole = there.socket.recv(4096)
    for at in range(4, len(whole)):
        here.socket.sendall(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Invalid, match="a message that was changed on its way"):
            there.receive(5, Received)
    here.socket.sendall(whole)
    assert there.receive(5, Received) == Received(9.5)


@pytest.mark.promise("a relay changes, repeats or invents nothing of a network check")
def test_a_message_that_is_taken_from_elsewhere_is_none(pair: tuple[PeerLink, PeerLink]) -> None:
    here, there = pair
    here.send(Received(1), 5)
    first = there.socket.recv(4096)
    here.send(Received(2), 5)
    second = there.socket.recv(4096)

    def refused(by: PeerLink, sent: bytes) -> None:
        other = there if by is here else here
        other.socket.sendall(sent)
        with pytest.raises(Invalid, match="changed on its way"):
            by.receive(5, Received)

    refused(here, first)  # back to who sent it
    refused(there, second)  # before the other one
    here.socket.sendall(first)
    assert there.receive(5, Received) == Received(1)
    refused(there, first)  # again
    here.socket.sendall(second)
    assert there.receive(5, Received) == Received(2)


def test_two_links_of_the_same_nodes_have_other_keys(server: measure.PairServer) -> None:
    with connect("127.0.0.1", server.port, TOKEN) as one, connect("127.0.0.1", server.port, TOKEN) as other:
        assert one.expected(bytes(64)) != other.expected(bytes(64))
        assert one.expected(bytes(64)) != one.answer(bytes(64))  # nor have the two directions


DEEP = "[" * 30000
NONSENSE = {
    "a number beyond all": '{"kind": "Received", "gbps": 1e400}',
    "a number of many digits": f'{{"kind": "Received", "gbps": {"9" * 5000}}}',
    "a number of less digits": f'{{"kind": "Received", "gbps": {"9" * 400}}}',
    "no number": '{"kind": "Received", "gbps": NaN}',
    "below all": '{"kind": "Received", "gbps": -1}',
    "a truth": '{"kind": "Received", "gbps": true}',
    "deep": f'{{"kind": "Received", "gbps": {DEEP}{"]" * 30000}}}',
    "deep and broken": DEEP,
    "another kind": '{"kind": "Echo"}',
    "a kind that is none": '{"kind": [1]}',
    "nothing": "",
    "a list": "[]",
    "no text": "\udcff",
}


@pytest.mark.promise("a node that sends nonsense ends no other node's part of the network check")
@pytest.mark.parametrize("text", NONSENSE.values(), ids=list(NONSENSE))
def test_what_no_node_says_is_invalid(
    text: str, pair: tuple[PeerLink, PeerLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netlink, "pack", lambda message: text.encode("utf-8", "surrogateescape"))
    pair[0].send(None, 5)
    with pytest.raises(Invalid):
        pair[1].receive(5, Received)


def test_a_message_of_any_length_is_not_waited_for(pair: tuple[PeerLink, PeerLink]) -> None:
    pair[0].socket.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(Invalid, match="too long"):
        pair[1].receive(5, Received)


@pytest.mark.promise("a relay changes, repeats or invents nothing of a network check")
def test_a_round_trip_that_another_answers_is_none(peer: Callable[..., int]) -> None:
    """A relay that sends a trip back at once would make the network look better than it is."""

    def echo(link: socket.socket) -> None:
        there = admit(link, TOKEN)
        there.receive(5, Echo)
        with contextlib.suppress(OSError):
            while True:
                link.sendall(netlink.read(link, 64, Deadline(5)))

    with pytest.raises(Invalid, match="a round trip that was changed on its way"):
        measure.measure("127.0.0.1", peer(echo), TOKEN, 0.1)


@pytest.mark.promise("unauthenticated connections keep no node out of a network check")
def test_idle_connections_of_one_address_keep_nobody_out(server: measure.PairServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
    try:
        figures = measure.measure("127.0.0.1", server.port, TOKEN, 0.1)
        assert figures.there_gbps > 0.01
        assert [each.rpartition(":")[2] for each in server.strangers] == ["127.0.0.1"]
        assert len(server._listener._waiting) <= netlink._MOST_OF_ONE
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
        plain = netlink.listen()
        return Short(plain.family, plain.type, plain.proto, plain.detach())

    monkeypatch.setattr(measure, "listen", listen)
    server = measure.PairServer(TOKEN)
    assert measure.measure("127.0.0.1", server.port, TOKEN, 0.1).there_gbps > 0.01
    assert Short.refused == 0
    server.close()
