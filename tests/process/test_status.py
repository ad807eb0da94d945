"""`entrypoint status` of a real boot, by its record file, and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Outcome
from entrypoint.base.phases import Phase
from entrypoint.base.values import replace
from entrypoint.base.wire import to_json
from entrypoint.cli import status as cli_status
from entrypoint.extensions import LoopView
from entrypoint.features.record import metrics as metrics_of
from entrypoint.features.record import status
from entrypoint.features.record.file import RecordFile, record_of
from entrypoint.features.record.live import LiveRecord
from entrypoint.features.record.status import load
from entrypoint.job import actions
from entrypoint.output.log import Logger
from entrypoint.system import proc
from entrypoint.system.threads import in_thread
from tests import TREE, command
from tests.cluster import free_port
from tests.command import captured
from tests.process.bench import Bench, Process, executable, in_loop
from tests.simulation.world import plans
from tests.waits import until

pytestmark = pytest.mark.see
WAITS = 'echo ready >>"$NOTES"; until [ -e "$NOTES.go" ]; do sleep 0.05; done; exit ${STATUS:-0}'
STATUS = (sys.executable, "-m", "entrypoint", "status")


def ask(bench: Bench, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of `entrypoint status` beside the bench's boot."""
    done = command.run(Path.cwd(), "status", *words, env=bench.env)
    return done.returncode, done.stdout, done.stderr


def watching(bench: Bench, *words: str, **how: Any) -> Process[Any]:
    """`entrypoint status --watch` beside it, until it ends by itself or nobody reads."""
    return Process([*STATUS, "--watch", *words], env=bench.env, **how)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a name that is short enough for a socket's address."""
    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as name:
        yield Path(name)


def record(bench: Bench) -> Path:
    return Path(record_of(str(bench.run_dir)))


def go(bench: Bench) -> None:
    Path(f"{bench.env['NOTES']}.go").touch()


@pytest.fixture
def running(bench: Bench) -> Iterator[subprocess.Popen[str]]:
    """A boot of two ranks that run until `go`, and end with 7; its record says that they run."""
    process = bench.start("sh", "-c", WAITS, STATUS="7", flags=("--name", "demo"))
    bench.await_notes("ready", "ready")
    until(lambda: '"phase": "running"' in ask(bench, "--json")[1], "the phase in the record")
    yield process
    go(bench)
    process.wait()
    until(lambda: not bench.left(), f"the end of {bench.left()}")


# --------------------------------------------------------------------------------------------------
# The command


@pytest.mark.control("a frozen or killed entrypoint is never reported as running well")
def test_while_it_runs_and_after_its_end(bench: Bench, running: subprocess.Popen[str]) -> None:
    until(lambda: re.search("running .* 2 ", ask(bench)[1]), "the ranks to be seen")
    code, out, err = ask(bench)
    assert (code, err) == (0, "")
    title, head, row, command = out.splitlines()
    assert re.fullmatch(r"command: mpirun .* -np 2 .* rank sh -c .*", command)
    assert re.fullmatch(
        r"job demo, launcher mpirun, attempt 1, up \d+s, seen from worker-0 \(.+\)", title
    )
    assert head.split() == split("node host phase since heartbeat ranks idle detail")
    assert re.fullmatch(r"worker-0 +\S+ +running +\d+s +- +2 +\d+s", row)
    code, out, err = ask(bench, "--json")
    shown = json.loads(out)
    assert (code, shown["phase"], shown["outcome"], shown["version"]) == (0, "running", None, 1)
    assert stat.S_IMODE(record(bench).stat().st_mode) == 0o600
    process = load(str(record(bench))).process
    assert process
    assert status._process_state(process) in "RSD"
    # another process with its number is not taken for it
    assert status._process_state(replace(process, started=process.started + 1)) == "X"
    assert status._process_state(replace(process, namespace=1)) == "?"
    go(bench)
    assert running.wait() == 7
    code, out, err = ask(bench)
    assert (code, err) == (7, "")
    ended, after = out.splitlines()
    assert re.fullmatch(r"ended: EP600 rank \d on \S+ exited with 7; exit 7", ended)
    assert after == command
    assert stat.S_IMODE(record(bench).stat().st_mode) == 0o600, "it has lines of output"


