"""The leader's side of the roll call: one long-lived, authenticated ssh session to every worker.

The session is the readiness check (it proves name, port, key and host key for mpirun's own login), the exchange of
facts, the heartbeat and the release. Sessions are opened in parallel, each tried again until the deadline.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import sys
import time
from collections import defaultdict
from functools import partial
from typing import Any

import paramiko

from entrypoint.errors import ConfigError
from entrypoint.job import events, messages
from entrypoint.model import Interface, Node, NodeReport, Outcome
from entrypoint.output.log import Callbacks
from entrypoint.session import codec
from entrypoint.session.resolve import Address, pause, resolve
from entrypoint.session.session import WORDS, Session
from entrypoint.session.transport import Transport
from entrypoint.system.clock import rest
from entrypoint.system.keys import Keys
from entrypoint.text import one_line
from entrypoint.values import dataclass, replace
from entrypoint.wire import Invalid

_MIN_RTT = 148  # bytes before tcpi_min_rtt

# paramiko logs what we already report, with tracebacks.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class AttemptFailed(Exception):
    """One attempt at one peer failed; another may not."""

    def __init__(self, reason: str, refused: bool = False, late: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused  # the peer answered, but one side does not accept the other's key
        self.late = late  # the peer, or its machine, may only be slow


@dataclass(frozen=True)
class CallLimits:
    """Limits of the calls to peers."""

    step: float = 5.0  # seconds of silence in one step of one attempt
    attempt: float = 15.0  # seconds for one attempt: a peer that freezes may come back elsewhere
    growth: int = 8  # times these limits at most: they double with each attempt that was too slow
    logins: int = 64  # begun at one time: answers do not wait for a thousand other key exchanges
    turn: float = 1.0  # seconds until a login lets the next one begin: a frozen peer delays no other


@dataclass
class _Attempt:
    """One login under way, and how far it is."""

    patience: int  # how many times the usual limits it has
    step: str = "connecting"
    address: str = ""


class Caller:
    """Calls workers and keeps their sessions. What happens is reported as events."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        user: str,
        keys: Keys,
        question: messages.Hello,
        callbacks: Callbacks,
        limits: CallLimits = CallLimits(),  # noqa: B008
    ) -> None:
        self._limits = limits
        self._nodes = nodes
        self._user = user
        self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(keys.client_private.decode()))
        self._hosts = _KnownHosts(keys.known_hosts)
        self._question = question  # but for the node and its address
        self._tell = callbacks.tell
        self._log = callbacks.log
        self._background = callbacks.background
        self._logins = asyncio.Semaphore(limits.logins)
        self._patience: dict[int, int] = {}  # node -> how many times the usual limits its next attempt has
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, float] = {}  # node -> when it was first called, or last answered
        self._named: dict[int, float] = {}  # node -> when its name had an address, since it was called
        self._sessions: dict[int, Session] = {}

    def call(self, node: Node) -> None:
        """Call it until it answers."""
        self._named.pop(node.rank, None)
        self._calls[node.rank] = self._background(self._keep_calling(node))

    def stop(self) -> None:
        """Call nobody any more."""
        for call in self._calls.values():
            call.cancel()

    def send(self, rank: int, message: Any) -> None:
        """Say something to a worker that has answered."""
        if rank in self._sessions:
            self._sessions[rank].send(message)

    def close(self, rank: int) -> None:
        """End a worker's session."""
        if rank in self._sessions:
            self._sessions.pop(rank).close()

    def close_all(self) -> None:
        """End all sessions. Whoever waits for events does not wait any more."""
        for session in self._sessions.values():
            session.close()

    async def _keep_calling(self, node: Node) -> None:
        name = node.where
        if node.rank in self._begun:  # it has answered before
            await self._pause(node)
        self._begun.setdefault(node.rank, time.monotonic())
        while True:
            try:
                found = await resolve(name, node.ssh_port, partial(self._miss, node), len(self._nodes))
                self._named.setdefault(node.rank, time.monotonic())
                session = await self._login(node, found)
            except (
                AttemptFailed,
                RuntimeError,
                OSError,
            ) as error:  # no more threads, no more files: later there may be
                why = one_line(str(error) or type(error).__name__)
                refused, named = isinstance(error, AttemptFailed) and error.refused, self._named.get(node.rank, 0.0)
                self._tell(events.Unreachable(node.rank, why, refused, named))
                await self._pause(node)
            except ConfigError as error:
                self._tell(events.Rejected(node.rank, error.summary, error.detail, error.hint))
                return
            else:
                self._begun[node.rank] = time.monotonic()
                self._sessions[node.rank] = session
                self._tell(events.Answered(node.rank, session.report, session.client.local, self._named[node.rank]))
                session.listen(self._tell, self._log)
                return

    def _miss(self, node: Node, why: str) -> None:
        if why:
            self._tell(events.Unreachable(node.rank, why))

    async def _pause(self, node: Node) -> None:
        """No event tells when a peer has started; it can only be asked again."""
        await rest(pause(self._begun[node.rank], len(self._nodes)))

    async def _login(self, node: Node, found: list[Address]) -> Session:
        """One attempt, within its deadline. Raises Unready or ConfigError that says what failed."""
        attempt = _Attempt(self._patience.get(node.rank, 1))
        await self._logins.acquire()
        turn = asyncio.get_running_loop().call_later(self._limits.turn, self._logins.release)
        work = asyncio.create_task(self._attempt(attempt, node, found))
        work.add_done_callback(lambda _: self._end_turn(turn))
        limit = self._limits.attempt * attempt.patience
        try:
            await asyncio.wait({work}, timeout=limit)
            if not work.done():
                raise AttemptFailed(f"{attempt.step} took longer than {limit:.0f}s", late=True)
            session = work.result()
        except BaseException as error:
            if isinstance(error, AttemptFailed) and error.late:
                self._patience[node.rank] = min(2 * attempt.patience, self._limits.growth)
            if not work.cancel() and not work.cancelled() and not work.exception():
                work.result().close()  # nobody wants it any more
            raise
        self._patience.pop(node.rank, None)
        return session

    def _end_turn(self, turn: asyncio.TimerHandle) -> None:
        if turn.when() > asyncio.get_running_loop().time() and not turn.cancelled():
            turn.cancel()
            self._logins.release()

    async def _attempt(self, attempt: _Attempt, node: Node, found: list[Address]) -> Session:
        """One login: connect, prove both keys, start the endpoint, ask."""
        connection = client = None
        try:
            connection = await _connect(found, self._limits.step * attempt.patience)
            client = Transport(connection)
            attempt.address = connection.getpeername()[0]
            channel = await self._open(attempt, node, client)
            attempt.step = f"the answer of {attempt.address}"
            return await self._ask(attempt, node, connection, client, channel)
        except BaseException as error:
            if client is not None:
                client.close()
            if connection is not None:
                connection.close()
            raise _explained(error, attempt.address) from None

    async def _open(self, attempt: _Attempt, node: Node, client: Transport) -> paramiko.Channel:
        """The channel of the worker's control endpoint, once both sides have proven their keys."""
        address, limit = attempt.address, self._limits.step * attempt.patience
        client.get_security_options().key_types = ("ssh-ed25519",)
        attempt.step = f"the key exchange with {address}"
        if not self._hosts.check(node.host, await client.exchange_keys(limit)):
            raise AttemptFailed(f"another host key at {address}", refused=True)
        attempt.step = f"the login at {address}"
        try:
            await client.login(self._user, self._key, limit)
        except TimeoutError:
            raise AttemptFailed(f"no ssh login at {address}: Authentication timeout.", late=True) from None
        attempt.step = f"the start of a session at {address}"
        # Through sh, since a tmpfs on /tmp is usually one that nothing may be executed from. ForceCommand says the
        # same, unless ssh.client gives a job its own way in.
        return await client.open_command('exec sh "$ENTRYPOINT_RUN_DIR/attend"', limit)

    async def _ask(
        self, attempt: _Attempt, node: Node, connection: socket.socket, client: Transport, channel: paramiko.Channel
    ) -> Session:
        """The session of a worker that has answered our question."""
        address = attempt.address
        limit = self._limits.step * attempt.patience
        sent = time.time()
        question = codec.pack(replace(self._question, rank=node.rank, address=address))
        while question:
            await client.until(channel.send_ready, limit)
            question = question[channel.send(question) or len(question) :]  # 0: it is closed, as the answer will tell
        intake = codec.Intake(codec.BY_WORKER, codec.TO_LEADER, time.monotonic())
        answer, early = await _first_answer(client, channel, intake, address, limit)
        middle = (sent + time.time()) / 2
        if isinstance(answer, messages.Reject):
            raise ConfigError(f"{node.host}: {answer.summary}", answer.detail, answer.hint)
        report = NodeReport(
            node.rank,
            answer.slots,
            answer.toolkit,
            answer.mpi,
            address,
            answer.clock - middle,
            Outcome(*answer.not_ready) if answer.not_ready else None,
            Interface(*answer.interface) if answer.interface else None,
            answer.interfaces,
            answer.attempt,
            round_trip(connection),
        )
        return Session(node, client, channel, report, intake, early)


