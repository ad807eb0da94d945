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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import paramiko

from entrypoint.errors import ConfigError, RefusedError, UnavailableError
from entrypoint.host.keys import Keys
from entrypoint.host.progress import Say, Waiting
from entrypoint.model import Interface, Members, Node, NodeReport, Outcome
from entrypoint.session import codec
from entrypoint.session.resolve import Address, in_thread, pause, resolve
from entrypoint.session.session import WORDS, Session

_TRY = 5.0  # seconds for one step of one attempt
_ATTEMPT = 15.0  # seconds for all its steps: a peer that freezes between two may be replaced by one that answers
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


@dataclass
class _Attempt:
    """One login under way, and how far it is."""

    step: str = "connecting"
    connection: socket.socket | None = None
    over: bool = False

    def end(self) -> None:
        """Have every wait in it end, from outside: nothing comes or goes any more."""
        self.over = True
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class RollCall:
    """Calls every worker until all have answered, and keeps the sessions."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        user: str,
        keys: Keys,
        question: Callable[[Node, str], bytes],
        on_message: Callable[[Session, codec.Message], None],
        waiting: Waiting,
        say: Say,
    ) -> None:
        self._nodes, self._user = nodes, user
        self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(keys.client_private.decode()))
        self._hosts = _known(keys.known_hosts)
        self._question, self._on_message, self._waiting, self._say = question, on_message, waiting, say
        self._handshakes = asyncio.Semaphore(_HANDSHAKES)
        self.sessions: dict[int, Session] = {}
        self._wrong: dict[str, ConfigError] = {}  # host -> why it cannot be of this job
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # all are there, or one can't be

    async def gather(self, own: NodeReport, limit: float) -> Members:
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
        answers = {rank: session.report for rank, session in self.sessions.items()}
        return Members(tuple(answer for _, answer in sorted({own.rank: own, **answers}.items())))

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
                found = await resolve(node.address or node.host, node.ssh_port, update, len(self._nodes))
                async with self._handshakes:
                    session = await self._login(node, found)
            except (Unready, RuntimeError, OSError) as error:  # no more threads, no more files: later there may be
                self._waiting.update(node.host, codec.one_line(str(error) or type(error).__name__))
                now = time.monotonic()
                refused = isinstance(error, Unready) and error.refused
                refused_since = (refused_since or now) if refused else None
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
                self._waiting.update(node.host, "")
                self._look()
                session.listen(self._on_message, self._say)
                await session.lost.wait()
                if not self._done.done():
                    session.close()
                    del self.sessions[node.rank]
                    self._waiting.update(node.host, session.why or "answered, then went away")
                    await asyncio.wait({self._done}, timeout=pause(begun, len(self._nodes)))

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

    async def _login(self, node: Node, found: list[Address]) -> Session:
        """One attempt, within its deadline. Whatever goes wrong in it is an attempt that failed, by name."""
        attempt = _Attempt()
        session = None
        work = asyncio.ensure_future(in_thread(partial(self._attempt, attempt, node, found)))
        try:
            await asyncio.wait({work}, timeout=_ATTEMPT)
            if not work.done():
                raise Unready(f"{attempt.step} took longer than {_ATTEMPT:.0f}s")
            session = work.result()
            return session
        finally:
            if session is None:
                work.cancel()
                attempt.end()  # what nobody waits for must not come to be a session

    def _attempt(self, attempt: _Attempt, node: Node, found: list[Address]) -> Session:
        """One login, in a thread of its own: connect, prove both keys, start the endpoint, ask."""
        address, client = "", None
        try:
            attempt.connection = connection = _connect(found)
            if attempt.over:
                raise Unready("given up")
            address = connection.getpeername()[0]
            client = paramiko.Transport(connection)
            client.banner_timeout = client.auth_timeout = client.clear_to_send_timeout = _TRY
            client.get_security_options().key_types = ("ssh-ed25519",)
            attempt.step = f"the key exchange with {address}"
            client.start_client(timeout=_TRY)
            if not self._hosts.check(node.host, client.get_remote_server_key()):
                raise Unready(f"another host key at {address}", refused=True)
            attempt.step = f"the login at {address}"
            client.auth_publickey(self._user, self._key)
            attempt.step = f"the start of a session at {address}"
            channel = client.open_session(timeout=_TRY)
            channel.settimeout(_TRY)
            # Through sh, since a tmpfs on /tmp is usually one that nothing may be executed from.
            channel.exec_command('exec sh "$ENTRYPOINT_RUN_DIR/attend"')
            attempt.step = f"the answer of {address}"
            sent = time.time()
            channel.sendall(self._question(node, address))
            intake = codec.Intake(codec.FROM_WORKER, codec.TO_LEADER, time.monotonic())
            answer, early = _first_answer(channel, intake, address)
            middle = (sent + time.time()) / 2
            client.set_keepalive(10)
            if answer["kind"] == "refuse":
                raise ConfigError(f"{node.host}: {answer['what']}", answer["seen"], answer["do"])
            report = NodeReport(
                node.rank,
                answer["slots"],
                answer["toolkit"],
                answer["mpi"],
                address,
                answer["clock"] - middle,
                Outcome(*answer["broken"]) if answer["broken"] else None,
                Interface(*answer["interface"]) if answer["interface"] else None,
                tuple(answer["interfaces"]),
                answer["attempt"],
            )
            local = connection.getsockname()[0]
            return Session(node, client, channel, report, intake, early, local)
        except BaseException as error:
            if client is not None:
                client.close()
            if attempt.connection is not None:
                attempt.connection.close()
            raise _explained(error, address) from None


def _known(text: str) -> paramiko.HostKeys:
    """The host keys of a known_hosts file. Raises ConfigError that names the line that is none."""
    hosts = paramiko.HostKeys()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        entry, good = None, len(words) > 2 and not words[0].startswith("@")  # a marker would change what the key means
        try:
            entry = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(words)) if good else None
        except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
            good = False
        if not good:
            seen = f"line {number}: {codec.one_line(line.strip(), 80)}"
            raise ConfigError("ssh.known_hosts cannot be read", seen, "make each line: HOST ssh-ed25519 KEY")
        if entry and entry.key:
            for name in entry.hostnames:
                hosts.add(name, entry.key.get_name(), entry.key)
    return hosts


def _named(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{host} ({state})" for host, state in missing.items())


def _first_answer(
    channel: paramiko.Channel, intake: codec.Intake, address: str
) -> tuple[codec.Message, list[codec.Message]]:
    """The answer to our question, and what has come after it."""
    while True:
        data = channel.recv(65536)
        if not data:
            said = channel.recv_stderr(4096) if channel.recv_stderr_ready() else b""
            words = codec.one_line(said.decode(errors="replace").strip(), WORDS)
            raise Unready(f"no attendant at {address}{': ' + words if words else ''}")
        messages = intake.feed(data, time.monotonic())
        for number, message in enumerate(messages, start=1):
            if message["kind"] == "busy":
                raise Unready("another leader has it")
            if message["kind"] in ("facts", "refuse"):
                return message, messages[number:]


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


def _explained(error: BaseException, address: str) -> BaseException:
    """What went wrong in an attempt, for people."""
    if isinstance(error, (Unready, ConfigError)):
        return error
    words = codec.one_line(str(error) or type(error).__name__)
    # paramiko calls a login that took too long, or was cut off, one that failed; only this one is sshd's own word.
    if isinstance(error, paramiko.BadAuthenticationType) or words == "Authentication failed.":
        return Unready(f"our key is refused by {address}", refused=True)
    if isinstance(error, codec.Invalid):
        return Unready(f"{address} says what no node of this job does: {words}")
    if isinstance(error, paramiko.SSHException):
        return Unready(f"no ssh login at {address}: {words}")
    if isinstance(error, TimeoutError):
        return Unready(f"sshd at {address} is slow to answer")
    if isinstance(error, (OSError, EOFError)):
        return Unready(f"sshd at {address} closed the connection")
    if isinstance(error, Exception):
        return Unready(f"no ssh login at {address}: {type(error).__name__}: {words}")
    return error