@pytest.mark.promise("the command that ran is in the record, without secrets")
@pytest.mark.parametrize(
    ("launcher", "before"),
    [("plain", ""), ("torchrun", r"\S*python \S+/torch_launch\.py .* "), ("mpirun", "mpirun .* ")],
)
def test_the_command_is_known_after_the_end(bench: Bench, launcher: str, before: str) -> None:
    executable(bench.folder / "bin/python", "exit 3")
    words = ("sh", "-c", "exit 3", "sh", "--api-key", "planted-planted", "a b")
    flags = ("--launcher", launcher, "--name", "demo", "--restarts", "0")
    assert bench.run(*words, slots=1, flags=flags, ENTRYPOINT_LOGS_TIMESTAMPS="utc") == 3
    shown = ask(bench)[1]
    ended, command = shown.splitlines()
    assert ended.startswith("ended: EP600 ")
    wanted = rf"command: {before}sh -c 'exit 3' sh --api-key '\(not shown\)' 'a b'"
    assert re.fullmatch(wanted, command), command
    assert json.loads(ask(bench, "--json")[1])["command"] == command.removeprefix("command: ")
    assert "] started: " in bench.err
    report = captured([*STATUS[:-1], "report", str(bench.run_dir)], env=bench.env)
    assert command in report.stdout.splitlines(), report
    assert "planted" not in shown + bench.err + report.stdout


@pytest.mark.control("the command that ran is in the record, without secrets")
def test_no_command_is_known_before_something_was_started(bench: Bench) -> None:
    flags = ("--launcher", "torchrun", "--spec", "/none")
    assert bench.run("no-such-program", slots=1, flags=flags) != 0
    # by name: without a record there, `status` takes the only one in the default place
    assert "command: " not in ask(bench, "--run-dir", str(bench.run_dir))[1]


@pytest.mark.promise("a frozen or killed entrypoint is never reported as running well")
def test_an_entrypoint_that_does_not_run_is_named(
    bench: Bench, running: subprocess.Popen[str]
) -> None:
    """Stopped; without a word for too long; killed."""
    running.send_signal(signal.SIGSTOP)
    until(lambda: proc.state(running.pid)[0] in "Tt", "it to be stopped")  # when it is scheduled
    code, out, err = ask(bench)
    running.send_signal(signal.SIGCONT)
    assert (code, out) == (69, "")
    assert f"process {running.pid} in {bench.run_dir}: its record is " in err
    assert "old | it is stopped (SIGSTOP" in err
    assert ask(bench)[0] == 0, "it goes on"

    written = load(str(record(bench)))
    old = replace(written, at=time.monotonic() - written.pause - status._LATE - 1)
    (bench.folder / "old-state.json").write_text(to_json(old))
    with pytest.raises(status.Silent) as silent:
        status.ask(bench.folder / "old")
    words = r"its record is ([\d.]+)s old \| it gets no processor time"
    found = re.search(words, str(silent.value))
    assert found, silent.value
    assert 6 <= float(found[1]) <= time.monotonic() - old.at + 0.05, "rounded"
    assert status.ask(bench.run_dir)["phase"] == "running", "the control"

    running.kill()
    running.wait()
    code, _, err = ask(bench)
    assert code == 69
    assert f"has ended without a result | process {running.pid} is gone; " in err
    assert "before, it was: running | it was killed" in err


@pytest.mark.promise("status follows a program that has replaced the entrypoint")
def test_a_program_that_has_replaced_the_entrypoint(bench: Bench) -> None:
    program = bench.start("sh", "-c", WAITS, slots=1, flags=("--launcher", "plain"), STATUS="7")
    what = f"process {program.pid} has become the program"
    bench.await_notes("ready")
    code, out, err = ask(bench)
    assert (code, out.splitlines()[0], err) == (0, f"running: {what}", "")
    assert out.splitlines()[1].startswith("command: sh -c ")
    program.send_signal(signal.SIGSTOP)
    until(lambda: proc.state(program.pid)[0] in "Tt", "it to be stopped")
    code, out, err = ask(bench)
    program.send_signal(signal.SIGCONT)
    assert (code, out) == (69, "")
    assert f"EP033 the program is stopped | {what} | " in err
    go(bench)
    assert program.wait() == 7
    code, out, err = ask(bench)
    assert (code, out) == (69, ""), "its status is not known"
    assert "EP033 the program has ended with a status that the entrypoint does not know" in err