class _KnownHosts:
    """The host keys of a known_hosts file, by name: paramiko's own table looks at every line for each name."""

    def __init__(self, text: str) -> None:
        self._named: defaultdict[str, paramiko.HostKeys] = defaultdict(paramiko.HostKeys)
        self._hashed = paramiko.HostKeys()
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                if len(words) < 3 or words[0].startswith("@"):  # a marker would change what the key means
                    raise ValueError
                entry = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(words))
            except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
                seen = f"line {number}: {one_line(line.strip(), 80)}"
                do = "make each line: HOST ssh-ed25519 KEY"
                raise ConfigError("EP304 ssh.known_hosts cannot be read", seen, do) from None
            if entry and entry.key:  # else it is of a kind that paramiko does not know
                for name in entry.hostnames:
                    hosts = self._hashed if name.startswith("|") else self._named[name]
                    hosts.add(name, entry.key.get_name(), entry.key)

    def check(self, host: str, key: paramiko.PKey) -> bool:
        """Whether this is a key of that host."""
        return (host in self._named and self._named[host].check(host, key)) or self._hashed.check(host, key)


async def _first_answer(
    client: Transport, channel: paramiko.Channel, intake: codec.Intake, address: str, limit: float
) -> tuple[messages.NodeInfo | messages.Reject, list[Any]]:
    """The answer to our question, and the messages after it."""
    while True:
        await client.until(lambda: channel.recv_ready() or bool(channel.eof_received or channel.closed), limit)
        data = channel.recv(65536)
        if not data:
            said = channel.recv_stderr(4096) if channel.recv_stderr_ready() else b""
            words = one_line(said.decode(errors="replace").strip(), WORDS)
            raise AttemptFailed(f"no control endpoint at {address}{': ' + words if words else ''}")
        heard = intake.feed(data, time.monotonic())
        for number, message in enumerate(heard, start=1):
            if isinstance(message, messages.Taken):
                elsewhere = message.why != messages.TAKEN
                raise AttemptFailed(f"{message.why}, at {address}" if elsewhere else message.why, refused=elsewhere)
            if isinstance(message, (messages.NodeInfo, messages.Reject)):
                return message, heard[number:]


