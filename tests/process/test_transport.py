"""paramiko in the event loop's own thread: nothing waits there, whatever the peer does, and nothing
stays."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import socket
import struct
import threading
import time
import weakref
from collections.abc import Awaitable, Callable

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from entrypoint.base.model import Node, NodeReport
from entrypoint.job import events
from entrypoint.session import codec, transport
from entrypoint.session.session import Session
from entrypoint.session.transport import Transport
from tests.waits import PATIENCE

Steps = Callable[[Transport, paramiko.Channel, "Echo"], Awaitable[None]]
LIMIT = PATIENCE


def new_key() -> paramiko.Ed25519Key:
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
    )
    return paramiko.Ed25519Key(file_obj=io.StringIO(pem.decode()))


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


class Echo(paramiko.ServerInterface):
    """An ssh server of one connection that sends back what it gets, and refuses what it is told
    to."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.ours, theirs = tcp_pair()
        self.transport = paramiko.Transport(theirs)
        self.transport.add_server_key(new_key())
        self.transport.start_server(threading.Event(), self)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel = self.transport.accept(LIMIT)
            while channel and (data := channel.recv(65536)):
                channel.sendall(data)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return (
            paramiko.common.AUTH_FAILED
            if self.refuses == "login"
            else paramiko.common.AUTH_SUCCESSFUL
        )

    def check_channel_request(self, kind: str, chanid: int) -> int:
        prohibited = paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        return prohibited if self.refuses == "channel" else paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        return self.refuses != "command"


def talk(steps: Steps, refuses: str = "") -> Transport:
    """Log in to an Echo, open a channel, and take these steps."""
    server = Echo(refuses)

    async def run() -> Transport:
        client = Transport(server.ours)
        try:
            await client.exchange_keys(LIMIT)
            await client.login("user", new_key(), LIMIT)
            await steps(client, await client.open_command("true", LIMIT), server)
        finally:
            client.close()
        return client

    try:
        return asyncio.run(run())
    finally:
        server.transport.close()


async def echoed(client: Transport, channel: paramiko.Channel, data: bytes) -> None:
    """Return when exactly these bytes have come back."""
    heard = b""
    while len(heard) < len(data):
        await client.until(lambda: client.has_data, LIMIT)
        heard += client.take(channel)
    assert heard == data


