"""The leader's side of the roll call: one long-lived, authenticated ssh session to every worker.

The session is the readiness check (it proves name, port, key and host key for mpirun's own login),
the exchange of facts, the heartbeat and the release. Sessions are opened in parallel, each tried
again until the deadline. A worker that has said goodbye is asked again in its session: a login is
most of what a roll call costs.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import paramiko

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Node
from entrypoint.base.text import one_line
from entrypoint.base.values import dataclass, replace
from entrypoint.base.wire import Invalid
from entrypoint.job import events, messages
from entrypoint.job.answer import node_report
from entrypoint.output.log import Callbacks
from entrypoint.session import codec
from entrypoint.session.resolve import AttemptFailed, connect, pause, resolve
from entrypoint.session.session import WORDS, Session
from entrypoint.session.transport import Transport
from entrypoint.system.keys import Keys
from entrypoint.system.network import Address
from entrypoint.system.threads import rest

_FROZEN = 500  # sessions that are hidden from the garbage collector together
_MIN_RTT = 148  # bytes before tcpi_min_rtt
_STEP = 5.0  # seconds of silence in one step of one attempt
_ATTEMPT = 15.0  # seconds for one attempt: a peer that freezes may come back elsewhere
_GROWTH = 8  # times these limits at most: they double with each attempt that was too slow
# Logins begun at the same time, so that answers do not wait for a thousand key exchanges.
_LOGINS = 64
# Seconds of silence until a login lets the next begin, so that a frozen peer delays no other.
_TURN = 1.0

# paramiko logs what we already report, with tracebacks.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


@dataclass
class _Attempt:
    """A login that is in progress, and its current step."""

    limit: float  # seconds of silence in one step
    step: str = "connecting"
    address: str = ""
    client: Transport | None = None

    def progress(self) -> tuple[str, int]:
        """Return a value that changes with everything that the peer does."""
        return self.step, self.client.received if self.client else 0


class Caller:
    """Calls workers and keeps their sessions. Answers and failures are reported as events."""

    # Returns a node with its present address: one that has called in again may be elsewhere.
    located: Callable[[Node], Node] = staticmethod(lambda node: node)

    def __init__(
        self,
        nodes: tuple[Node, ...],
        user: str,
        keys: Keys,
    ) -> None:
        self._nodes = nodes
        self._user = user
        self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(keys.client_private.decode()))
        self._hosts = _KnownHosts(keys.known_hosts)
        self._tokens: defaultdict[int, str] = defaultdict(lambda: os.urandom(16).hex())
        self._sessions: dict[int, Session] = {}
        self._kept: dict[int, Session] = {}  # of earlier attempts, in which workers are asked
        self._packed: tuple[Any, bytes] = None, b""  # the last message, as it was sent

    def begin_attempt(self, question: messages.Hello, callbacks: Callbacks) -> None:
        """Call with this question. The node, its address and its token are filled in for each
        call."""
        self._question = question
        self._short = replace(question, hosts=(), digest=codec.digest(question.hosts))
        self._tell = callbacks.tell
        self._log = callbacks.log
        self._background = callbacks.background
        self._logins = asyncio.Semaphore(_LOGINS)
        self._patience: dict[int, int] = {}  # node -> factor of the limits of its next attempt
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, float] = {}  # node -> when it was first called, or last answered
        # node -> when its name first had an address, since it was called
        self._named: dict[int, float] = {}

    def end_attempt(self) -> None:
        """Keep the sessions of the workers that have said goodbye, and end all others."""
        self._kept |= {rank: session for rank, session in self._sessions.items() if session.rest()}
        self._sessions.clear()

    def call(self, node: Node) -> None:
        """Call a worker until it answers. A worker has one call or one session: what there was
        before is ended."""
        self.close(node.rank)
        self._named.pop(node.rank, None)
        self._calls[node.rank] = self._background(self._keep_calling(node))

    def has_session(self, rank: int) -> bool:
        """Return whether a worker has answered, and its session has not ended."""
        return rank in self._sessions

    def stop(self) -> None:
        """Cancel all calls."""
        for call in self._calls.values():
            call.cancel()

    def send(self, rank: int, message: Any) -> None:
        """Send a message to a worker that has answered."""
        if session := self._sessions.get(rank):
            if message is not self._packed[0]:  # what all workers are told is packed once
                self._packed = message, codec.pack(message)
            session.send(self._packed[1])

    def close(self, rank: int) -> None:
        """End the call to a worker and its session. No event follows."""
        if call := self._calls.pop(rank, None):
            call.cancel()
        if session := self._sessions.pop(rank, None):
            session.end()

    def close_all(self) -> None:
        """End all sessions."""
        for session in (*self._sessions.values(), *self._kept.values()):
            session.end()
        gc.unfreeze()

    async def _keep_calling(self, node: Node) -> None:
        if node.rank in self._begun:  # it has answered before
            await self._pause(node)
        self._begun.setdefault(node.rank, time.monotonic())
        kept = self._kept.get(node.rank)

        while True:
            present = self.located(node)
            try:
                addresses = [] if kept else await self._addresses(present)
                self._named.setdefault(node.rank, time.monotonic())
                session = await self._login(present, addresses, kept)
            except AttemptFailed as error:
                if not kept:  # else it was frozen, or is another container by now
                    reason, named = one_line(str(error)), self._named[node.rank]
                    self._tell(
                        events.Unreachable(node.rank, reason, error.refused, named, error.is_ours)
                    )
                    await self._pause(node)
                kept = None
                self._kept.pop(node.rank, None)
            except ConfigError as error:
                self._tell(events.Rejected(node.rank, error.summary, error.detail, error.hint))
                return
            else:
                self._listen(session)
                return

    async def _addresses(self, node: Node) -> list[Address]:
        """Return the addresses of a node, once its name has some."""
        return await resolve(
            node.where,
            node.ssh_port,
            lambda reason: self._tell(events.Unreachable(node.rank, reason)),
            len(self._nodes),
        )

    def _listen(self, session: Session) -> None:
        """A worker has answered in this session."""
        rank = session.node.rank
        self._begun[rank] = time.monotonic()
        del self._calls[rank]
        self._kept.pop(rank, None)
        self._sessions[rank] = session
        # They stay, and no collection needs to look at them: with thousands of sessions that would
        # take an eighth of the roll call.
        if len(self._sessions) % _FROZEN == 0:
            gc.collect()
            gc.freeze()
        self._tell(events.Answered(rank, session.report, session.client.local, self._named[rank]))
        session.listen(self._tell, self._log)

    async def _pause(self, node: Node) -> None:
        """Wait before the next attempt: no event announces that a peer has started."""
        await rest(pause(self._begun[node.rank], len(self._nodes)))

    async def _login(
        self, node: Node, addresses: list[Address], kept: Session | None = None
    ) -> Session:
        """Return the session that one attempt opens, or `kept`, in which it has asked, within its
        deadline. Raises AttemptFailed or ConfigError."""
        patience = self._patience.get(node.rank, 1)
        attempt = _Attempt(_STEP * patience)
        await self._logins.acquire()
        work = asyncio.create_task(self._attempt(attempt, node, addresses, kept))
        self._background(self._take_turn(attempt, work))
        limit = _ATTEMPT * patience
        try:
            await asyncio.wait({work}, timeout=limit)
            if not work.done():
                raise AttemptFailed(f"{attempt.step} took longer than {limit:.0f}s", late=True)
            session = work.result()
        except BaseException as error:
            if isinstance(error, AttemptFailed) and error.late:
                self._patience[node.rank] = min(2 * patience, _GROWTH)
            work.cancel()
            work.add_done_callback(_discard)
            raise
        self._patience.pop(node.rank, None)
        return session

    async def _take_turn(self, attempt: _Attempt, work: asyncio.Task[Session]) -> None:
        """Keep the next login waiting until this one is over, or its peer does nothing.

        The time of a whole login says nothing: it is long where all are slow, and more at the same
        time would make all of them slower.
        """
        before = None
        while not work.done() and (now := attempt.progress()) != before:
            before = now
            await asyncio.wait({work}, timeout=_TURN)
        self._logins.release()

    async def _attempt(
        self, attempt: _Attempt, node: Node, addresses: list[Address], kept: Session | None
    ) -> Session:
        """Log in once, unless a session is kept: connect, prove both keys, start the endpoint. Send
        the question."""
        client = None
        try:
            client = kept.client if kept else Transport(await connect(addresses))
            attempt.client = client
            attempt.address = client.connection.getpeername()[0]
            channel = kept.channel if kept else await self._open(attempt, node, client)
            attempt.step = f"the answer of {attempt.address}"
            return await self._ask(attempt, node, client, channel)
        except BaseException as error:
            failed = _translated(error, attempt.address)
            if client is not None:
                client.close()
                client.connection.close()
            raise failed from None

    async def _open(self, attempt: _Attempt, node: Node, client: Transport) -> paramiko.Channel:
        """Return the channel of the worker's control endpoint, after both sides have proven their
        keys."""
        address = attempt.address
        client.get_security_options().key_types = ("ssh-ed25519",)
        attempt.step = f"the key exchange with {address}"
        if not self._hosts.check(node.host, await client.exchange_keys(attempt.limit)):
            raise AttemptFailed(f"another host key at {address}", refused=True)
        attempt.step = f"the login at {address}"
        try:
            await client.login(self._user, self._key, attempt.limit)
        except TimeoutError:
            raise AttemptFailed(
                f"no ssh login at {address}: Authentication timeout.", late=True
            ) from None
        attempt.step = f"the start of a session at {address}"
        return await client.open_command(codec.ATTEND, attempt.limit)

    async def _ask(
        self,
        attempt: _Attempt,
        node: Node,
        client: Transport,
        channel: paramiko.Channel,
    ) -> Session:
        """Send the question and return the session of the worker that has answered it."""
        address = attempt.address
        limit = attempt.limit
        intake = codec.Intake(codec.BY_WORKER, codec.TO_LEADER, time.monotonic())
        for question in (self._short, self._question):
            sent = time.time()
            line = codec.pack(
                replace(question, rank=node.rank, address=address, token=self._tokens[node.rank])
            )
            while line:
                await client.until(channel.send_ready, limit)
                # 0: it is closed, and reading the answer will fail
                line = line[channel.send(line) or len(line) :]
            answer, early = await _first_answer(client, channel, intake, address, limit)
            if not isinstance(answer, messages.HostsWanted):
                break
        else:
            raise Invalid("it wants the hosts that it was given")
        middle = (sent + time.time()) / 2
        if isinstance(answer, messages.Reject):
            raise ConfigError(f"{node.name}: {answer.summary}", answer.detail, answer.hint)
        connection = client.connection
        report = node_report(
            node.rank, answer, connection.getpeername()[:2], middle, round_trip(connection)
        )
        return Session(node, client, channel, report, intake, early)


class _KnownHosts:
    """The host keys of a known_hosts file, indexed by name: paramiko's own table scans all lines
    for each name."""

    def __init__(self, text: str) -> None:
        self._named: defaultdict[str, paramiko.HostKeys] = defaultdict(paramiko.HostKeys)
        self._hashed = paramiko.HostKeys()
        for number, line in enumerate(text.splitlines(), start=1):
            fields = line.split()
            if not fields or fields[0].startswith("#"):
                continue
            try:
                # a marker would change what the key means
                if len(fields) < 3 or fields[0].startswith("@"):
                    raise ValueError
                entry = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(fields))
            except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
                raise ConfigError(
                    "EP304 ssh.known_hosts cannot be read",
                    f"line {number}: {one_line(line.strip(), 80)}",
                    "write each line as: HOST ssh-ed25519 KEY",
                ) from None
            if entry and entry.key:  # otherwise its type is unknown to paramiko
                for name in entry.hostnames:
                    hosts = self._hashed if name.startswith("|") else self._named[name]
                    hosts.add(name, entry.key.get_name(), entry.key)

    def check(self, host: str, key: paramiko.PKey) -> bool:
        """Return whether this is a key of the host."""
        return (host in self._named and self._named[host].check(host, key)) or self._hashed.check(
            host, key
        )


async def _first_answer(
    client: Transport, channel: paramiko.Channel, intake: codec.Intake, address: str, limit: float
) -> tuple[messages.NodeInfo | messages.Reject | messages.HostsWanted, list[Any]]:
    """Return the worker's answer to the question, and the messages that came after it."""
    while True:
        await client.until(
            lambda: client.has_data or bool(channel.eof_received or channel.closed), limit
        )
        data = client.take(channel)
        if not data:
            stderr = channel.recv_stderr(4096) if channel.recv_stderr_ready() else b""
            text = one_line(stderr.decode(errors="replace").strip(), WORDS)
            raise AttemptFailed(f"no control endpoint at {address}{': ' + text if text else ''}")
        arrived = intake.feed(data, time.monotonic())
        for number, message in enumerate(arrived, start=1):
            if isinstance(message, messages.Taken):
                elsewhere = message.why not in (messages.TAKEN, messages.RUNS)
                raise AttemptFailed(
                    f"{message.why}, at {address}" if elsewhere else message.why,
                    refused=elsewhere,
                    is_ours=elsewhere and message.why != messages.OTHER_JOB,
                )
            if isinstance(message, (messages.NodeInfo, messages.Reject, messages.HostsWanted)):
                return message, arrived[number:]


