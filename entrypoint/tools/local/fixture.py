"""The pytest fixture `job`, which runs a training script on several nodes of this machine, as
`entrypoint local` does: docs/how-to/test-your-script.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, TypeAlias

import pytest

from entrypoint.base.values import frozen


@frozen
class LocalRun:
    """A run that has ended. `ranks` and `nodes` have what each has printed, over all attempts."""

    status: int  # of worker-0
    result: Mapping[str, Any] | None  # the job's; None if worker-0 was killed
    ranks: Mapping[int, str]
    nodes: Mapping[str, str]
    log: str  # the toolkit's own lines


class _Results(HTTPServer):
    """Takes what worker-0 posts to `notify.url`."""

    result: Mapping[str, Any] | None = None


class _Handler(BaseHTTPRequestHandler):
    server: _Results

    def do_POST(self) -> None:
        """Keep a result."""
        self.server.result = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


Job: TypeAlias = Callable[..., LocalRun]


@pytest.fixture
def job() -> Job:
    """Run a program on nodes of this machine, as `job("python", "train.py", nodes=2)`.

    All keywords but `limit` are options of `entrypoint local`, such as `kill="worker-1@5s"`; a list
    repeats one. The test fails if the run takes longer than `limit` seconds. The output is shown if
    the test fails.
    """
    return _run


def _run(*command: str, limit: float = 300.0, **options: Any) -> LocalRun:
    if "spec" not in options:
        options = {"nodes": 2, **options}
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, values in options.items()
        for value in (values if isinstance(values, (list, tuple)) else [values])
    ]
    program = ("--", *command) if command else ()
    argv = [sys.executable, "-m", "entrypoint", "local", *flags, "--log-format=json", *program]
    with _Results(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = subprocess.run(
                argv,
                env=_environment(server.server_port),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            _read(error.stdout or b"")
            pytest.fail(f"the job still ran after {limit:g}s", pytrace=False)
        finally:
            server.shutdown()
            thread.join()
        return LocalRun(done.returncode, server.result, *_read(done.stdout))


def _environment(port: int) -> dict[str, str]:
    """Return this environment with the Python of the test first on PATH, and the URL for the
    result, which no proxy gets."""
    env = dict(os.environ)
    env["PATH"] = f"{os.path.dirname(sys.executable)}:{env.get('PATH', os.defpath)}"
    env["ENTRYPOINT_NOTIFY_URL"] = f"http://127.0.0.1:{port}/"
    excepted = env.get("no_proxy") or env.get("NO_PROXY")
    env["no_proxy"] = ",".join(filter(None, (excepted, "127.0.0.1")))
    return env


def _read(output: bytes) -> tuple[dict[int, str], dict[str, str], str]:
    """Print the output for people; return that of the ranks, of the nodes and of the toolkit."""
    ranks: dict[int, str] = {}
    nodes: dict[str, str] = {}
    log = ""
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
            node, rank, text = entry["node"] or "local", entry["rank"], f"{entry['text']}\n"
        except (ValueError, TypeError, KeyError):  # of a program that the toolkit has not started
            node, rank, text, entry = "local", None, f"{line}\n", {"stream": "entrypoint"}
        print(f"[{node}{'' if rank is None else f' {rank}'}] {text}", end="")
        if entry["stream"] == "entrypoint":
            log += text
            continue
        nodes[node] = nodes.get(node, "") + text
        if rank is not None:
            ranks[rank] = ranks.get(rank, "") + text
    return ranks, nodes, log