@pytest.mark.control("status follows a program that has replaced the entrypoint")
def test_a_program_that_cannot_replace_the_entrypoint_has_a_result(bench: Bench) -> None:
    assert bench.run("no-such-program", slots=1, flags=("--launcher", "plain")) == 127
    code, out, _ = ask(bench)
    assert code == 127
    assert out.startswith("ended: EP440 cannot start no-such-program: ")


def test_nothing_to_ask(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status.health, "states_of", lambda user: [])
    nothing = r"EP030 there is no boot to ask \| .*/nowhere-state.json: No such file"
    with pytest.raises(EntrypointError, match=nothing) as error:
        status.ask(place / "nowhere")
    assert error.value.status == 66
    monkeypatch.setattr(status.health, "states_of", lambda user: ["entrypoint:wait"])
    with pytest.raises(status.Starting):
        status.ask(place / "nowhere")


AS_ANOTHER = """
import json, locale, os, sys
from entrypoint import cli
import entrypoint.cli.parser, entrypoint.cli.status, entrypoint.features.record.status, entrypoint.spec
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os._exit(cli.main(["status", "--run-dir", sys.argv[1]]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_learns_nothing_but_whose_it_is(place: Path) -> None:
    place.chmod(0o755)
    path = Path(record_of(f"{place}/run"))
    path.write_text("{}")
    path.chmod(0o600)  # as while the job runs
    done = captured([sys.executable, "-c", AS_ANOTHER, f"{place}/run"])
    assert (done.returncode, done.stdout) == (77, ""), done
    said = f"belongs to another user | {path} is owned by 0, this user is 65534 | ask as that user"
    assert said in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_another_user_is_refused_while_root_s_boot_runs(place: Path) -> None:
    place.chmod(0o755)
    path = Path(record_of(f"{place}/entrypoint-0-1"))
    path.write_text("{}")
    path.chmod(0o600)
    script = f"""
import os
import entrypoint.cli.parser, entrypoint.cli.status, entrypoint.spec
from entrypoint.features.record import status
os.setuid(65534)
status._USUAL = ({str(place)!r} + "/entrypoint-*",)
status.health.states_of = lambda user: [] if user else ["entrypoint:run"]
try:
    print(status.ask(status.find()))
except Exception as error:
    print(type(error).__name__)
