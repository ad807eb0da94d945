"""One attempt of the roll call at a peer: each of its steps ends by a deadline, and what went wrong
is named.

The peers are ssh servers of this process, since no real sshd freezes where it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from entrypoint import __version__
from entrypoint.base.errors import ConfigError
from entrypoint.base.history import FIRST
from entrypoint.base.model import Node, NodeReport
from entrypoint.job import events, messages
from entrypoint.output.log import Callbacks, Logger
from entrypoint.session import calls as rollcall
from entrypoint.session import codec, resolve
from entrypoint.system import threads
from entrypoint.system.keys import Keys
from tests.waits import PATIENCE

BRIEF = {"attempt": 0.6}
# why a node does not take a call, and whether the one that was meant answers elsewhere
WHYS = {messages.RUNS: False, messages.TAKEN: False, messages.OTHER_JOB: True}


def new_key() -> str:
    """A private key, as ssh-keygen writes it."""
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        .decode()
    )


class Peer(paramiko.ServerInterface):
    """Listens, and freezes at one step of its first callers' logins; later callers are answered
    well."""

    def __init__(self, step: str, freezes: int = 1, pause: float = 0.0) -> None:
        """`pause`: seconds that each step takes."""
        self.step, self.freezes, self.callers = step, freezes, 0
        self.thaw = threading.Event()
        self.key = paramiko.Ed25519Key(file_obj=io.StringIO(new_key()))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        self.kept: list[socket.socket] = []
        self.asked: list[dict[str, Any]] = []  # questions
        self.pause = pause
        self.answered = 0.0  # when it was logged in to
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.callers += 1
            if self.at("trickle"):
                threading.Thread(target=self._trickle, args=(connection,), daemon=True).start()
                continue
            if self.at("banner"):
                threading.Thread(target=self.thaw.wait, daemon=True).start()
                self.kept.append(connection)
                continue
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.key)
            self.transports.append(transport)
            try:
                transport.start_server(server=self)
            except (paramiko.SSHException, EOFError, OSError):
                continue
            threading.Thread(target=self._answer, args=(transport,), daemon=True).start()

    def _trickle(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while not self.thaw.wait(0.05):
                connection.sendall(b"x")

    def at(self, step: str) -> bool:
        return step == self.step and self.callers <= self.freezes

    def freeze(self, step: str) -> None:
        time.sleep(self.pause)
        self.answered = time.monotonic()
        if self.at(step):
            self.thaw.wait()

    def _answer(self, transport: paramiko.Transport) -> None:
        self.channel = channel = transport.accept(10)
        if channel is None or self.at("answer"):
            return
        if self.step in WHYS and self.at(self.step):
            channel.sendall(codec.pack(messages.Taken(self.step)))
            return
        if self.at("hosts"):
            self.asked.append(json.loads(channel.recv(65536)))
            channel.sendall(codec.pack(messages.HostsWanted()))
            self.asked.append(json.loads(channel.recv(65536)))
        info = messages.NodeInfo(1, "", __version__, time.time(), FIRST, None, None, ())
        with contextlib.suppress(OSError, EOFError):  # the caller may have left
            channel.sendall(codec.pack(info))

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.freeze("login")
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self.freeze("session")
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.freeze("command")
        return True

    def close(self) -> None:
        self.thaw.set()
        self.listener.close()
        for connection in self.kept:
            connection.close()
        for transport in self.transports:
            transport.close()


@pytest.fixture
def states() -> list[str]:
    return []


HELLO = messages.Hello(
    __version__, ("a", "b"), 1, "plain", {}, 15.0, "leader", "127.0.0.1", "token"
)


def keys_of(peer: Peer, known: str = "") -> Keys:
    """The job's keys, of which this peer has the host key."""
    known = known or f"b ssh-ed25519 {peer.key.get_base64()}\n"
    return Keys(new_key().encode(), "", b"", known, "")


def caller(keys: Keys, port: int, tell: Callable[[Any], None]) -> rollcall.Caller:
    """One that calls the node at this port, and tells of it."""
    node = Node(1, "b", 1, "127.0.0.1", ssh_port=port)
    callbacks = Callbacks(Logger(), tell, asyncio.create_task)
    calls = rollcall.Caller((node,), "user", keys)
    calls.begin_attempt(HELLO, callbacks)
    calls.call(node)
    return calls


