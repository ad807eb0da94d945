"""The worker's side of the roll call: the endpoint of the leader's ssh session.

sshd starts the script `attend` in each session, which writes its process id into a named pipe and
waits to be ended. The endpoint opens the pipes between sshd and the script a second time, by /proc,
so no process has to pass bytes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import stat
import time
from collections.abc import Callable, Coroutine, Set
from io import FileIO
from typing import Any

from entrypoint import __version__
from entrypoint.base.text import Log, one_line
from entrypoint.base.values import dataclass, field, replace
from entrypoint.base.wire import Invalid
from entrypoint.job import messages
from entrypoint.session import codec
from entrypoint.session.callin import Desk
from entrypoint.system import proc
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir

# The session's streams in `attend`.
_FROM = 3
_TO = 4
_UNSENT = 8 * 1024 * 1024  # bytes kept for a leader that does not read
_LOGGED = 20  # rejected sessions in the log
# Bytes that are read at once of what announces sessions: whoever else writes there, such as a rank,
# delays this node's other work by so little.
_ANNOUNCED = 256
_DIGITS = 7  # of the kernel's largest process id, 4194304
FILES = "attend", "attend.sessions", "attend.end"  # in the run directory
_WORDS = 40  # characters in it of what a caller says

# A pipe that is opened for both directions does not block if the entrypoint is gone: `read` returns
# at once. The session's streams are moved first: a redirection of `echo` or `read` would take their
# numbers for a moment.
_ATTEND = """#!/bin/sh
# Runs in each session of sshd, says so, and stays until the entrypoint ends it.
# The entrypoint does the talking.
if [ ! -p /proc/$$/fd/0 ] || [ ! -p {sessions} ] || [ ! -p {end} ]; then
  echo "no entrypoint at work, or an sshd that gives its sessions no pipes" >&2
  exit 1
fi
exec 3<&0 4>&1 5<>{end} 0<{end} 5>&- 1<>{sessions}
echo $$
read -r end
"""


@dataclass
class Endpoint:
    """The control endpoint, with one session at a time."""

    on_message: Callable[[Any], None]
    on_lost: Callable[[str], None]
    # returns, for the first message of a new session, why this node does not take it, or "" if it
    # does, instead of the current one: a leader that calls again has lost its session
    busy: Callable[[Any], str]
    hosts: tuple[str, ...]  # of this node's job
    log: Log
    background: Callable[[Coroutine[Any, Any, None]], object]  # runs a coroutine
    desk: Desk | None = None  # answers nodes that call in
    _rejected: set[str] = field(default_factory=set)  # what was logged of rejected calls
    _session: _Session | None = None
    _part = b""  # of a line that announces a session
    _pipes: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def open(self, run_dir: RunDir) -> None:
        """Write the script that sshd starts in each session, and its pipes.

        Raises CantCreateError if the disk is full or read-only.
        """
        # Only this copy is open for writing, so that closing it ends every `attend`.
        self._pipes.callback(os.close, run_dir.pipe("attend.end"))
        self._announced = run_dir.pipe("attend.sessions")
        self._pipes.callback(os.close, self._announced)
        names = {
            name: shlex.quote(str(run_dir.path / f"attend.{name}")) for name in ("sessions", "end")
        }
        run_dir.write("attend", _ATTEND.format_map(names), 0o700)

    def listen(self, sshd: int) -> None:
        """Serve the sessions of the sshd with this process id, also those that have begun."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._announced, self._begin, sshd)
        self._pipes.callback(loop.remove_reader, self._announced)

    def _begin(self, sshd: int) -> None:
        """Serve what is announced, if it is below sshd: any process of this user can write here."""
        *lines, part = (self._part + os.read(self._announced, _ANNOUNCED)).split(b"\n")
        self._part = part[:_ANNOUNCED]
        for line in lines:
            if line.isdigit() and len(line) <= _DIGITS and proc.is_below(int(line), sshd):
                self.background(self._serve(_Session(int(line))))

    async def _serve(self, session: _Session) -> None:
        kinds = {**codec.BY_LEADER, **(codec.BY_CALLER if self.desk else {})}
        intake = codec.Intake(kinds, codec.TO_WORKER, time.monotonic(), __version__)
        taken = False
        try:
            await session.open()
            while data := await session.reader.read(CHUNK):
                for arrived in intake.feed(data, time.monotonic()):
                    if self.desk and isinstance(arrived, messages.CallIn):
                        self.desk.take(arrived, session)
                        continue
                    if (message := self._with_hosts(arrived)) is None:
                        session.send(codec.pack(messages.HostsWanted()))
                        continue
                    if not taken:
                        if reason := self.busy(message):
                            session.send(codec.pack(messages.Taken(reason)))
                            self._log_rejected(session.caller, message, reason)
                            return
                        if self._session is not None:
                            self._session.close()
                        self._session = session
                        taken = True
                    if self._session is session:
                        self._hear(session, message)
        except Invalid as error:
            session.reason = f"it sent an invalid message: {error}"
        except OSError:  # it ended before it was opened
            pass
        finally:
            session.close()
            if self.desk:
                self.desk.leave(session)
        if self._session is session:
            self._session = None
            if not session.is_over:
                self.on_lost(session.reason)

    def _hear(self, session: _Session, message: Any) -> None:
        """Pass a message on. A leader's next hello begins the next attempt, and so ends this one;
        what else comes between two attempts is of neither."""
        if isinstance(message, messages.Hello):
            if session.is_greeted and not session.is_over:
                session.is_over = True
                self.on_lost("")
            if session.is_over and self.busy(message):  # with the attempt that is over
                session.next_hello = message
                return
            session.is_greeted = True
            session.is_over = False
        if not session.is_over:
            self.on_message(message)

    def end_attempt(self, keeps: bool) -> None:
        """This node's attempt is over. `keeps`: its leader may begin the next one in this
        session."""
        if self._session is not None:
            self._session.is_over = True
            if not keeps:
                self._session.close()
                self._session = None

    def begin_attempt(self) -> None:
        """Another attempt can answer its leader."""
        session = self._session
        if session is not None and session.next_hello is not None:
            hello, session.next_hello = session.next_hello, None
            self._hear(session, hello)

    def processes(self, sshd: int) -> Set[int]:
        """Return the processes of the leader's session, and sshd above them."""
        below = proc.line_of(self._session.pid, sshd) if self._session else ()
        return {sshd, *below}

    def _with_hosts(self, message: Any) -> Any:
        """Return a message, with this node's hosts if it has their digest; None if it has
        another."""
        if not isinstance(message, messages.Hello) or not message.digest:
            return message
        if message.digest != codec.digest(self.hosts):
            return None
        return replace(message, hosts=self.hosts, digest="")

    def _log_rejected(self, caller: str, first: Any, reason: str) -> None:
        """Log once who has called although this node has a leader, and what it said."""
        said = messages.kind_of(type(first))
        if isinstance(first, messages.Hello):
            said = f"{said} of leader {one_line(first.leader, _WORDS)} to node {first.rank}"
        words = f"rejected a second session, of {caller}, which says {said}: {reason}"
        if words not in self._rejected and len(self._rejected) < _LOGGED:
            self._rejected.add(words)
            self.log(words)

    def send(self, message: Any) -> None:
        """Send a message to the leader; without a session of this attempt it is dropped."""
        if self._session is not None and not self._session.is_over:
            self._session.send(codec.pack(message))

    @property
    def has_session(self) -> bool:
        """Return whether a leader has a session of this attempt here."""
        return self._session is not None and not self._session.is_over

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._pipes.close()