async def _connect(found: list[Address], seconds: float) -> socket.socket:
    """A connection to the first of the host's addresses, of either family, that accepts one within so many seconds."""
    reason, late = "no address", False
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.setblocking(False)
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, address), seconds)
            # Every step of a login is one small packet each way; Nagle would cost 40 ms for each.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            reason = "refused"
        except (TimeoutError, asyncio.TimeoutError):
            reason, late = f"no answer from {address[0]}", True
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        except BaseException:
            connection.close()
            raise
        connection.close()
    raise AttemptFailed(reason, late=late)


def round_trip(connection: socket.socket) -> float:
    """Seconds of the fastest packet there and back, as the kernel saw it; 0.0 where it does not tell.

    How busy the programs are is not in it. Source: struct tcp_info of Linux's tcp.h, tcpi_min_rtt, since 4.6.
    """
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT + 4)
    except OSError:
        return 0.0
    fastest = int.from_bytes(told[_MIN_RTT:], sys.byteorder)  # microseconds
    return 0.0 if fastest == 0xFFFFFFFF else fastest / 1e6  # which means that no packet was measured yet


def _explained(error: BaseException, address: str) -> BaseException:
    """What went wrong in an attempt, for people."""
    if isinstance(error, (AttemptFailed, ConfigError)) or not isinstance(error, Exception):
        return error
    words = one_line(str(error) or type(error).__name__)
    # paramiko also reports a slow or interrupted login as failed; only these two mean that sshd refused the key.
    if isinstance(error, paramiko.BadAuthenticationType) or words == "Authentication failed.":
        return AttemptFailed(f"our key is refused by {address}", refused=True)
    what = {
        Invalid: f"{address} says what no node of this job does: {words}",
        paramiko.SSHException: f"no ssh login at {address}: {words}",
        TimeoutError: f"sshd at {address} is slow to answer",
        OSError: f"sshd at {address} closed the connection",
        EOFError: f"sshd at {address} closed the connection",
        Exception: f"no ssh login at {address}: {type(error).__name__}: {words}",
    }
    text = next(text for kind, text in what.items() if isinstance(error, kind))
    return AttemptFailed(text, late=isinstance(error, TimeoutError))