"""
    done = captured([sys.executable, "-c", script])
    assert (done.stdout, done.stderr) == ("RefusedError\n", "")


SEVERAL = "EP032 there are several boots here"
BEGUN = "EP033 a boot has begun here and has no state yet"
BOOTS = {  # run directory -> owner; ones that run; whether a process boots
    "one that runs": ({"/a": 1}, {"/a"}, True, "/a"),
    "one that has ended": ({"/a": 1}, set(), False, "/a"),
    "one that runs and one that has ended": ({"/a": 1, "/b": 1}, {"/b"}, True, "/b"),
    "beside another user's": ({"/a": 1, "/b": 2}, {"/b"}, False, "/a"),
    "root's": ({"/b": 2, "/c": 0}, {"/b", "/c"}, False, "/c"),
    "two that run": ({"/a": 1, "/b": 1}, {"/a", "/b"}, True, SEVERAL),
    "two that have ended": ({"/a": 1, "/b": 1}, set(), False, SEVERAL),
    "one that begins": ({"/a": 1}, set(), True, BEGUN),
    "another user's": ({"/b": 2}, {"/b"}, False, "EP031 this record belongs to another user"),
    "nobody's": ({}, set(), False, "EP030 there is no boot to ask"),
}


@pytest.mark.parametrize("kind", BOOTS)
def test_whose_boot_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records, running, boots, found = BOOTS[kind]
    monkeypatch.setattr(status, "_records", lambda: records)
    monkeypatch.setattr(status, "_runs", running.__contains__)
    states = {1: ["entrypoint:wait"] * boots, 0: []}
    monkeypatch.setattr(status.health, "states_of", states.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setenv("ENTRYPOINT_RUN_DIR", "/nowhere")
    try:
        got = str(status.find())
    except EntrypointError as error:
        got = error.summary
    assert got == found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
def test_whose_records_are_seen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_USUAL", (f"{place}/entrypoint-*",))
    monkeypatch.setattr(status.health, "states_of", lambda user: [])
    for name, owner in (("entrypoint-0-1", 0), ("entrypoint-0-2", 7), ("else", 0)):
        Path(record_of(f"{place}/{name}")).write_text("{}")
        os.chown(record_of(f"{place}/{name}"), owner, -1)
    assert status._records() == {f"{place}/entrypoint-0-1": 0, f"{place}/entrypoint-0-2": 7}
    assert status.find() == place / "entrypoint-0-1", "an owner counts, not a name"


def table(nodes: list[dict[str, Any]], rows: int = 0, **more: Any) -> str:
    """What is printed of a job that runs on these nodes."""
    job = {"job": "j", "launcher": "plain", "attempt": 1, "node": "worker-0", "host": "a"}
    job |= {"up_seconds": 1, "phase": "running", "outcome": None}
    node = {"host": "a", "phase": "running", "detail": "", "since_seconds": 1}
    node |= {"heartbeat_seconds": 1, "ranks": 1, "ranks_ended": 0, "idle_seconds": 1}
    return cli_status._text({**job, "nodes": [{**node, **each} for each in nodes], **more}, rows)


def test_times_and_words_of_a_stranger_do_no_harm() -> None:
    node = {"node": "worker-0", "host": "a\x1b[2Jb", "detail": "two\nlines", "idle_seconds": 7500}
    node |= {"since_seconds": 7.9, "heartbeat_seconds": None}
    outcome = {"reason": "bad\n\x1b[1m", "status": "\x1b]0;x\x07"}
    text = table([node], job="j\x07", up_seconds=185.9, outcome=outcome)
    assert not any(ord(each) < 32 for each in text.replace("\n", ""))
    assert text.count("\n") == 4
    assert " up 3m05s, " in text
    assert text.splitlines()[2].split() == split("worker-0 ab running 7s - 1 2h05m two lines")


def test_a_screen_that_is_too_small_shows_first_who_differs() -> None:
    nodes = [{"node": f"worker-{number}"} for number in range(50)]
    nodes[37]["phase"] = "lost"
    _title, _head, *rows = table(nodes, 5).splitlines()
    first = ["worker-37", "worker-0", "worker-1", "worker-2", "worker-3"]
    assert [row.split()[0] for row in rows] == [*first, "and"]
    assert rows[-1] == "and 45 more"


def test_it_is_found_without_any_setting(bench: Bench) -> None:
    """In a table of processes and a /tmp of its own, which has nothing but what this test needs,
    so that nobody else boots there."""
    script = """
set -e
mount --rbind /tmp /mnt
mount -t tmpfs tmpfs /tmp
for needed; do
  mkdir -p "/tmp/$needed"
  mount --bind "/mnt/$needed" "/tmp/$needed"
