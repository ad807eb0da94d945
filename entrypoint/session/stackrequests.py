"""`entrypoint stacks`: a socket in the run directory on which it asks the running entrypoint what
the ranks do. Only the user of the boot, and root, can open the run directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from entrypoint.errors import EntrypointError, UnavailableError
from entrypoint.system.files import RunDir
from entrypoint.text import one_line

NAME = "stacks"  # of the socket
_WAITING = 8  # requests at a time
_MOST = 1 << 18  # bytes of an answer
_LONGEST = 1000  # characters of a line
_PATIENCE = 40.0  # seconds until a request is given up: the leader waits for 15 s


class StackRequests:
    """Requests that wait for their answer. `wanted` is called for the first one."""

    def __init__(self, run_dir: RunDir, wanted: Callable[[], object]) -> None:
        self._wanted = wanted
        self._waiting: list[socket.socket] = []
        self._listener: socket.socket | None = None
        # A full disk costs this command, and never the job.
        with contextlib.suppress(EntrypointError, OSError):
            self._listener = run_dir.bind(NAME)
            self._listener.setblocking(False)
            self._listener.listen(8 * _WAITING)
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            request, _ = self._listener.accept()
        except OSError:  # it has gone already
            return
        credentials = request.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        user = struct.unpack("3i", credentials)[1]
        if user not in (0, os.geteuid()) or len(self._waiting) >= _WAITING:
            request.close()
            return
        request.setblocking(False)
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._wanted()

    def answer(self, lines: Sequence[str], why: str = "") -> None:
        """Answer all requests: with the lines, or with why there are none."""
        data = json.dumps({"lines": lines, "why": why}).encode()
        for request in self._waiting:
            with contextlib.suppress(OSError):  # it has gone, or does not read
                request.send(data)
            request.close()
        self._waiting.clear()

    def close(self) -> None:
        self.answer((), "the entrypoint ends")
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()


def ask(run_dir: Path) -> list[str]:
    """Return what the entrypoint of this run directory says of its ranks.

    Raises UnavailableError if it does not answer, or cannot say anything.
    """
    hint = "make sure that ranks run: entrypoint status"
    data = b""
    try:
        folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as request:
                request.settimeout(_PATIENCE)
                request.connect(f"/proc/self/fd/{folder}/{NAME}")
                while len(data) <= _MOST and (piece := request.recv(_MOST)):
                    data += piece
        finally:
            os.close(folder)
    except OSError as error:
        detail = f"{run_dir}: {error.strerror or error}"
        raise UnavailableError("EP038 stacks cannot be read", detail, hint) from None
    try:
        answer = json.loads(data)
        lines, why = answer["lines"], answer["why"]
        if lines and all(isinstance(line, str) for line in lines):
            return [one_line(line, _LONGEST) for line in lines]
    except (ValueError, TypeError, LookupError):
        why = "the entrypoint has ended, or is another version"
    raise UnavailableError("EP038 stacks cannot be read", one_line(str(why), _LONGEST), hint)