def call(
    peer: Peer,
    states: list[str],
    limit: float = PATIENCE,
    known: str = "",
    address: str = "127.0.0.1",
    before: Sequence[Peer] = (),
    limits: Mapping[str, float] | None = None,
) -> NodeReport:
    """What this peer answers; `states` gets what it was said to miss, one after the other, and
    whether it refused. `limits`: constants of calls.py, by their names in lower case."""
    keys = keys_of(peer, known)
    node = Node(1, "b", 1, address, ssh_port=peer.port)

    async def run() -> NodeReport:
        answer: asyncio.Future[NodeReport] = asyncio.get_running_loop().create_future()

        def tell(event: object) -> None:
            if isinstance(event, events.Unreachable):
                states.append(f"refused: {event.why}" if event.refused else event.why)
            elif isinstance(event, events.Answered):
                answer.set_result(event.report)

        others = [
            Node(rank, "c", 1, "127.0.0.1", ssh_port=other.port)
            for rank, other in enumerate(before, start=2)
        ]
        callbacks = Callbacks(Logger(), tell, asyncio.create_task)
        calls = rollcall.Caller((node, *others), "user", keys)
        calls.begin_attempt(HELLO, callbacks)
        for each in (*others, node):
            calls.call(each)
        try:
            return await asyncio.wait_for(answer, limit)
        finally:
            calls.stop()
            calls.close_all()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (limits or {}).items():
            patch.setattr(rollcall, f"_{name.upper()}", value)
        return asyncio.run(run())


@pytest.mark.parametrize(
    ("step", "limits", "named"),
    [
        ("login", BRIEF, "the login at 127.0.0.1 took longer than"),
        ("session", BRIEF, "the start of a session at 127.0.0.1 took longer than"),
        ("command", BRIEF, "the start of a session at 127.0.0.1 took longer than"),
        ("answer", BRIEF, "the answer of 127.0.0.1 took longer than"),
        # silence in one step ends an attempt
        ("banner", {"step": 0.3}, "sshd at 127.0.0.1 is slow to answer"),
        # a byte now and then does not hold up the first line: whoever has its port may send them
        ("trickle", {"step": 0.3}, "sshd at 127.0.0.1 is slow to answer"),
    ],
)
def test_a_peer_that_freezes_and_is_replaced_is_called_again(
    step: str, limits: dict[str, float], named: str, states: list[str]
) -> None:
    with contextlib.closing(Peer(step)) as peer:
        assert call(peer, states, limits=limits).rank == 1
    assert peer.callers == 2
    assert any(state.startswith(named) for state in states), states


@pytest.mark.parametrize(("why", "is_elsewhere"), WHYS.items())
def test_a_peer_that_is_busy_is_called_again(
    why: str, is_elsewhere: bool, states: list[str]
) -> None:
    with contextlib.closing(Peer(why)) as peer:
        assert call(peer, states).rank == 1
    assert states == [f"refused: {why}, at 127.0.0.1" if is_elsewhere else why]


def test_a_peer_with_other_hosts_is_sent_them(states: list[str]) -> None:
    with contextlib.closing(Peer("hosts")) as peer:
        assert call(peer, states).rank == 1
    short, long = peer.asked
    assert (short["hosts"], short["digest"]) == ([], codec.digest(("a", "b")))
    assert (long["hosts"], long["digest"]) == (["a", "b"], "")
    assert short["rank"] == long["rank"] == 1
    assert states == []


def test_a_login_that_is_slow_and_not_silent_keeps_the_next_one_waiting(states: list[str]) -> None:
    """One login may begin at one time. The first one takes longer than a turn, and none of its
    steps does."""
    with contextlib.closing(Peer("", pause=0.8)) as slow, contextlib.closing(Peer("")) as peer:
        assert call(peer, states, before=[slow], limits={"logins": 1, "turn": 2.0}).rank == 1
        assert slow.answered < peer.answered


def test_a_peer_that_was_too_slow_gets_twice_the_time(states: list[str]) -> None:
    with contextlib.closing(Peer("answer", freezes=3)) as peer:
        assert call(peer, states, limits={"attempt": 1.0, "growth": 2}).rank == 1
    late = [f"the answer of 127.0.0.1 took longer than {limit}s" for limit in (1, 2, 2)]
    assert states[:3] == late
    assert {*states} == {*late}, "a busy machine may need another attempt"


@pytest.mark.promise("a session takes no thread, and a frozen or flooding peer delays no other")
@pytest.mark.parametrize("others", [0, 2], ids=["nobody else", "two that are frozen"])
def test_frozen_peers_hold_up_nobody(others: int, states: list[str]) -> None:
    """Two logins may begin at one time, and two peers accept a connection and say nothing; neither
    is given up meanwhile."""
    limits = {"logins": 2, "turn": 0.2, "step": 60.0, "attempt": 60.0}
    with contextlib.ExitStack() as stack:
        frozen = [
            stack.enter_context(contextlib.closing(Peer("banner", freezes=9)))
            for _ in range(others)
        ]
        peer = stack.enter_context(contextlib.closing(Peer("")))
        assert call(peer, states, before=frozen, limits=limits).rank == 1
    assert [each.callers for each in frozen] == [1] * others
    assert states == []