def round_trip(connection: socket.socket) -> float:
    """Return the smallest round-trip time in seconds that the kernel measured; 0.0 if it has none.

    It is independent of how busy the programs are. Source: tcpi_min_rtt in struct tcp_info of
    Linux's tcp.h, since 4.6.
    """
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT + 4)
    except OSError:
        return 0.0
    fastest = int.from_bytes(info[_MIN_RTT:], sys.byteorder)  # microseconds
    return 0.0 if fastest == 0xFFFFFFFF else fastest / 1e6  # 0xFFFFFFFF: no packet was measured yet


def _discard(work: asyncio.Task[Session]) -> None:
    """An attempt is over that nobody waits for any more: its failure is nobody's, and its session
    is too late to be used."""
    if not work.cancelled() and not work.exception():
        work.result().end()


def _translated(error: BaseException, address: str) -> BaseException:
    """Return the error of an attempt as one whose text says what failed."""
    if isinstance(error, (AttemptFailed, ConfigError)) or not isinstance(error, Exception):
        return error
    reason = one_line(str(error) or type(error).__name__)
    # paramiko also reports a slow or interrupted login as failed; only these two mean that sshd
    # refused the key.
    if isinstance(error, paramiko.BadAuthenticationType) or reason == "Authentication failed.":
        return AttemptFailed(f"our key is refused by {address}", refused=True)
    descriptions: dict[Any, str] = {
        Invalid: f"{address} sent an invalid message: {reason}",
        paramiko.SSHException: f"no ssh login at {address}: {reason}",
        TimeoutError: f"sshd at {address} is slow to answer",
        (OSError, EOFError): f"sshd at {address} closed the connection",
        Exception: f"no ssh login at {address}: {type(error).__name__}: {reason}",
    }
    description = next(
        description for kind, description in descriptions.items() if isinstance(error, kind)
    )
    return AttemptFailed(description, late=isinstance(error, TimeoutError))
