"""`entrypoint stacks` asks the running entrypoint of its node what the ranks do: whoever of this
user connects to the socket in the run directory asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from entrypoint.base.errors import UnavailableError
from entrypoint.base.text import from_json, one_line
from entrypoint.system.descriptors import at
from entrypoint.system.files import RunDir

_NAME = "node"  # of the socket in the run directory
_REQUESTS = 16  # that wait for an answer; beyond that the oldest gets none
_PAUSE = 1.0  # seconds until connections are accepted again, if no file handle was left
_MOST = 1 << 18  # bytes of an answer
_LONGEST = 1000  # characters of a line
_PATIENCE = 40.0  # seconds until a request is given up: the leader waits for 15 s


class StackRequests:
    """Requests that wait for their answer. `wanted` is called for the first one. Nothing that they
    send is read. Raises CantCreateError if the socket cannot be created."""

    def __init__(self, run_dir: RunDir, wanted: Callable[[], object]) -> None:
        self._wanted = wanted
        self._waiting: deque[socket.socket] = deque()
        self._loop = asyncio.get_running_loop()
        self._socket = run_dir.bind(_NAME)
        self._socket.listen(_REQUESTS)
        self._socket.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            request = self._socket.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # no file handle is left
            self._loop.remove_reader(self._socket)
            self._loop.call_later(_PAUSE, self._listen)
            return
        credentials = request.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
            request.close()
            return
        self._waiting.append(request)
        if len(self._waiting) > _REQUESTS:
            self._waiting.popleft().close()
        if len(self._waiting) == 1:
            self._wanted()

    def answer(self, lines: Sequence[str], why: str = "") -> None:
        """Answer all requests: with the lines, or with why there are none."""
        data = json.dumps({"lines": lines, "why": why})
        for request in self._waiting:
            request.setblocking(False)  # it may be gone, or not read
            with request, contextlib.suppress(OSError):
                request.send(f"{data}\n".encode())
        self._waiting.clear()

    def close(self) -> None:
        """Take no more requests; those that wait are told so."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self.answer((), "the entrypoint ends")


def ask(run_dir: Path) -> list[str]:
    """Return what the entrypoint of this run directory says of its ranks.

    Raises UnavailableError if it does not answer, or cannot say anything.
    """
    data = b""
    try:
        with _connected(run_dir) as request:
            while data[-1:] != b"\n" and len(data) <= _MOST and (piece := request.recv(_MOST)):
                data += piece
        answer = from_json(data)
        lines, why = answer["lines"], answer["why"]
        if lines and all(isinstance(line, str) for line in lines):
            return [one_line(line, _LONGEST) for line in lines]
    except OSError as error:
        why = f"{run_dir}: {error.strerror or error}"
    except (ValueError, TypeError, LookupError):
        why = "the entrypoint has ended, or is another version"
    hint = "make sure that ranks run: entrypoint status"
    raise UnavailableError("EP038 stacks cannot be read", one_line(str(why), _LONGEST), hint)


def _connected(run_dir: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_PATIENCE)
    try:
        at(run_dir, _NAME, connection.connect)
    except OSError:
        connection.close()
        raise
    return connection