async def nothing(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
    pass


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The event loop's thread starts no other one; what it started is in the list."""
    real, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if threading.current_thread() is threading.main_thread() and not isinstance(
            thread, paramiko.Transport
        ):
            started.append(type(thread).__name__)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return started


@pytest.mark.promise(
    "a session takes no thread, and a frozen or flooding peer delays no other",
    control="the case without frozen peers",
)
def test_a_session_takes_no_thread(no_threads: list[str]) -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        begun = list(no_threads)
        client.write(channel, b"x" * 100_000)
        await echoed(client, channel, b"x" * 100_000)
        assert not client.is_alive()
        assert no_threads == begun

    talk(steps)
    assert no_threads == ["Thread"], "that of the server, and no timer"


@pytest.mark.parametrize(
    ("refuses", "error"),
    [
        ("login", paramiko.AuthenticationException),
        ("channel", paramiko.ChannelException),
        ("command", paramiko.SSHException),
    ],
)
def test_what_a_peer_refuses_is_paramiko_s_own_error(refuses: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        talk(nothing, refuses)
    talk(nothing)


def test_what_is_sent_while_keys_are_exchanged_anew_arrives_in_order() -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        client.write(channel, b"before ")
        client._send_kex_init()  # type: ignore[attr-defined] # as after 512 MiB
        client.write(channel, b"during ")
        client.write(channel, b"it ")
        assert len(client._held) == 2
        await echoed(client, channel, b"before during it ")
        client.write(channel, b"after")
        await echoed(client, channel, b"after")

    talk(steps)


def test_a_peer_that_never_ends_a_key_exchange_loses_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_HELD", 3)

    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        client.clear_to_send.clear()
        for _ in range(3):
            client.write(channel, b"x")
        assert client.is_active()
        client.write(channel, b"one more")
        await client.until(lambda: False, LIMIT)
        assert not client.is_active()
        assert channel.closed

    talk(steps)


@pytest.mark.control("a session takes no thread, and a frozen or flooding peer delays no other")
def test_silence_ends_a_wait_and_a_busy_loop_does_not() -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        channel.sendall(b"x")
        begun = time.monotonic()
        while time.monotonic() - begun < 0.5:  # the answer arrives, and nobody looks
            pass
        await client.until(lambda: client.has_data, 0.1)
        assert client.take(channel) == b"x"
        with pytest.raises(TimeoutError):
            await client.until(lambda: client.has_data, 0.1)

    talk(steps)


def ssh_message(kind: int, *fields: object) -> paramiko.Message:
    message = paramiko.Message()
    message.add_byte(bytes([kind]))
    message.add(*fields)
    return message


FLOODS = {
    "ignored": ssh_message(paramiko.common.MSG_IGNORE, "x"),
    "debug": ssh_message(paramiko.common.MSG_DEBUG, False, "x", ""),
    "global requests": ssh_message(paramiko.common.MSG_GLOBAL_REQUEST, "x", True),
    "channel requests": ssh_message(paramiko.common.MSG_CHANNEL_REQUEST, 0, "x", False),
    "windows": ssh_message(paramiko.common.MSG_CHANNEL_WINDOW_ADJUST, 0, 1),
    "data": ssh_message(paramiko.common.MSG_CHANNEL_DATA, 0, "x"),
    "no data": ssh_message(paramiko.common.MSG_CHANNEL_DATA, 0, ""),
}


def flood(server: Echo, kind: str, number: int) -> None:
    with contextlib.suppress(OSError, EOFError):
        for _ in range(number):
            server.transport._send_message(FLOODS[kind])  # type: ignore[attr-defined]


@pytest.fixture
def hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session takes a hundred packets: the first key exchange counts for 1000."""
    monkeypatch.setattr(transport, "_BURST", 1100)
    monkeypatch.setattr(transport, "_RATE", 0.0)


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.usefixtures("hundred")
def test_packets_of_any_kind_without_end_lose_their_session(kind: str) -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        flood(server, kind, 50)
        client.write(channel, b"fine")
        while b"fine" not in client.take(channel):
            await client.until(lambda: client.has_data, LIMIT)
        flood(server, kind, 100)
        await client.until(lambda: False, LIMIT)
        assert "more packets than" in str(client.get_exception())

    talk(steps)


@pytest.mark.parametrize(
    ("number", "why"),
    [(10, ""), (200, "its session broke: more packets than any node has a reason to send")],
)
@pytest.mark.usefixtures("hundred")
def test_a_session_says_which_limit_it_broke(number: int, why: str) -> None:
    told: list[object] = []

    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        intake = codec.Intake(codec.BY_WORKER, codec.TO_LEADER, 0.0)
        session = Session(Node(1, "b", 1), client, channel, NodeReport(1, 1, ""), intake, [])
        session.listen(told.append, told.append)
        flood(server, "ignored", number)
        server.transport.close()
        while not told:
            await asyncio.sleep(0.01)

    talk(steps)
    assert told == [events.SessionLost(1, why)]


def test_new_key_exchanges_without_end_lose_their_session() -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        with contextlib.suppress(OSError, EOFError):
            for _ in range(100):
                server.transport._send_kex_init()  # type: ignore[attr-defined]
                await client.until(client.clear_to_send.is_set, LIMIT)
                while client.is_active() and not server.transport.clear_to_send.is_set():
                    await asyncio.sleep(0.001)
        assert not client.is_active()

    talk(steps)


@pytest.mark.parametrize("how", ["close", "the peer ends"])
def test_nothing_stays_of_a_session_that_is_over(how: str) -> None:
    async def steps(client: Transport, channel: paramiko.Channel, server: Echo) -> None:
        if how == "close":
            client.close()
            client.close()
        else:
            channel.transport.sock._socket.shutdown(socket.SHUT_RDWR)
            await client.until(lambda: False, LIMIT)
        assert channel.closed
        assert client not in paramiko.transport._active_threads  # type: ignore[attr-defined]
        assert client.sock._socket.fileno() == -1

    gone = weakref.ref(talk(steps))
    gc.collect()
    assert gone() is None


def test_a_peer_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_UNSENT", 1 << 20)
    ours, theirs = socket.socketpair()
    resumed: list[bool] = []

    async def run() -> None:
        stream = transport._Stream(ours, lambda: resumed.append(True), lambda: True)
        stream.open()
        assert stream.send(b"a" * (1 << 20)) == 1 << 20
        got = bytearray()
        while len(got) < 1 << 20:  # it reads after all
            with contextlib.suppress(BlockingIOError):
                got += theirs.recv(1 << 20, socket.MSG_DONTWAIT)
            await asyncio.sleep(0)
        with pytest.raises(BrokenPipeError):
            stream.send(b"a" * (4 << 20))
        await asyncio.sleep(0)
        assert resumed, "paramiko hears of the end"
        stream.close()

    asyncio.run(run())
    theirs.close()


def packet(payload: bytes) -> bytes:
    """A packet of the ssh protocol before anything is encrypted (RFC 4253, 6)."""
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


TOO_MUCH = "more than 262144 bytes before a login"


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (b"x" * (1 << 20), TOO_MUCH),
        (b"SSH-2.0-x\r\n" + packet(b"\x02" + bytes(1000)) * 1000, TOO_MUCH),
        (b"SSH-2.0-x\r\n" + struct.pack(">IB", (1 << 31) + 4, 5) + bytes(20), "a packet of more than 262144 bytes"),
    ],
    ids=["no line", "no end", "a huge packet"],
)  # fmt: skip
def test_a_stranger_that_says_too_much_is_left(says: bytes, words: str) -> None:
    ours, theirs = tcp_pair()

    def say() -> None:
        with contextlib.suppress(OSError):
            theirs.sendall(says)

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()

    async def run() -> None:
        client = Transport(ours)
        with pytest.raises(paramiko.SSHException, match=words):
            await client.exchange_keys(LIMIT)
        client.close()

    asyncio.run(run())
    speaker.join()
    theirs.close()
