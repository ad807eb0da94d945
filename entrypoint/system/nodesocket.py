"""The socket in the run directory through which processes of this node report to its entrypoint,
and ask it.

Each line is a JSON array of a name and its value. The first line names the sender's kind:

    ["rank", 3]            a supervisor, then its reports (ranks/reports.py)
    ["program-rank", 3]    the same, of a rank that a program of this node has started
    ["stacks", null]       `entrypoint stacks` (session/stackrequests.py)

Any program of the job may connect. The kernel identifies the process at the other end, so none can
report in the name of another. Nothing here waits for a process, and what is kept of one is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from entrypoint.base.text import from_json
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir
from entrypoint.system.nodeclient import NAME

_WAITING = 4096  # connections that may wait to be accepted; the kernel may allow fewer
UNKNOWN = 256  # connections that are kept without a handler; beyond that the oldest one is closed
_PAUSE = 1.0  # seconds until connections are accepted again, if no file handle was left
_LONGEST = 1 << 18  # bytes of a line

Handler = Callable[[str, Any], object]  # of the name and the value of a line
# Judges a process by the value of its first line, and gives its connection a handler to accept it.
Begin = Callable[["Connection", Any], object]


class Connection:
    """A process that has connected."""

    kind = ""  # until its first line has come
    handler: Handler | None = None  # of its other lines; None: not accepted as its kind
    rest = b""  # the beginning of the next line

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        credentials = accepted.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        self.pid: int = struct.unpack("3i", credentials)[0]
        self.user: int = struct.unpack("3i", credentials)[1]
        self.lines: deque[bytes] = deque()  # received, but not handled

    def send(self, data: bytes) -> None:
        """Send what can be sent at once: the process may be gone, or not read."""
        with contextlib.suppress(OSError):
            self.socket.send(data)


class NodeSocket:
    """The listener.

    Raises CantCreateError if the socket cannot be created.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._loop = asyncio.get_running_loop()
        self.kinds: dict[str, Begin] = {}  # what judges the processes of each kind
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._socket = run_dir.bind(NAME)
        self._socket.listen(_WAITING)
        self._socket.setblocking(False)
        self._listen()

    def read(self, kind: str = "") -> None:
        """Handle all lines that processes have sent so far; those of one kind alone if given."""
        self._accept()
        for connection in list(self._connections):
            if not connection.kind:
                self._receive(connection)
            if kind in ("", connection.kind) and connection.handler:
                self._receive(connection)
                self._handle(connection)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_WAITING):
            try:
                accepted = self._socket.accept()[0]
            except BlockingIOError:
                return
            except OSError:  # no file handle is left
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_PAUSE, self._listen)
                return
            connection = Connection(accepted)
            if connection.user not in (0, os.geteuid()):
                accepted.close()
                continue
            accepted.setblocking(False)
            self._loop.add_reader(accepted, self._receive, connection)
            self._connections[connection] = None
            self._receive(connection)
            unknown = [other for other in self._connections if other.handler is None]
            if len(unknown) > UNKNOWN:
                self._close(unknown[0])

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, connection.rest = (connection.rest + data).split(b"\n")
        connection.lines += lines
        if not connection.kind and connection.lines:
            self._begin(connection)
        if connection.lines:
            self._loop.call_soon(self._handle, connection)
        if not data or len(connection.rest) > _LONGEST:
            self._close(connection)

    def _begin(self, connection: Connection) -> None:
        connection.kind, value = _parsed(connection.lines.popleft())
        begin: Begin = self.kinds.get(connection.kind, ignore)
        begin(connection, value)
        if connection.handler is None:  # rejected, but a supervisor takes a close for our end
            connection.lines.clear()
            self._loop.remove_reader(connection.socket)

    def _handle(self, connection: Connection) -> None:
        while connection.lines and connection.handler:
            connection.handler(*_parsed(connection.lines.popleft()))

    def _close(self, connection: Connection) -> None:
        if connection.socket.fileno() >= 0:
            self._connections.pop(connection, None)
            self._loop.remove_reader(connection.socket)
            connection.socket.close()

    def close(self) -> None:
        """Close all connections: processes that still hold one consider this process gone."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for connection in list(self._connections):
            connection.lines.clear()
            self._close(connection)


def ignore(*_: Any) -> None:
    """Handle a line that means nothing."""


def _parsed(line: bytes) -> tuple[str, Any]:
    """Return the name and the value of a line; a name that means nothing if it is not valid."""
    with contextlib.suppress(ValueError, TypeError):
        name, value = from_json(line)
        return str(name), value
    return "invalid", None
