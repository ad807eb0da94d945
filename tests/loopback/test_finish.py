"""The end of a job on its nodes: worker-0 posts the result once, and the end hooks run. Neither
changes the status, whatever the server or a hook does."""

from __future__ import annotations

import json
import secrets
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint.features.finish.post import _CERTIFICATES as CERTIFICATES
from tests.local import Make
from tests.process.bench import Bench, executable
from tests.waits import PATIENCE, until

TOKEN = "aVery5ecretWord"
RUN = (sys.executable, *split("-m entrypoint run"))
FAILS = ("--", "sh", "-c", "exit 7")
ONCE = "the result is posted once, by worker-0, within 5 s, and changes no status"


class Collector(ThreadingHTTPServer):
    """A server for results. `answer` writes the response; `seen` has path, headers and document."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[Handler], object] = lambda handler: handler.status(204)
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/jobs/{TOKEN}?key={TOKEN}2"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        self.server.answer(self)

    def status(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for header in headers:
            self.send_header(*header)
        self.end_headers()

    def never(self) -> None:
        """Send a byte of the answer now and then."""
        while not self.server.over.wait(0.1):
            self.wfile.write(b"H")

    def huge(self) -> None:
        self.status(200)
        while not self.server.over.is_set():
            self.wfile.write(bytes(1 << 20))

    def log_message(self, *_: object) -> None: ...
    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client is gone
            self.close_connection = True


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join(PATIENCE)


def record(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bench.folder / "run-state.json").read_text())
    return found


@pytest.mark.promise(ONCE)
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--", "true"), 0),
        (FAILS, 7),
        (("--", "/nowhere"), 127),
        (("--restarts=1", *split("--launcher mpirun -- sh -c 'exit 75'")), 75),
        (split("--hosts a=127.0.0.1,b=127.0.0.2 --node-rank 0 -- true"), 78),
    ],
)
def test_it_is_the_records_result(
    words: tuple[str, ...], status: int, bench: Bench, collector: Collector
) -> None:
    """Of a single program, which would otherwise replace the entrypoint; after several attempts;
    and where the job is refused."""
    env = {"ENTRYPOINT_NOTIFY_URL": collector.url, "ENTRYPOINT_RESTARTS_ON": "any"}
    assert bench.popen([*RUN, *words], env).wait() == status, bench.err
    ((path, headers, document),) = collector.seen
    assert path == f"/jobs/{TOKEN}?key={TOKEN}2"
    assert headers["Content-Type"] == "application/json"
    assert document["status"] == status
    assert document.get("attempts", 1) == (2 if "--restarts=1" in words else 1)
    assert document == record(bench)["result"]
    assert "warning" not in bench.err


@pytest.mark.control(ONCE)
@pytest.mark.parametrize(
    "words",
    [
        split("--hosts a=127.0.0.1,b=127.0.0.2 --node-rank 1 -- true"),  # not worker-0
        split("--hosts a=127.0.0.1,b=127.0.0.2 -- true"),  # which node this is, is not known
        split("--slots none -- true"),  # nor whether the URL is right
    ],
)
def test_a_node_that_is_not_worker_0_posts_nothing(
    words: list[str], bench: Bench, collector: Collector
) -> None:
    env = {"ENTRYPOINT_NOTIFY_URL": collector.url}
    assert bench.popen([*RUN, *words], env).wait() in (65, 78)
    assert collector.seen == []


@pytest.mark.promise(ONCE)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Handler.never, "no answer within 5s"),
        (lambda handler: handler.server.over.wait(), "no answer within 5s"),
        (lambda handler: handler.status(500), "status 500"),
        (lambda handler: handler.status(307, ("Location", "/other")), "status 307"),
        (lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n"), "BadStatusLine"),
        (lambda handler: None, "RemoteDisconnected"),
        (Handler.huge, ""),
    ],
    ids=["slow", "silent", "fails", "redirects", "no HTTP", "hangs up", "huge"],
)
def test_no_server_changes_the_end(
    answer: Callable[[Handler], object], why: str, bench: Bench, collector: Collector
) -> None:
    collector.answer = answer
    assert bench.popen([*RUN, *FAILS], {"ENTRYPOINT_NOTIFY_URL": collector.url}).wait() == 7
    assert len(collector.seen) == 1
    warned = f"warning: EP417 the result was not delivered | 127.0.0.1: {why} | "
    assert (warned if why else "") in bench.err
    assert ("EP417" in bench.err) == bool(why)
    assert bench.err.endswith("exited with 7; exit 7\n")
    assert not bench.left()


def test_a_stop_before_the_job_starts(bench: Bench, collector: Collector) -> None:
    hosts = split("--hosts a=127.0.0.1,b=127.0.0.9 --node-rank 0 -- true")
    secret = {"ENTRYPOINT_SECRET": secrets.token_hex(), "ENTRYPOINT_SSH_PORT": "auto"}
    job = bench.popen([*RUN, *hosts], {"ENTRYPOINT_NOTIFY_URL": collector.url, **secret})
    until(lambda: "waiting for" in bench.err or job.poll() is not None, "the roll call")
    job.terminate()
    assert job.wait() == 143, bench.err
    assert [document["class"] for _, _, document in collector.seen] == ["stopped"]


def test_a_stop_while_it_is_posted(bench: Bench, collector: Collector) -> None:
    """The job has ended before, and its status stays."""
    collector.answer = lambda handler: handler.server.over.wait()
    job = bench.popen([*RUN, *FAILS], {"ENTRYPOINT_NOTIFY_URL": collector.url})
    until(lambda: collector.seen, "the request")
    job.terminate()
    job.terminate()
    assert job.wait() == 7
    assert not bench.left()


def test_the_url_is_shown_nowhere(bench: Bench, collector: Collector) -> None:
    collector.answer = lambda handler: handler.status(403)
    spec = bench.folder / "cwd/job.yaml"
    url = collector.url.replace("//", f"//me:{TOKEN}3@")
    spec.write_text(f"notify: {{url: '{url}'}}\nlauncher: mpirun\ncommand: [printenv]\n")
    texts = [url]
    for words in ("run", "plan --all", "plan --json", "status", "rerun --rank 0", "deploy compose"):
        more = [] if words in ("status", "rerun --rank 0") else ["--spec", str(spec)]
        bench.popen([*RUN[:-1], *split(words), *more]).wait()
        texts += [bench.out, bench.err]
    assert any("EP417" in text for text in texts)
    kept = [path for path in bench.folder.rglob("*") if path.is_file() and path != spec]
    texts += [path.read_text(errors="replace") for path in kept]
    assert [TOKEN in text for text in texts].index(True) == 0, "the control: it is found"
    assert [text for text in texts[1:] if TOKEN in text] == []
    assert collector.seen[0][1]["Authorization"].startswith("Basic ")


def test_a_proxy_and_a_certificate(bench: Bench, collector: Collector, tmp_path: Path) -> None:
    proxy = f"http://127.0.0.1:{collector.server_port}"
    env = {"ENTRYPOINT_NOTIFY_URL": "http://nowhere.invalid/x", "http_proxy": proxy}
    assert bench.popen([*RUN, *FAILS], env).wait() == 7
    assert collector.seen.pop()[0] == "http://nowhere.invalid/x"
    key = split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1")
    name = split("-subj /CN=x -addext subjectAltName=IP:127.0.0.1 -keyout k.pem -out c.pem")
    subprocess.run([*key, *name], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    collector.socket = context.wrap_socket(collector.socket, server_side=True)
    env = {"ENTRYPOINT_NOTIFY_URL": collector.url.replace("http", "https")}
    for trusted in ({"SSL_CERT_FILE": str(tmp_path / "c.pem")}, {}):
        assert bench.popen([*RUN, *FAILS], env | trusted).wait() == 7
        assert ("EP417" in bench.err and "CERTIFICATE_VERIFY_FAILED" in bench.err) == (not trusted)
    assert len(collector.seen) == 1


@pytest.mark.promise(ONCE)
@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ("-- sh -c 'exit 7'", [7]),  # on both nodes at once
        ("--kill worker-1@4s -- sleep 600", [75]),
        ("--kill worker-0@4s -- sleep 600", []),
    ],
)
def test_several_nodes(words: str, ends: list[int], local: Make, collector: Collector) -> None:
    """A worker-0 that is killed says nothing: its platform knows."""
    job = local(*split(f"--nodes 2 --launcher plain {words}"), ENTRYPOINT_NOTIFY_URL=collector.url)
    job.ends()
    assert [document["status"] for _, _, document in collector.seen] == ends, job.err


def test_the_progress_of_a_trainjob(local: Make, collector: Collector, tmp_path: Path) -> None:
    """The step that both ranks have reached, with the token of the file; without `stall.line`
    nothing, since the program may report by itself."""
    (tmp_path / "token").write_text("t0\n")
    server = "KUBEFLOW_TRAINER_SERVER_"
    env = {f"{server}URL": collector.url, f"{server}TOKEN": str(tmp_path / "token")}
    env |= {f"{server}CA_CERT": next(path for path in CERTIFICATES if Path(path).exists())}
    seen = tmp_path / "seen"
    program = f'echo "step 4$OMPI_COMM_WORLD_RANK/"; until [ -e {seen} ]; do sleep 0.1; done'
    words = ("--nodes", "2", "--launcher", "mpirun", "--", "sh", "-c", program)
    job = local(*words, ENTRYPOINT_STALL_LINE="step {step}/", **env)
    until(lambda: collector.seen, "a report")
    seen.touch()
    assert job.ends() == 0
    for _, headers, document in collector.seen:
        assert headers["Authorization"] == "Bearer t0"
        status = document["trainerStatus"]
        assert status["metrics"][0]["name"] == "step"
        assert status["metrics"][0]["value"] in ("40", "41")
        assert status["lastUpdatedTime"].endswith("+00:00")
    count = len(collector.seen)
    assert local(*words, **env).ends() == 0
    assert len(collector.seen) == count


# --------------------------------------------------------------------------------------------------
# End hooks

AFTER = "end hooks run on every node after its end, bounded by the grace, and change no status"
NOTES = 'echo "$0 $JOB_STATUS $JOB_CLASS" | sed "s:.*/::" >>"$NOTES"'


@pytest.fixture
def hooked(bench: Bench) -> Callable[..., dict[str, str]]:
    """Make these end hooks, and return the variables of a start that finds them."""

    def make(**hooks: str) -> dict[str, str]:
        for name, script in hooks.items():
            executable(bench.folder / "end.d" / name, script)
        code = f"from entrypoint.system import facts\nfacts.END_HOOKS = '{bench.folder}/end.d'\n"
        (bench.folder / "sitecustomize.py").write_text(code)
        return {"PYTHONPATH": f"{bench.folder}:{Path(__file__).parents[2]}"}

    return make


@pytest.mark.promise(AFTER)
@pytest.mark.parametrize(
    ("words", "end"),
    [(("--", "true"), "0 success"), (FAILS, "7 job"), (("--launcher", "mpirun", *FAILS), "7 job")],
)
def test_hooks_run_at_the_end(
    words: tuple[str, ...], end: str, bench: Bench, hooked: Callable[..., dict[str, str]]
) -> None:
    """One that fails is named, and the next one runs."""
    env = hooked(a=f"{NOTES}; echo said; exit 3", b=f"{NOTES}; setsid sleep 600 &")
    assert bench.popen([*RUN, "--name=job", *words], env).wait() == int(end[0])
    assert bench.notes == [f"a {end}", f"b {end}"], bench.err
    lines = bench.err.splitlines()
    at = lines.index("[entrypoint] end hook a")
    assert lines[at + 1 : at + 4] == [
        "said",
        "[entrypoint] warning: EP441 end hook a exited with 3",
        "[entrypoint] end hook b",
    ]
    until(lambda: not bench.left(), "the end of what a hook has left")


@pytest.mark.control(AFTER)
def test_without_a_job_there_are_no_hooks(
    bench: Bench, hooked: Callable[..., dict[str, str]]
) -> None:
    env = hooked(a=NOTES) | {"ENTRYPOINT_RUN_DIR": "", "ENTRYPOINT_TIMEOUTS_GRACE": ""}
    assert bench.popen([*RUN, "--passthrough", "--", "true"], env).wait() == 0
    assert bench.popen([*RUN, "--hosts", "a,b", "--", "true"], env).wait() == 78
    assert bench.notes == []


@pytest.mark.promise(AFTER)
def test_a_hook_that_never_ends(bench: Bench, hooked: Callable[..., dict[str, str]]) -> None:
    env = hooked(a="trap '' TERM; sleep 600 & wait; wait", b=NOTES)
    env["ENTRYPOINT_TIMEOUTS_GRACE"] = "0"
    assert bench.popen([*RUN, *FAILS], env).wait() == 7
    assert "EP441 the end hooks were stopped | 2s were over | make them faster" in bench.err
    assert bench.notes == [], "no other one is started"
    assert not bench.left()


def test_hooks_after_a_stop(bench: Bench, hooked: Callable[..., dict[str, str]]) -> None:
    """The signal that has stopped the job does not stop them, a later one does."""
    waits = f"trap 'exit 0' TERM; {NOTES}; while :; do sleep 0.02; done"
    rank = "trap 'exit 0' TERM; echo up >>$NOTES; while :; do sleep 0.02; done"
    job = bench.popen([*RUN, "--", "sh", "-c", rank], hooked(a=waits))
    bench.await_notes("up")
    job.send_signal(signal.SIGTERM)
    bench.await_notes("a 143 stopped", "up")
    job.send_signal(signal.SIGTERM)
    assert job.wait() == 143
    assert "EP441 the end hooks were stopped | by a signal" in bench.err


@pytest.mark.promise(AFTER)
def test_every_node_has_its_own(
    local: Make, bench: Bench, hooked: Callable[..., dict[str, str]]
) -> None:
    env = hooked(a='echo "$JOB_STATUS" >>"$NOTES"') | {"NOTES": bench.env["NOTES"]}
    job = local(*split("--nodes 2 --launcher plain"), *FAILS, **env)
    assert job.ends() == 7, job.err
    assert bench.notes == ["7", "7"]
