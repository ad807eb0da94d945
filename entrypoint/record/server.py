"""The server of this node's metrics, if the spec has a port for them: it answers `GET /metrics`.

It serves one request at a time, in a daemon thread, so that no request delays or ends the job.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from entrypoint.record.metrics import CONTENT_TYPE

_RETRY = 1.0  # seconds until it accepts again after this process had no free file handle


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "entrypoint"
    sys_version = ""
    timeout = 5.0  # seconds in which something must arrive or be read

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        try:
            body = self.server.metrics().encode("utf-8", "backslashreplace")
        except Exception as error:  # also between two attempts, which have an event loop each
            self.send_error(503, explain=f"{type(error).__name__}: {error}")
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the job's log."""


class MetricsServer(socketserver.TCPServer):
    """A port that answers `GET /metrics` with what `metrics` returns; it stays open between
    attempts.

    `http.server.HTTPServer` would look up the name of the address, which may take long.
    """

    allow_reuse_address = True  # by a job that follows
    request_queue_size = 64

    def __init__(self, address: str, port: int, metrics: Callable[[], str]) -> None:
        """Serve this port from now on. Raises OSError."""
        self.metrics = metrics
        self._never = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)
        threading.Thread(target=self.serve_forever, args=(None,), daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            self._never.wait(_RETRY)  # no free file handle: do not try again at once
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has disconnected or is too slow."""
