"""This node's state for others: a socket in the run directory that answers; metrics where the spec asks for them.

A socket and no file: it costs nothing while nobody asks, its answer is always fresh, and a frozen entrypoint shows by
giving none. How a boot ended is in its result's file (result.py). What asks is record/status.py, or any client of HTTP:
`curl --unix-socket RUN_DIR/entrypoint.sock http://here/status`, or /metrics.

Nothing here may hold up the job or end it: all is bounded in time, size and number, and a failure is a warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from entrypoint.model import Outcome, Plan
from entrypoint.output.log import Logger
from entrypoint.record.nodes import SOCKET, NodeTable
from entrypoint.secret import scrubbed
from entrypoint.spec import JobSpec

_TOGETHER = 8  # connections that are answered at a time; more wait in the kernel
_QUEUE = 64  # connections that may wait
_PATIENCE = 5.0  # seconds for one of them
_REQUEST = 8192  # bytes of one
_RETRY = 1.0  # seconds until a listener that found no free file handle tries again


class JobView(Protocol):
    """What is read of the leader or worker itself."""

    attempt: int

    @property
    def outcome(self) -> Outcome | None: ...


class State:
    """What others may know of this attempt, and where they can ask for it."""

    def __init__(
        self, spec: JobSpec, draft: Plan, machine: JobView, run_dir: Path, idle: Callable[[], float], log: Logger
    ) -> None:
        """`idle`: seconds since this node's ranks printed something."""
        self._spec, self._draft, self._machine, self._run_dir = spec, draft, machine, run_dir
        self._idle, self._log = idle, log
        self._board = NodeTable(draft, time.monotonic())
        self._doors: list[_Door] = []
        self._wrong = False

    def saw(self, event: Any, wanted: list[Any], now: float) -> list[Any]:
        """Note what the machine was told, and what it wants done, which is returned."""
        try:
            self._board.saw(event, wanted, now)
        except Exception as error:  # a view that is wrong must not end a job that is right
            if not self._wrong:
                self._wrong = True
                seen = f"{type(error).__name__}: {error}"
                self._log(f"warning: EP902 internal error: {seen} | status and metrics may be wrong; the job goes on")
        return wanted

    def open(self) -> None:
        """Answer from now on, and serve metrics where the spec asks for them."""
        metrics = self._spec.metrics
        try:
            self._doors.append(_Door(_private(self._run_dir), self._answer))
        except OSError as error:
            self._log(
                f"warning: EP034 `entrypoint status` cannot ask here | {self._run_dir}: {error.strerror or error}"
            )
        if metrics.port is not None:
            self._serve(metrics.address, metrics.port)

    def _serve(self, address: str, port: int) -> None:
        try:
            self._doors.append(_Door(_listening(address, port), self._answer_strangers))
        except OSError as error:
            do = "set another metrics.port or metrics.address; the job goes on"
            self._log(f"warning: EP035 no metrics are served | {address} port {port}: {error.strerror or error} | {do}")
            return
        if not (address.startswith("127.") or address == "::1"):
            seen = f"whoever reaches {address} port {port} reads the names of job and nodes, and how they are"
            self._log(f"warning: EP036 metrics are open to others | {seen} | metrics.address 127.0.0.1 keeps them here")

    # -- answers

    def _snapshot(self) -> dict[str, Any]:
        return self._board.snapshot(time.monotonic(), self._machine.attempt, self._machine.outcome, self._idle())

    def _status(self) -> str:
        """As JSON, without the values of secrets."""
        import json  # not needed before somebody asks

        shown = self._snapshot()
        places = [(each, "detail") for each in shown["nodes"]]
        places += [(shown["outcome"], "reason")] if shown["outcome"] else []
        # Once for all texts: to look for secrets in each by itself takes the leader of 1000 nodes 0.1 s and more.
        texts = scrubbed("\0".join(each[name].replace("\0", " ") for each, name in places), os.environ).split("\0")
        for (each, name), text in zip(places, texts, strict=True):
            each[name] = text
        return json.dumps(shown) + "\n"

    def _metrics(self) -> str:
        from entrypoint.record import metrics  # no message is in them

        return metrics.text(self._snapshot(), len(self._draft.topology.nodes), self._log.lost)

    def _answer(self, path: str) -> tuple[str, str] | None:
        return ("application/json", self._status()) if path == "/status" else self._answer_strangers(path)

    def _answer_strangers(self, path: str) -> tuple[str, str] | None:
        if path != "/metrics":
            return None
        from entrypoint.record.metrics import CONTENT_TYPE

        return CONTENT_TYPE, self._metrics()

    def close(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):
            os.unlink(self._run_dir / SOCKET)  # first, so that nobody takes us for killed
        for door in self._doors:
            door.close()


class _Door:
    """A socket that answers `GET PATH`. It takes few connections at a time, so it never uses up our file handles."""

    def __init__(self, listener: socket.socket, answer: Callable[[str], tuple[str, str] | None]) -> None:
        self._listener, self._answer = listener, answer
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return  # it went away
        except OSError:  # no file handle is left: look again later, and not at once for ever
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_RETRY, self._more)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._open.add(task)
        if len(self._open) >= _TOGETHER:
            self._loop.remove_reader(self._listener)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._more()

    def _more(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    async def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._exchange(connection), _PATIENCE)

    async def _exchange(self, connection: socket.socket) -> None:
        request = b""
        while b"\n\r\n" not in request and b"\n\n" not in request and len(request) < _REQUEST:
            if not (data := await self._loop.sock_recv(connection, _REQUEST)):
                return
            request += data
        await self._loop.sock_sendall(connection, self._reply(request))

    def _reply(self, request: bytes) -> bytes:
        """The whole answer, head and body."""
        method, _, rest = request.split(b"\n")[0].decode("latin-1").partition(" ")
        path = rest.split(" ")[0].partition("?")[0]
        status, kind, body = "200 OK", "text/plain", ""
        if len(request) >= _REQUEST:
            status = "431 Request Header Fields Too Large"
        elif method != "GET":
            status = "405 Method Not Allowed"
        else:
            try:
                found = self._answer(path)
            except Exception as error:  # nobody's question may end the job
                status, body = "500 Internal Server Error", f"{type(error).__name__}: {error}\n"
            else:
                status, (kind, body) = ("200 OK", found) if found else ("404 Not Found", (kind, "not here\n"))
        content = body.encode("utf-8", "backslashreplace")
        allow = "Allow: GET\r\n" if status.startswith("405") else ""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{allow}"
        return f"{head}Connection: close\r\n\r\n".encode() + content

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for task in self._open:
            task.cancel()


def _private(run_dir: Path) -> socket.socket:
    """A socket in the run directory, for this user alone. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(run_dir / SOCKET)  # of an entrypoint that was killed: the directory's lock is ours
        listener.bind(str(run_dir / SOCKET))  # 107 bytes at most, and a run directory has 90
        os.chmod(run_dir / SOCKET, 0o600)
        listener.listen(_QUEUE)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _listening(host: str, port: int) -> socket.socket:
    """A TCP socket. Raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the next attempt takes it again
        listener.bind((host, port))
        listener.listen(_QUEUE)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
