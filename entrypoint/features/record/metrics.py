"""The state of a boot as Prometheus text, version 0.0.4, and its server, if the spec has a port for
it.

Names and units are by https://prometheus.io/docs/practices/naming/; no value comes from a variable
or a command line. The server answers in daemon threads, so that no request delays another one, or
the job.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from entrypoint.base.phases import STATUSES, UNREACHABLE
from entrypoint.base.tables import table
from entrypoint.features.record.content import JobStatus, TimeSpent

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_CLIENTS = 256  # at once; each has two threads, and its request ends after 5 s
_RETRY = 1.0  # seconds until it accepts again after this process had no free file handle

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

# Name -> help text. docs/how-to/metrics.md has the same table.
METRICS = table("""
    entrypoint_info                  | Always 1; its labels say what this is.
    entrypoint_nodes                 | Nodes of the job.
    entrypoint_node_up               | Whether this node reaches that node: 1, or 0 where it is \
        missing or lost.
    entrypoint_phase                 | 1 for the phase that this node is in, 0 for all others.
    entrypoint_phase_seconds         | How long a node has been in its phase, in seconds.
    entrypoint_heartbeat_age_seconds | Seconds since another node was last heard.
    entrypoint_ranks                 | Ranks, or programs, that a node has started, by whether \
        they run or have ended.
    entrypoint_idle_seconds          | Seconds since a rank of a node printed something.
    entrypoint_up_seconds            | Seconds since this attempt of the boot began.
    entrypoint_boot_seconds          | Seconds from then until the ranks of this node ran.
    entrypoint_attempt               | The attempt that this is: 1, and one more for each restart.
    entrypoint_job_seconds           | Seconds of the job, over all attempts, by part.
    entrypoint_effective_ratio       | The share of them in which it trained and kept the result.
    entrypoint_cause_seconds         | Seconds that failed attempts have cost, by cause and part.
    entrypoint_blamed_seconds        | The same by the node that was to blame.
    entrypoint_log_lines_lost_total  | Lines of the toolkit that nobody could read.
    entrypoint_exit_status           | The job's exit status, once it is known.
""")


def text(status: JobStatus, lost_lines: int) -> str:
    """Return all metrics. `lost_lines`: lines of our log that could not be written."""
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    for name, labels, value in _samples(status, lost_lines):
        pairs = (
            f'{label}="{text.translate(_ESCAPES)}"'
            for label, text in {"job": status.job, **labels}.items()
        )
        samples[name].append(f"{name}{{{','.join(pairs)}}} {value:.15g}\n")
    return "".join(
        f"# HELP {name} {help_text}\n# TYPE {name} {kind_of(name)}\n{''.join(samples[name])}"
        for name, help_text in METRICS.items()
        if samples[name]
    )


def kind_of(name: str) -> str:
    """Return the type of a metric, by the naming rules of Prometheus: only a counter's name ends
    with `_total`."""
    return "counter" if name.endswith("_total") else "gauge"


def _samples(status: JobStatus, lost_lines: int) -> Iterator[tuple[str, dict[str, str], float]]:
    me = {"node": status.node}
    yield "entrypoint_info", {**me, "launcher": status.launcher, "version": status.toolkit}, 1
    for phase in STATUSES:
        yield "entrypoint_phase", {**me, "phase": phase}, phase == status.phase
    for node in status.nodes:
        # Several nodes report on one node; this label makes their samples distinct.
        labels = {"node": node.node, "seen_from": status.node}
        times = {
            "entrypoint_phase_seconds": node.since_seconds,
            "entrypoint_heartbeat_age_seconds": node.heartbeat_seconds,
            "entrypoint_idle_seconds": node.idle_seconds,
        }
        yield from ((name, labels, time) for name, time in times.items() if time is not None)
        yield "entrypoint_node_up", labels, node.phase not in UNREACHABLE
        if node.ranks is not None:
            running = max(0, node.ranks - node.ranks_ended)
            yield "entrypoint_ranks", {**labels, "state": "running"}, running
            yield "entrypoint_ranks", {**labels, "state": "ended"}, node.ranks_ended
    yield from _spent(me, status.spent)
    values = {
        "entrypoint_nodes": status.job_nodes,
        "entrypoint_up_seconds": status.up_seconds,
        "entrypoint_boot_seconds": status.boot_seconds,
        "entrypoint_attempt": status.attempt,
        "entrypoint_log_lines_lost_total": lost_lines,
        "entrypoint_exit_status": status.outcome.status if status.outcome else None,
    }
    yield from ((name, me, value) for name, value in values.items() if value is not None)


def _spent(
    me: dict[str, str], spent: TimeSpent | None
) -> Iterator[tuple[str, dict[str, str], float]]:
    if not spent:
        return
    yield "entrypoint_effective_ratio", me, spent.share
    for part, seconds in spent.seconds.items():
        yield "entrypoint_job_seconds", {**me, "part": part}, seconds
    for name, label, sums in (
        ("entrypoint_cause_seconds", "cause", spent.causes),
        ("entrypoint_blamed_seconds", "blamed", spent.nodes),
    ):
        for key, cost in sums.items():
            for part, seconds in cost.seconds.items():
                yield name, {**me, label: key, "part": part}, seconds


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version = "entrypoint"
    sys_version = ""
    timeout = 5.0  # seconds in which something must arrive or be read

    def handle(self) -> None:
        """Serve one request, within the same time in all."""
        limit = threading.Timer(self.timeout, self._end)
        limit.daemon = True
        limit.start()
        try:
            super().handle()
        finally:
            limit.cancel()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        try:
            body = self.server.metrics().encode("utf-8", "backslashreplace")
        except Exception as error:  # a defect, or a suspended event loop
            self.send_error(503, explain=f"{type(error).__name__}: {error}")
            return
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the job's log."""


class MetricsServer(socketserver.ThreadingTCPServer):
    """A port that answers `GET /metrics` with what `metrics` returns; it stays open between
    attempts.

    `http.server.HTTPServer` would look up the name of the address, which may take long.
    """

    allow_reuse_address = True  # by a job that follows
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: str, port: int, metrics: Callable[[], str]) -> None:
        """Serve this port from now on. Raises OSError."""
        self.metrics = metrics
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)
        threading.Thread(target=self.serve_forever, args=(None,), daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            threading.Event().wait(_RETRY)  # there is no free file handle: do not try again at once
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is a thread for this client; otherwise it is disconnected."""
        return threading.active_count() < 2 * _MOST_CLIENTS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has disconnected or is too slow."""
