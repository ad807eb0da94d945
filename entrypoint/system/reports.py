"""How processes of this node report through the run directory, one line at a time: by a named pipe,
or by a socket. The kernel identifies the process at the other end of a socket, so no process can
report in the name of another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable

from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir

HEARD = b"\n"  # the answer to a process: it was inspected while it existed
_WAITING = 4096  # connections that may wait to be accepted; the kernel may allow fewer


class PipeListener:
    """Reader of the pipe of this name in the run directory: `ready` is called when there are lines
    to `take`.

    Of a line without an end, only the first CHUNK bytes are kept.

    Raises CantCreateError if the pipe can't be created.
    """

    def __init__(self, run_dir: RunDir, name: str, ready: Callable[[], object]) -> None:
        self._pipe = run_dir.pipe(name)
        self._rest = b""
        asyncio.get_running_loop().add_reader(self._pipe, ready)

    def take(self) -> list[bytes] | None:
        """Read once, and return the lines that end in these bytes, maybe none; None if the pipe is
        empty."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._pipe, CHUNK)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:CHUNK]
        return lines if data else None

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)


class ReportingProcess:
    """A process that has connected: its pid, and the lines it has sent that were not read yet."""

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self.connection = connection
        self._longest = longest
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        self.pid: int = struct.unpack("3i", credentials)[0]
        self._rest = b""
        self.over = False  # no process holds the other end any more

    def take(self) -> list[bytes]:
        """Return the lines that have arrived. Of a line without an end, only the first `longest`
        bytes are kept."""
        lines: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while not self.over:
                try:
                    data = self.connection.recv(CHUNK)
                except ConnectionError:
                    data = b""
                self.over = not data
                *whole, rest = (self._rest + data).split(b"\n")
                lines += whole
                self._rest = rest[: self._longest]
        return lines

    def answer(self) -> None:
        """Tell the process that it was inspected."""
        with contextlib.suppress(OSError):
            self.connection.send(HEARD)

    def close(self) -> None:
        self.connection.close()


class Reports:
    """Listener on the socket of this name in the run directory: `ready` is called when there are
    lines to `take`.

    Raises CantCreateError if the socket cannot be created.
    """

    def __init__(
        self, run_dir: RunDir, name: str, ready: Callable[[], object], longest: int
    ) -> None:
        self._ready = ready
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._socket = run_dir.bind(name)
        self._reporters: list[ReportingProcess] = []
        self._socket.listen(_WAITING)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, ready)

    def take(self) -> list[tuple[ReportingProcess, list[bytes]]]:
        """Return the processes that have reported since the last call, and their lines."""
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._socket.accept()
                connection.setblocking(False)
                self._reporters.append(ReportingProcess(connection, self._longest))
                self._loop.add_reader(connection, self._ready)
        taken = [(reporter, reporter.take()) for reporter in self._reporters]
        for reporter, _ in taken:
            if reporter.over:
                self._drop(reporter)
        self._reporters = [reporter for reporter in self._reporters if not reporter.over]
        return [(reporter, lines) for reporter, lines in taken if lines]

    def _drop(self, reporter: ReportingProcess) -> None:
        self._loop.remove_reader(reporter.connection)
        reporter.close()

    def close(self) -> None:
        """Close all connections: processes that still hold one consider this process gone."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for reporter in self._reporters:
            self._drop(reporter)