done
set +e
entrypoint status; echo "before $?"
entrypoint run --launcher mpirun -- sleep 600 &
for try in $(seq 50); do entrypoint status | grep -q " running " && break; sleep 0.1; done
entrypoint status; echo "during $?"
kill $!
wait $!
entrypoint status; echo "after $?"
"""
    alone = ["unshare", "--fork", "--pid", "--mount", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no namespaces")
    env = {**bench.env, "PYTHON": sys.executable}
    del env["ENTRYPOINT_RUN_DIR"]
    places = map(Path.resolve, (bench.folder, TREE, Path(sys.prefix), Path(sys.base_prefix)))
    needed = [str(place.relative_to("/tmp")) for place in places if place.is_relative_to("/tmp")]
    words = [*alone, "sh", "-c", script, "sh", *needed]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert re.search(r"^during 0$", done.stdout, re.M), done
    assert re.search(r"^worker-0 .* running ", done.stdout, re.M), done
    assert re.findall(r"^(before|after) (\d+)$", done.stdout, re.M) == [
        ("before", "66"), ("after", "143"),
    ], done  # fmt: skip


# --------------------------------------------------------------------------------------------------
# --watch


def test_watch_ends_with_the_job_and_says_what_changed(bench: Bench) -> None:
    running = bench.start("sh", "-c", WAITS, slots=1, STATUS="7", flags=("--name", "demo"))
    until(lambda: record(bench).exists(), "its record")
    with watching(bench, stdout=subprocess.PIPE, text=True) as watch:
        bench.await_notes("ready")
        lines = []
        while not any("running" in line for line in lines):
            lines.append(watch.stdout.readline())
            assert lines[-1], lines
        go(bench)
        rest = watch.stdout.read()
    assert (watch.wait(), running.wait()) == (7, 7)
    assert rest.endswith("exited with 7; exit 7\n")
    assert len([line for line in lines if "running" in line]) == 1, "said once"


def test_watch_shows_that_it_does_not_answer_and_goes_on(
    bench: Bench, running: subprocess.Popen[str]
) -> None:
    """And ends at a signal, or where nobody reads it any more."""
    with watching(bench, "--json", stdout=subprocess.PIPE) as watch:
        phases = [json.loads(watch.stdout.readline())["phase"]]
        running.send_signal(signal.SIGSTOP)
        while phases[-1] == "running":
            phases.append(json.loads(watch.stdout.readline())["phase"])
        running.send_signal(signal.SIGCONT)
        while phases[-1] == "no answer":
            phases.append(json.loads(watch.stdout.readline())["phase"])
        assert (phases[0], phases[-1]) == ("running", "running")
        with watching(bench, "--json", stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            other.send_signal(signal.SIGINT)
            assert other.wait() == 130
    assert watch.wait() == 0


def test_watch_goes_on_in_the_next_attempt(bench: Bench) -> None:
    program = 'echo at >>"$NOTES"; [ "$(grep -c at "$NOTES")" = 1 ] && exec sleep 600; '
    program += "for each in 1 2 3 4 5 6 7 8; do echo $each; sleep 0.25; done"
    stalls = {"ENTRYPOINT_STALL_MINUTES": "0.02", "ENTRYPOINT_STALL_ACTION": "stop"}
    stalls["ENTRYPOINT_TIMEOUTS_GRACE"] = "1"
    running = bench.start("sh", "-c", program, slots=1, flags=("--restarts", "1"), **stalls)
    until(lambda: record(bench).exists(), "its record")
    done = captured([*STATUS, "--watch", "--json"], env=bench.env)
    assert (running.wait(), done.returncode, done.stderr) == (0, 0, ""), done
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["attempt"] for each in shown if "attempt" in each} == {1, 2}
    assert (shown[-1]["phase"], shown[-1]["status"]) == ("ended", 0)


def test_watch_draws_a_terminal_anew(bench: Bench, running: subprocess.Popen[str]) -> None:
    ours, theirs = pty.openpty()
    bench.env["TERM"] = "xterm"
    watch = watching(bench, stdout=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while seen.count(b"\x1b[H") < 2:
            assert select.select([ours], [], [], 30)[0], seen
            seen += os.read(ours, 4096)
        go(bench)
        while select.select([ours], [], [], 30)[0] and (data := os.read(ours, 4096)):
            seen += data
    os.close(ours)
    assert watch.wait() == 7
    last = seen.decode().split("\x1b[H")[-1]
    ended = r"ended: EP600 rank \d on \S+ exited with 7; exit 7\x1b\[K\r\n\x1b\[J"
    assert re.fullmatch(ended, last)


# --------------------------------------------------------------------------------------------------
# Who asks holds up nobody


async def talk(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


@contextlib.contextmanager
def served(metrics: Callable[[], str] = lambda: "well\n") -> Iterator[int]:
    """The port of a server of these metrics."""
    with metrics_of.MetricsServer("127.0.0.1", 0, metrics) as made:
        yield made.server_address[1]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"HTTP/1.0 200 OK\r\n"),
        (b"GET /metrics?a=b HTTP/1.0\n\n", b"HTTP/1.0 200 OK\r\n"),
        (b"GET /none HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 Not Found\r\n"),
    ],
)
@in_loop
async def test_what_is_asked(request_: bytes, answer: bytes) -> None:
    with served() as port:
        got = await talk(port, request_)
        assert got.startswith(answer)
        if b"200" in answer:
            assert got.endswith(b"Content-Length: 5\r\n\r\nwell\n")


@pytest.mark.promise("asking for the metrics, or hanging while asking, changes nothing of the boot")
@in_loop
async def test_slow_ones_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some say nothing, some read nothing; the loop goes on, and others are answered meanwhile.
    Beyond the limit a client is disconnected."""
    monkeypatch.setattr(metrics_of._Handler, "timeout", 600.0)
    ask = b"GET /none HTTP/1.1\r\n\r\n"
    with served(lambda: "x" * 8_000_000) as port, contextlib.ExitStack() as slow:
        for number in range(66):
            connection = socket.create_connection(("127.0.0.1", port))
            slow.callback(connection.close)
            if number % 2:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await talk(port, ask)).startswith(b"HTTP/1.0 404 ")
        monkeypatch.setattr(metrics_of, "_MOST_CLIENTS", 33)
        assert await talk(port, b"") == b"", "the control: they are still there"


