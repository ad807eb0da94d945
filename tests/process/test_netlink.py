"""Connections of the network check, over real sockets: who gets in, what travels, and that every wait ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from entrypoint.programs import netlink, netpair
from entrypoint.programs.netlink import Deadline, Stranger, admit, connect, receive, send

pytestmark = pytest.mark.see
TOKEN, OTHER = b"0123456789abcdef" * 4, b"fedcba9876543210" * 4


@pytest.fixture
def server() -> Iterator[netpair.Server]:
    made = netpair.Server(TOKEN)
    yield made
    made.close()


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """A server of a test's own, which does this with its first connection; its port."""
    sockets: list[socket.socket] = []

    def make(does: Callable[[socket.socket], None]) -> int:
        listener = netlink.listen(0)
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


def test_two_nodes_of_a_job_measure(server: netpair.Server) -> None:
    figures = netpair.measure("127.0.0.1", server.port, TOKEN, 0.1)
    assert 0 < figures["latency_ms"] <= figures["worst_ms"] < 1000
    assert figures["there_gbps"] > 0.01
    assert figures["back_gbps"] > 0.01
    assert server.strangers == []


def test_a_node_of_another_job_is_turned_away_and_named(server: netpair.Server) -> None:
    with pytest.raises(Stranger, match="it turned this node away: another secret"):
        netpair.measure("127.0.0.1", server.port, OTHER, 0.1)
    assert [each.rpartition(":")[2] for each in server.strangers] == ["127.0.0.1"]


def test_who_answers_without_the_token_is_no_peer(peer: Callable[..., int]) -> None:
    """He cannot use what a node says to him, either: it answers his challenge as a client, never as a server."""

    def imitate(link: socket.socket) -> None:
        link.sendall(netlink._MAGIC + bytes(32))
        said = netlink.read(link, 64, Deadline(5))
        link.sendall(said[32:])  # the client's own proof, sent back

    with pytest.raises(Stranger, match="it does not have this job's token"):
        connect("127.0.0.1", peer(imitate), TOKEN)


def test_something_else_on_the_port_is_said(peer: Callable[..., int]) -> None:
    with pytest.raises(Stranger, match="something else answers there"):
        connect("127.0.0.1", peer(lambda link: link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(64))), TOKEN)


def test_the_token_never_travels(peer: Callable[..., int], server: netpair.Server) -> None:
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


def test_no_two_challenges_are_alike(server: netpair.Server) -> None:
    said = []
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            said.append(netlink.read(link, 54, Deadline(5)))
    assert said[0] != said[1]


def test_who_says_nothing_is_not_waited_for(
    peer: Callable[..., int], monkeypatch: pytest.MonkeyPatch, server: netpair.Server
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
    with pytest.raises(Stranger):
        admit(mine, TOKEN)
    over.set()
    assert time.monotonic() - begun < 3
    mine.close()
    theirs.close()


def test_a_peer_that_takes_nothing_ends_by_its_time(peer: Callable[..., int]) -> None:
    """A network that swallows what is sent: the stream ends by its time, and the pair fails in words."""
    silent = threading.Event()

    def swallow(link: socket.socket) -> None:
        admit(link, TOKEN)
        receive(link, 5)
        silent.wait(10)

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        netpair.measure("127.0.0.1", peer(swallow), TOKEN, 0.1)
    assert time.monotonic() - begun < netpair.limit(0.1)
    silent.set()


@pytest.mark.parametrize("said", [b"\xff\xff\xff\xff", b"\0\0\0\x02[]", b"\0\0\0\x03{x}"])
def test_what_no_node_says_is_refused(said: bytes) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(said)
        with pytest.raises(ConnectionError):
            receive(mine, 5)


def test_a_message_passes() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        send(theirs, {"do": "pair", "host": "é"}, 5)
        assert receive(mine, 5) == {"do": "pair", "host": "é"}
