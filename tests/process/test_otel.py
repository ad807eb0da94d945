"""`entrypoint report --otel`: real spans of OpenTelemetry's SDK at a collector, and what is said without the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.made_up import recorded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "run-timeline.json"
    made.write_text(json.dumps(recorded()))
    return made


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a collector, and what it was sent."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", taken
    server.shutdown()
    thread.join()
    server.server_close()


def report(*words: str, python: tuple[str, ...] = ("-m", "entrypoint"), **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(
        [sys.executable, *python, "report", *words], env=given, capture_output=True, text=True, check=False
    )


@pytest.mark.see
@pytest.mark.slow  # it needs the SDK, which `make test-see` has
def test_a_collector_gets_a_trace_with_a_span_for_each_phase(file: Path, collector: tuple[str, list[bytes]]) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the group `otel` is not installed here")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    done = report(str(file), "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=collector[0], OTEL_EXPORTER_OTLP_COMPRESSION="none")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (sent,) = collector[1]
    request = ExportTraceServiceRequest.FromString(sent)
    spans = [span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
    assert done.stderr == f"[entrypoint] sent {len(spans)} spans\n"
    assert len({span.trace_id for span in spans}) == 1
    (whole,) = (span for span in spans if not span.parent_span_id)
    assert whole.name == "boot of resnet-50"
    nodes = {span.span_id: span.name for span in spans if span.parent_span_id == whole.span_id}
    assert sorted(nodes.values()) == [f"worker-{rank}" for rank in range(4)]
    runs = [span for span in spans if span.name == "run" and not span.attributes]
    assert sorted(nodes[span.parent_span_id] for span in runs) == sorted(nodes.values())
    assert {round((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, 3) for span in runs} == {40.0}


def test_without_the_sdk_there_is_one_clear_error(file: Path) -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from entrypoint.cli import script; script()"
    done = report(str(file), "--otel", python=("-c", code))
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("[entrypoint] EP040 OpenTelemetry's SDK is not installed | ")
    assert done.stderr.endswith(" | pip install 'training-entrypoint[otel]', or leave --otel out\n")
    # Control: nobody else needs it.
    assert report(str(file), python=("-c", code)).returncode == 0


def test_a_file_that_is_not_there_or_no_timeline_is_one_clear_error(tmp_path: Path) -> None:
    done = report(str(tmp_path / "run/"))
    assert done.returncode == 66
    assert done.stderr == (
        f"[entrypoint] EP042 there is no timeline to read | {tmp_path}/run-timeline.json: No such file or directory | "
        "a job writes it when it ends: give worker-0's run directory, as `entrypoint plan` names it\n"
    )
    (tmp_path / "run-timeline.json").write_text("{}")
    done = report(str(tmp_path / "run"))
    assert (done.returncode, done.stderr.count("\n")) == (66, 1)
    assert "is no timeline" in done.stderr
