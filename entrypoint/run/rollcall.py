"""The leader's side of the roll call: one long-lived, authenticated ssh session to every worker.

The session is the readiness check (the login mpirun will use: name, port, key and host key all proven), the exchange of
facts, the lease and the release. Sessions are opened in parallel, each tried again until the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import paramiko

from entrypoint.errors import ConfigError, RefusedError, UnavailableError
from entrypoint.model import Attendance, Node, Roster
from entrypoint.run import wire
from entrypoint.run.keys import Keys
from entrypoint.run.progress import Waiting
from entrypoint.run.resolve import Address, in_thread, pause, resolve

_TRY = 5.0  # seconds for one step of one attempt
_HANDSHAKES = 64  # at one time, so that a thousand nodes do not starve each other
_HEAR_ALL = 2.0  # seconds for the others, once one node cannot be of this job: to name all such, and to tell the rest
_SURE = 10.0  # seconds that a peer may show a wrong key (a stale address, an old container) before we believe it

# paramiko logs what we already report, with tracebacks.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class Unready(Exception):
    """One attempt at one peer failed; another may not."""

    def __init__(self, reason: str, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused  # it is there, but is not, or does not take us for, this job's


class Session:
    """One worker that answered. Lines that arrive go to `on_message`; the end of the session to `on_lost`."""

    def __init__(
        self, node: Node, client: paramiko.Transport, channel: paramiko.Channel, attendance: Attendance
    ) -> None:
        self.node, self.attendance = node, attendance
        self.heard = time.monotonic()
        self._client, self._channel = client, channel
        self._buffer = b""
        self._fd = channel.fileno()
        self.lost = asyncio.Event()

    def listen(self, on_message: Callable[[Session, dict[str, Any]], None]) -> None:
        """Begin to pass on what the worker says. Call it in the event loop."""
        self._on_message = on_message
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        while self._channel.recv_ready():
            self._buffer += self._channel.recv(65536)
            self.heard = time.monotonic()
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._on_message(self, wire.unpack(line))
        if (self._channel.eof_received or self._channel.closed) and not self._channel.recv_ready():
            self.close()

    def send(self, kind: str, **fields: Any) -> None:
        """Say something to the worker; a session that is gone is found by its end, not here."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.sendall(wire.pack(kind, **fields))

    def close(self) -> None:
        if not self.lost.is_set():
            self.lost.set()
            asyncio.get_running_loop().remove_reader(self._fd)
            # Closing joins paramiko's thread, which may be waiting for a dead peer.
            threading.Thread(target=self._client.close, daemon=True).start()