@pytest.mark.control("asking for the metrics, or hanging while asking, changes nothing of the boot")
@in_loop
async def test_a_slow_one_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """also one that says a byte at a time"""
    monkeypatch.setattr(metrics_of._Handler, "timeout", 0.2)
    with served() as port:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            while connection.send(b"x"):
                await asyncio.sleep(0.05)
        assert connection.recv(1) == b""
        connection.close()


def test_the_port_stays_open_between_attempts(place: Path) -> None:
    spec, plan, _ = plans(1, "mpirun", 0, 0)
    spec = replace(spec, metrics=replace(spec.metrics, port=free_port()))
    live = LiveRecord(spec, RecordFile(print), Logger())

    async def attempt() -> None:
        live.begin(plan)
        live.open(lambda: LoopView(1, None, 0.0, ""))
        answer = await in_thread(lambda: fetched(spec.metrics.port))
        assert answer.startswith("HTTP/1.0 200 OK\r\n")
        live.close()

    try:
        in_loop(attempt)()
        assert "entrypoint_attempt" in fetched(spec.metrics.port), "the last state"
        in_loop(attempt)()
    finally:
        if live._server:
            live._server.server_close()


def test_an_error_in_the_view_ends_no_job(bench: Bench) -> None:
    """The observer is broken on purpose."""
    broken = (
        "from entrypoint.features.record import observer; from entrypoint import cli\n"
        "observer.JobObserver.saw = lambda *given: 1 / 0\ncli.script()"
    )
    words = ["run", "--launcher", "mpirun", "--", "sh", "-c", "exit 7"]
    assert bench.popen([sys.executable, "-c", broken, *words], {}).wait() == 7
    said = "EP902 internal error: ZeroDivisionError: division by zero | status and metrics"
    assert bench.err.count(f"warning: {said}") == 1


@pytest.mark.parametrize(("leads", "share"), [(True, 5), (False, 1)])
def test_a_worker_writes_its_record_less_often(leads: bool, share: int) -> None:
    """While nothing changes but ages, which only worker-0 has of all nodes."""
    spec, leader, worker = plans(3, "mpirun", 0, 0)
    live = LiveRecord(spec, RecordFile(print), Logger())
    live.begin(leader if leads else worker)
    assert live._pause() == spec.timeouts.heartbeat / share


@in_loop
async def test_no_secret_is_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush-hush-hush")
    spec, plan, _ = plans(3, "mpirun", 0, 0)
    file = RecordFile(print)
    file.about(replace(plan.topology, run_dir=str(place / "run")))
    live = LiveRecord(spec, file, Logger())
    live.begin(plan)
    outcome = Outcome(7, "a hush-hush-hush reason")
    live.open(lambda: LoopView(1, outcome, 0.0, "train hush-hush-hush"))
    for node, detail in {1: "x hush-hush-hush", 2: "no DNS"}.items():
        live.saw(actions.Entered(node, Phase.MISSING, detail), time.monotonic())
    live.close()
    file.update(3.0)
    shown = load(record_of(str(place / "run")))
    assert shown.status
    assert [node.detail for node in shown.status.nodes] == ["", "x (not shown)", "no DNS"]
    assert shown.status.outcome
    assert shown.status.outcome.reason == "a (not shown) reason"
    assert shown.command == "train (not shown)"