class _Session:
    """One ssh session: the pipes between sshd and the `attend` script that it has started."""

    _pipe = 0
    _source: asyncio.ReadTransport | None = None
    _sink: asyncio.WriteTransport | None = None
    reason = "its session ended"  # if nothing else ends it
    is_greeted = False  # whether a leader has begun an attempt in it
    is_over = False  # whether that attempt is over
    next_hello: messages.Hello | None = None  # with which it has begun another one

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.reader = asyncio.StreamReader()  # of what the leader sends

    async def open(self) -> None:
        """Open both pipes. Raises OSError if the process, or sshd's end of a pipe, is gone."""
        loop = asyncio.get_running_loop()
        source = self._opened(_FROM, os.O_RDONLY)
        self._pipe = os.fstat(source.fileno()).st_ino
        self._source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), source
        )
        self._sink, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, self._opened(_TO, os.O_WRONLY)
        )

    def _opened(self, number: int, flags: int) -> FileIO:
        """Return a new open file of the pipe: non-blocking, while the process's own still
        blocks."""
        path = f"/proc/{self.pid}/fd/{number}"
        file = FileIO(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        if not stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(f"file {number} of process {self.pid} is no pipe")
        return file

    def send(self, data: bytes) -> None:
        """Send data, or keep what sshd does not take now. Too much of it ends the session."""
        if self._sink is None or self._sink.is_closing():
            return
        if self._sink.get_write_buffer_size() + len(data) > _UNSENT:
            self.reason = "it does not read what we say"
            self._sink.abort()
            self.close()
        else:
            self._sink.write(data)

    @property
    def caller(self) -> str:
        """The address from which the session came, as sshd tells its programs."""
        with contextlib.suppress(OSError, LookupError):
            variables = proc.variables(proc.content(self.pid, "environ"))
            address, _, _ = variables[b"SSH_CONNECTION"].partition(b" ")
            return one_line(address.decode(errors="replace"), _WORDS)
        return "an unknown address"

    def close(self) -> None:
        """Close the session; bytes already sent still arrive."""
        for transport in (self._source, self._sink):
            if transport is not None:
                transport.close()
        with contextlib.suppress(OSError):  # the process has ended
            # The same pipe proves that the id was not reused by another process.
            if os.stat(f"/proc/{self.pid}/fd/{_FROM}").st_ino == self._pipe:
                os.kill(self.pid, signal.SIGKILL)