class RollCall:
    """Calls every worker until all have answered, and keeps the sessions."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        port: int,
        user: str,
        keys: Keys,
        question: Callable[[Node], bytes],
        on_message: Callable[[Session, dict[str, Any]], None],
        waiting: Waiting,
    ) -> None:
        self._nodes, self._port, self._user = nodes, port, user
        self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(keys.client_private.decode()))
        self._hosts = paramiko.HostKeys()
        for line in keys.known_hosts.splitlines():
            entry = paramiko.hostkeys.HostKeyEntry.from_line(line) if line.strip() else None
            if entry and entry.key:
                for name in entry.hostnames:
                    self._hosts.add(name, entry.key.get_name(), entry.key)
        self._question, self._on_message, self._waiting = question, on_message, waiting
        self._handshakes = asyncio.Semaphore(_HANDSHAKES)
        self.sessions: dict[int, Session] = {}
        self._wrong: dict[str, ConfigError] = {}  # host -> why it cannot be of this job
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # all are there, or one can't be

    async def gather(self, own: Attendance, limit: float) -> Roster:
        """Everyone's answer, in rank order, once all are there.

        Raises UnavailableError at the deadline, with every missing peer and what was seen of each; RefusedError when a
        peer has another key; ConfigError when one cannot be of this job.
        """
        for node in self._nodes:
            self._waiting.update(node.host, "not reached yet")
        callers = [asyncio.create_task(self._keep_calling(node)) for node in self._nodes]
        try:
            await asyncio.wait_for(self._done, limit)
        except asyncio.TimeoutError:
            raise self._unavailable(limit) from None
        finally:
            for caller in callers:
                caller.cancel()
        answers = {rank: session.attendance for rank, session in self.sessions.items()}
        return Roster(tuple(answer for _, answer in sorted({own.rank: own, **answers}.items())))

    def _unavailable(self, limit: float) -> UnavailableError:
        missing = self._waiting.missing()
        seen = _named(missing)
        what = f"{len(missing)} of {len(self._nodes)} peers did not answer within {limit:.0f}s"
        return UnavailableError(what, seen, "see that they run, or wait longer: ENTRYPOINT_TIMEOUTS_PEERS, in seconds")

    async def _keep_calling(self, node: Node) -> None:
        """Have a session with the node; when it ends before the roll call is complete, have another."""
        begun, refused_since = time.monotonic(), None
        while True:
            try:
                update = partial(self._waiting.update, node.host)
                found = await resolve(node.address or node.host, self._port, update, len(self._nodes))
                async with self._handshakes:
                    session = await in_thread(partial(self._attempt, node, found))
            except Unready as error:
                self._waiting.update(node.host, str(error))
                now = time.monotonic()
                refused_since = (refused_since or now) if error.refused else None
                if refused_since is not None and now - refused_since > _SURE:
                    # With whoever else is missing, each with what was seen of it.
                    others = {host: state for host, state in self._waiting.missing().items() if host != node.host}
                    also = f"; also missing: {_named(others)}" if others else ""
                    what, do = f"{node.host} is not of this job", "give all nodes the same secret and job name"
                    self._fail(RefusedError(what, f"{error}{also}", do))
                    return
                # A peer's coming up sends no event over the network; it can only be asked again.
                await asyncio.wait({self._done}, timeout=pause(begun, len(self._nodes)))
            except ConfigError as error:
                self._wrong[node.host] = error
                self._waiting.update(node.host, "")
                asyncio.get_running_loop().call_later(_HEAR_ALL, self._disagree)
                self._look()
                return
            else:
                begun, refused_since = time.monotonic(), None
                self.sessions[node.rank] = session
                session.listen(self._on_message)
                self._waiting.update(node.host, "")
                self._look()
                await session.lost.wait()
                if not self._done.done():
                    del self.sessions[node.rank]
                    self._waiting.update(node.host, "answered, then went away")

    def _look(self) -> None:
        """Whether all have answered, well or not."""
        if self._wrong and len(self.sessions) + len(self._wrong) == len(self._nodes):
            self._disagree()
        elif len(self.sessions) == len(self._nodes) and not self._done.done():
            self._done.set_result(None)

    def _disagree(self) -> None:
        """Give up, with every node that cannot be of this job. Those that have answered are told by their sessions."""
        errors, missing = list(self._wrong.values()), self._waiting.missing()
        seen = "; ".join(error.seen for error in errors) + (f"; also missing: {_named(missing)}" if missing else "")
        self._fail(ConfigError("; ".join(error.what for error in errors), seen, errors[0].do))

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def _attempt(self, node: Node, found: list[Address]) -> Session:
        """One login, in a thread of its own: connect, prove both keys, start the attendant, ask."""
        connection = _connect(found)
        address = connection.getpeername()[0]
        client = paramiko.Transport(connection)
        try:
            with _explained(address):
                client.banner_timeout = client.auth_timeout = _TRY
                client.get_security_options().key_types = ("ssh-ed25519",)
                client.start_client(timeout=_TRY)
                if not self._hosts.check(node.host, client.get_remote_server_key()):
                    raise Unready(f"another host key at {address}", refused=True)
                client.auth_publickey(self._user, self._key)
                channel = client.open_session(timeout=_TRY)
                channel.settimeout(_TRY)
                sent = time.time()
                # Through sh, since a tmpfs on /tmp is usually one that nothing may be executed from.
                channel.exec_command('exec sh "$ENTRYPOINT_RUN_DIR/attend"')
                channel.sendall(self._question(node))
                answer = _first_answer(channel, address)
                client.set_keepalive(10)
                clock = answer.get("clock", 0.0) - (sent + time.time()) / 2
        except BaseException:
            client.close()
            raise
        if answer["kind"] == "refuse":
            client.close()
            raise ConfigError(f"{node.host}: {answer['what']}", answer["seen"], answer["do"])
        broken = tuple(answer["broken"]) if answer.get("broken") else None
        attendance = Attendance(node.rank, answer["slots"], answer["toolkit"], answer["mpi"], address, clock, broken)
        return Session(node, client, channel, attendance)


def _named(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{host} ({state})" for host, state in missing.items())


def _first_answer(channel: paramiko.Channel, address: str) -> dict[str, Any]:
    buffer = b""
    while True:
        data = channel.recv(65536)
        if not data:
            said = channel.recv_stderr(4096) if channel.recv_stderr_ready() else b""
            raise Unready(f"no attendant at {address}{': ' + said.decode(errors='replace').strip() if said else ''}")
        buffer += data
        *lines, buffer = buffer.split(b"\n")
        for message in map(wire.unpack, lines):
            if message["kind"] in ("facts", "refuse"):
                return message


def _connect(found: list[Address]) -> socket.socket:
    """A connection to the first of the host's addresses, of either family, that accepts one."""
    reason = "no address"
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(_TRY)
        try:
            connection.connect(address)
            # Every step of a login is one small packet each way; Nagle would cost 40 ms for each.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            reason = "refused"
        except TimeoutError:
            reason = f"no answer from {address[0]}"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        connection.close()
    raise Unready(reason)


@contextlib.contextmanager
def _explained(address: str) -> Iterator[None]:
    try:
        yield
    except paramiko.AuthenticationException:
        raise Unready(f"our key is refused by {address}", refused=True) from None
    except paramiko.SSHException as error:
        raise Unready(f"no ssh login at {address}: {error}") from None
    except TimeoutError:
        raise Unready(f"sshd at {address} is slow to answer") from None
    except (OSError, EOFError):
        raise Unready(f"sshd at {address} closed the connection") from None
