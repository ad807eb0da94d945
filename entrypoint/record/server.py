"""The server of this node's metrics, if the spec has a port for them: it answers `GET /metrics`.

Nothing here may delay or end the job: time, size and number of requests are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

_TOGETHER = 8  # connections that are served at a time; more wait in the kernel
_QUEUE = 64  # connections that may wait
_PATIENCE = 5.0  # seconds for one request
_REQUEST = 8192  # size limit of a request
_RETRY = 1.0  # seconds until the listener accepts again after it had no free file handle


class MetricsServer:
    """A port that answers `GET /metrics`, for few connections at a time, so that it never uses up
    the file handles."""

    def __init__(self, listener: socket.socket, metrics: Callable[[], str]) -> None:
        """Serve this port until the end of the attempt; requests wait for the next one."""
        self._metrics = metrics
        self._listener = listener
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Task[None]] = set()
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return  # the client has disconnected
        except OSError:  # no free file handle: retry later instead of in a busy loop
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
        if not self._is_closed:
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
        """Return the whole answer, head and body."""
        from entrypoint.record.metrics import CONTENT_TYPE

        method, _, rest = request.split(b"\n")[0].decode("latin-1").partition(" ")
        path = rest.split(" ")[0].partition("?")[0]
        kind = "text/plain"
        body = ""
        if len(request) >= _REQUEST:
            status = "431 Request Header Fields Too Large"
        elif method != "GET":
            status = "405 Method Not Allowed"
        elif path != "/metrics":
            status = "404 Not Found"
            body = "not here\n"
        else:
            try:
                body = self._metrics()
            except Exception as error:  # no request may end the job
                status = "500 Internal Server Error"
                body = f"{type(error).__name__}: {error}\n"
            else:
                status = "200 OK"
                kind = CONTENT_TYPE
        content = body.encode("utf-8", "backslashreplace")
        allow = "Allow: GET\r\n" if status.startswith("405") else ""
        length = len(content)
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}"
        return f"{head}Connection: close\r\n\r\n".encode() + content

    def close(self) -> None:
        """Close all connections; the port stays."""
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        for task in self._open:
            task.cancel()


def listening(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens there. Raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # a job that follows uses it again
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_QUEUE)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