def test_a_login_that_takes_too_long_is_not_a_wrong_key(states: list[str]) -> None:
    with contextlib.closing(Peer("login", freezes=3)) as peer:
        assert call(peer, states, limits={"step": 0.3}).rank == 1
    assert any("Authentication timeout" in state for state in states), states
    assert not any(state.startswith("refused") for state in states), states


def test_no_more_threads_is_an_attempt_that_failed(
    states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failing = threads.start_new_thread, [3]

    def start(work: Callable[[], None], given: tuple[()]) -> None:
        if failing[0]:
            failing[0] -= 1
            raise RuntimeError("can't start new thread")
        real(work, given)

    peer = Peer("")
    try:
        monkeypatch.setattr(threads, "start_new_thread", start)
        assert call(peer, states, address="localhost").rank == 1  # a name, for which a thread asks
    finally:
        monkeypatch.setattr(threads, "start_new_thread", real)
        peer.close()
    assert any("EP609 cannot start another thread" in state for state in states), states
    assert failing == [0]


def test_a_connection_that_is_gone_before_it_is_looked_at(
    states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """getpeername fails for a connection that was reset meanwhile."""
    real = rollcall.connect
    dead: list[socket.socket] = []

    async def connect(found: list[resolve.Address]) -> socket.socket:
        if not dead:
            dead.append(socket.socket())
            return dead[0]
        return await real(found)

    monkeypatch.setattr(rollcall, "connect", connect)
    with contextlib.closing(Peer("")) as peer:
        assert call(peer, states).rank == 1
    assert dead[0].fileno() == -1, "left open"


def test_a_first_packet_that_is_lost_is_sent_again_before_the_kernel_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a container whose network is not up yet: the kernel drops what comes while two
    connections wait to be accepted, and would repeat its own packet after a second."""
    limits: list[float] = []
    once = resolve._connect_once

    async def counted(address: resolve.Address, limit: float) -> socket.socket:
        limits.append(limit)
        return await once(address, limit)

    monkeypatch.setattr(resolve, "_connect_once", counted)

    async def run(server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        (address,) = resolve.addresses("127.0.0.1", server.getsockname()[1])
        work = asyncio.create_task(resolve.connect([address]))
        await asyncio.sleep(0.1)
        for _ in range(2):
            (await loop.sock_accept(server))[0].close()
        (await work).close()

    with silent() as server:
        asyncio.run(run(server))
    assert len(limits) > 1
    assert limits[0] < 1


@contextlib.contextmanager
def silent() -> Iterator[socket.socket]:
    """A server whose kernel drops what comes, since two connections wait to be accepted."""
    with socket.socket() as server, contextlib.ExitStack() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        server.setblocking(False)
        for _ in range(2):
            client = waiting.enter_context(socket.socket())
            client.connect(server.getsockname())
        yield server


def test_an_address_that_does_not_answer_is_resolved_again_each_time_as_soon(
    states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost Pod's address stays in DNS until its successor is there: Kubernetes takes a Pod that
    has failed out of an EndpointSlice with the next change of its Service's Pods alone."""
    limits: list[float] = []
    once, resolved = resolve._connect_once, rollcall.resolve

    async def counted(address: resolve.Address, limit: float) -> socket.socket:
        limits.append(limit)
        return await once(address, min(limit, 0.1))

    async def moved(host: str, port: int | None, *more: Any) -> list[resolve.Address]:
        port = server.getsockname()[1] if len(limits) < 3 * lost else port
        return await resolved(host, port, *more)

    monkeypatch.setattr(resolve, "_connect_once", counted)
    monkeypatch.setattr(rollcall, "resolve", moved)
    lost = 4  # attempts at the old address
    with silent() as server, contextlib.closing(Peer("")) as peer:
        assert call(peer, states).rank == 1
    assert states == ["no answer from 127.0.0.1"] * lost
    assert limits[: 3 * lost] == [*resolve._SOON, resolve._LAST] * lost, "no limit grows"


@pytest.mark.promise(
    "`check --all` names late packets by what the kernel measured at the roll call"
)
def test_an_answer_says_how_fast_packets_are(states: list[str]) -> None:
    with contextlib.closing(Peer("")) as peer:
        begun = time.monotonic()
        assert 0 < call(peer, states).round_trip < time.monotonic() - begun


@pytest.mark.control(
    "`check --all` names late packets by what the kernel measured at the roll call"
)
def test_a_connection_whose_packets_nobody_times() -> None:
    here, there = socket.socketpair()
    assert rollcall.round_trip(here) == 0.0
    here.close()
    assert rollcall.round_trip(here) == 0.0
    there.close()


@pytest.mark.parametrize("name", ["b", "a,b", "hash"])
def test_a_host_key_is_known_by_its_name(name: str, states: list[str]) -> None:
    other = paramiko.Ed25519Key(file_obj=io.StringIO(new_key())).get_base64()
    name = paramiko.HostKeys.hash_host("b") if name == "hash" else name
    known = f"a ssh-ed25519 {{}}\n{name} ssh-ed25519 {{}}\n"
    with contextlib.closing(Peer("")) as peer:
        own = peer.key.get_base64()
        assert call(peer, states, known=known.format(other, own)).rank == 1
        assert states == []
        with pytest.raises(asyncio.TimeoutError):
            call(peer, states, 1.0, known=known.format(own, other))
    assert set(states) == {"refused: another host key at 127.0.0.1"}


@pytest.mark.parametrize(
    "line",
    [
        "b ssh-ed25519 AAAA",
        "b ssh-ed25519 !",
        "b ssh-rsa AAAA",
        "b ssh-ed25519",
        "@revoked b ssh-ed25519 AAAA",
    ],
)
def test_a_broken_line_of_known_hosts_is_named(line: str, states: list[str]) -> None:
    with contextlib.closing(Peer("")) as peer:
        key = peer.key.get_base64()
        with pytest.raises(ConfigError) as caught:
            call(peer, states, known=f"# comment\n\n{line}\nb ssh-ed25519 {key}\n")
        assert str(caught.value) == (
            f"EP304 ssh.known_hosts cannot be read | line 3: {line} | write each line as: HOST"
            " ssh-ed25519 KEY"
        )
        known = f"# {line}\n\n \tb  ssh-ed25519\t{key} x\n"
        assert call(peer, states, known=known).rank == 1


def test_an_attempt_that_fails_while_it_is_cancelled_is_nobody_s_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal and the end of the roll call may come in the same moment."""
    errors: list[dict[str, object]] = []

    async def connect(found: list[resolve.Address]) -> socket.socket:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            raise rollcall.AttemptFailed("nothing listens there yet") from None
        raise AssertionError

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        calls = caller(Keys(new_key().encode(), "", b"", "", ""), 1, lambda event: None)
        await asyncio.sleep(0.1)
        calls.stop()
        await asyncio.sleep(0.1)
        del calls  # with it, the last reference to the attempt
        gc.collect()

    monkeypatch.setattr(rollcall, "connect", connect)
    asyncio.run(run())
    assert errors == []


def test_a_node_has_one_call_or_one_session_however_often_it_is_called() -> None:
    """A lost spare was called twice: by its loss, and by the end of its session that followed."""
    with contextlib.closing(Peer("", pause=0.05)) as peer:
        told: list[Any] = []

        async def run() -> None:
            calls = caller(keys_of(peer), peer.port, told.append)
            for pause in (0.1, 2.0, 2.0):  # while it connects, logs in, and has a session
                calls.call(Node(1, "b", 1, "127.0.0.1", ssh_port=peer.port))
                await asyncio.sleep(pause)
            assert sum(each.is_active() for each in peer.transports) == 1
            calls.close(1)
            await asyncio.sleep(0.5)
            assert not any(each.is_active() for each in peer.transports)
            calls.close_all()

        asyncio.run(run())
    assert [type(event) for event in told] == [events.Answered, events.Answered]


@pytest.mark.parametrize(
    ("ends", "heard"),
    [
        ("with the answer", []),
        ("with a message", [events.MessageReceived]),
        ("by itself", [events.SessionLost]),
    ],
)
def test_nothing_is_heard_of_a_session_that_was_ended(ends: str, heard: list[type]) -> None:
    with contextlib.closing(Peer("")) as peer:
        told: list[Any] = []

        async def run() -> None:
            def tell(event: Any) -> None:
                told.append(event)
                kind = events.Answered if ends == "with the answer" else events.MessageReceived
                if isinstance(event, kind):
                    calls.close(1)

            calls = caller(keys_of(peer), peer.port, tell)
            while not told:
                await asyncio.sleep(0.02)
            if ends == "by itself":
                peer.channel.close()
            else:
                with contextlib.suppress(OSError):
                    peer.channel.sendall(2 * b'{"kind": "stopped"}\n')
            await asyncio.sleep(0.5)
            calls.close_all()

        asyncio.run(run())
    assert [type(event) for event in told] == [events.Answered, *heard]