@pytest.mark.parametrize("steps", ["update end", "end update"])
def test_a_write_that_hangs_does_not_come_after_the_result(steps: str, place: Path) -> None:
    _, plan, _ = plans(1, "mpirun", 0, 0)
    kept = RecordFile(print)
    kept.about(replace(plan.topology, run_dir=str(place / "run")))
    for step in steps.split():
        if step == "update":
            kept.update(3.0)
        else:
            kept.end(Outcome(7, "done"))
    assert load(record_of(str(place / "run"))).result


def test_a_full_disk_costs_the_record_and_not_the_job(bench: Bench) -> None:
    folder = bench.folder / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=3", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may mount nothing")
    try:
        file = RecordFile(print)
        _, plan, _ = plans(1, "mpirun", 0, 0)
        file.about(replace(plan.topology, run_dir=str(folder / "run")))
        for name in ("a", "b"):
            (folder / name).touch()
        with pytest.raises(OSError, match="No space left"):
            file.update(3.0)
        assert sorted(os.listdir(folder)) == ["a", "b"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@in_loop
async def test_an_error_in_an_answer_ends_nothing() -> None:
    with served(lambda: str(1 / 0)) as port:
        assert (await talk(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.0 503 ")


# --------------------------------------------------------------------------------------------------
# Metrics


def fetched(port: int, path: str = "/metrics") -> str:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.control("metrics are off until asked for, and tell no secret")
def test_a_port(bench: Bench) -> None:
    port = free_port()
    env = {"ENTRYPOINT_METRICS_PORT": str(port), "MY_TOKEN": "hush-hush-hush", "STATUS": "7"}
    program = ("sh", "-c", WAITS, "hush-hush-hush")
    running = bench.start(*program, flags=("--name", "demo"), **env)
    bench.await_notes("ready", "ready")
    phase = 'entrypoint_phase{job="demo",node="worker-0",phase="running"} 1'
    until(lambda: phase in fetched(port), "the phase")
    text = fetched(port)
    kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8"
    assert text.startswith("HTTP/1.0 200 OK\r\n")
    assert kind in text
    labels = 'job="demo",node="worker-0",seen_from="worker-0",state="running"'
    assert f"entrypoint_ranks{{{labels}}} 2" in text
    assert fetched(port, "/status").startswith("HTTP/1.0 404"), "details are in the record alone"
    assert "hush" not in text
    assert "warning" not in bench.err
    go(bench)
    assert running.wait() == 7


@pytest.mark.promise("metrics are off until asked for, and tell no secret")
def test_without_a_port_nothing_listens(running: subprocess.Popen[str]) -> None:
    fds = Path(f"/proc/{running.pid}/fd").iterdir()
    found = [os.readlink(each) for each in fds if each.is_symlink()]
    sockets = {name[8:-1] for name in found if name.startswith("socket:")}
    for table in ("tcp", "tcp6"):
        rows = map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        assert not sockets & {row[9] for row in rows if row[3] == "0A"}


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_what_cannot_be_is_a_warning(address: str, bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if address == "127.0.0.1" else free_port()
        env = {"ENTRYPOINT_METRICS_PORT": str(port), "ENTRYPOINT_METRICS_ADDRESS": address}
        assert bench.run("true", **env) == 0
    said = {
        "127.0.0.1": f"EP035 no metrics are served | 127.0.0.1 port {port}: Address already in use",
        "0.0.0.0": "EP036 metrics are open to others | everybody who reaches 0.0.0.0 port",
    }
    assert bench.err.count(f"warning: {said[address]}") == 1, bench.err


def test_an_address_is_no_name(bench: Bench) -> None:
    assert bench.run("true", ENTRYPOINT_METRICS_ADDRESS="worker-0") == 65
    assert "an IP address is needed" in bench.err
