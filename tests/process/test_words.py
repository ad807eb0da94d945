"""Our words never hold up the job nor change how it ends: unread pipes, readers that have left, a
full disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.output.log import Logger
from tests.process.bench import Bench
from tests.waits import until

RUN = (sys.executable, "-m", "entrypoint", "run", "--launcher", "mpirun", "--slots", "2", "--")


@contextlib.contextmanager
def unread(full: bool) -> Iterator[tuple[int, int]]:
    """A pipe that nobody reads, with room in it or without."""
    read, write = os.pipe()
    if full:
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(write, b"x" * 65536):
                pass
        with contextlib.suppress(BlockingIOError):
            while os.write(write, b"x"):
                pass
        os.set_blocking(write, True)
    try:
        yield read, write
    finally:
        os.close(write)
        os.close(read)


def start(bench: Bench, script: str, out: int, err: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*RUN, "sh", "-c", script], cwd=bench.folder / "cwd", env=bench.env, stdin=subprocess.DEVNULL, stdout=out,
        stderr=err, start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def gone() -> Iterator[int]:
    """A pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize("how", ["no reader of either", "no reader of stderr", "a full disk"])
def test_streams_that_cannot_be_written(how: str, bench: Bench, gone: int) -> None:
    """As in `entrypoint run ... 2>&1 | head`: the job runs all the same, and its status is the
    job's."""
    with open("/dev/full", "wb") as full:
        out, err = {
            "no reader of either": (gone, gone),
            "no reader of stderr": (subprocess.DEVNULL, gone),
            "a full disk": (subprocess.DEVNULL, full.fileno()),
        }[how]
        assert start(bench, 'echo ran >>"$NOTES"; exit 7', out, err).wait() == 7
    assert bench.notes[0] == "ran"


def test_an_error_of_ours_keeps_its_status(bench: Bench, gone: int) -> None:
    for word, status in (("--bogus", 64), ("--spec=none", 66)):
        words = [sys.executable, "-m", "entrypoint", "run", word]
        assert subprocess.run(words, env=bench.env, stderr=gone, check=False).returncode == status


@pytest.mark.promise("whoever reads our lines, or does not, changes nothing of the job")
def test_nobody_reads_stderr(bench: Bench) -> None:
    """A log collector that hangs: the job starts, is stopped by a signal, and ends with its status,
    in bounded time."""
    with unread(full=True) as (_, write):
        process = start(bench, "echo ready >>$NOTES; exec sleep 600", subprocess.DEVNULL, write)
        until(lambda: bench.notes == ["ready", "ready"], "two ranks")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143


def test_no_stderr_at_all(bench: Bench) -> None:
    """What `2>&-` closes: our words go nowhere, and into no file that gets its number."""
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *RUN, "sh", "-c", "exit 7"],
        cwd=bench.folder / "cwd", env=bench.env, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, b"")


def without_warnings(text: str) -> str:
    """The text without mpirun's own framed warnings, which have empty lines."""
    return re.sub(r"(?ms)^-{50,}\n.*?^-{50,}\n", "", text)


def test_a_line_of_ours_is_not_put_behind_a_progress_bar(bench: Bench) -> None:
    """It begins on a new line where the program's has no end, once; what the program printed stays
    as it was."""
    host = os.uname().nodename
    ours = [
        f"[entrypoint] last 1 line of rank 0 on {host}:",
        "[entrypoint]   | 50%",
        f"[entrypoint] EP600 rank 0 on {host} exited with 7; exit 7",
    ]
    both = ["sh", "-c", f"exec {' '.join(RUN[:-3])} --slots 1 -- sh -c 'printf 50%%; exit 7' 2>&1"]
    ends = {
        "after a return": "printf '\\r50%%' >&2",
        "on stdout": "printf 50%%",
        "ended": "printf 50%% >&2; echo >&2",
    }
    benches = dict(zip(("in one", *ends), bench.others(4), strict=True))
    started = [benches["in one"].popen(both)]
    for name, text in ends.items():
        started.append(benches[name].start("sh", "-c", f"{text}; exit 7", slots=1))
    assert [process.wait() for process in started] == [7] * 4
    assert benches["on stdout"].out == "50%"
    for name, one in benches.items():
        shown = one.out if name == "in one" else one.err
        assert shown.split("\n")[-4:] == [*ours, ""], name
        assert "Forwarding signal" not in shown, "mpirun was suspended, and says so"
        # Our lines about the start may come after the rank's end, or before that of its line.
        assert name == "on stdout" or "50%\n[entrypoint] " in shown, name
        if name != "after a return":
            shown = re.sub(r"(?<=50%\n)((\[entrypoint\] .*\n)+)\n", r"\1", shown, count=1)
            assert "\n\n" not in without_warnings(shown).removeprefix("\n"), name


def test_job_and_host_on_request(bench: Bench) -> None:
    bench.run("sh", "-c", "exit 7", slots=1, flags=("--name", "demo"), ENTRYPOINT_PREFIX="job")
    host = os.uname().nodename
    assert bench.err.endswith(
        f"[entrypoint demo worker-0 {host}] EP600 rank 0 on {host} exited with 7; exit 7\n"
    )


# --------------------------------------------------------------------------------------------------
# The speaker itself


def said(read: int) -> list[str]:
    os.set_blocking(read, False)
    text = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(read, 65536):
            text += part
    return text.decode().split("\n")


def test_lines_are_there_when_the_call_returns() -> None:
    with unread(full=False) as (read, write):
        say = Logger(write)
        say("one")
        say.name = "worker-1"
        say("two")
        assert said(read) == ["[entrypoint] one", "[entrypoint worker-1] two", ""]


@pytest.mark.control("whoever reads our lines, or does not, changes nothing of the job")
def test_what_was_not_read_is_dropped_and_counted() -> None:
    """The oldest goes; the newest comes out once somebody reads, and memory has a bound."""
    with unread(full=True) as (read, write):
        say = Logger(write)
        for number in range(3000):
            say(f"{number} {'y' * 990}")
        text: list[str] = []
        until(
            lambda: text.extend(said(read)) or any("2999" in line for line in text), "the last line"
        )
        say.flush()
        lines = [
            line.rstrip("y")
            for line in "\n".join([*text, *said(read)]).split("\n")
            if line.startswith("[")
        ]
        (notice,) = [line for line in lines if "could not" in line]
        lost = int(notice.split()[2])
        assert notice == f"[entrypoint] EP901 {lost} lines could not be written here"
        assert 1900 < lost < 2000
        assert lines[-1] == "[entrypoint] 2999 "


def test_a_shared_stderr_keeps_its_flags() -> None:
    """They are the terminal's and the ranks' as well. Where another process has set them, all comes
    out as well."""
    with unread(full=False) as (read, write):
        before = fcntl.fcntl(write, fcntl.F_GETFL)
        Logger(write)("one")
        assert fcntl.fcntl(write, fcntl.F_GETFL) == before
    with unread(full=True) as (read, write):
        os.set_blocking(write, False)
        say = Logger(write)
        say("one")
        first = said(read)  # it may come while the pipe is read, or with the flush
        say.flush()
        assert "".join([*first, *said(read)]).lstrip("x") == "[entrypoint] one"


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """Lines are counted that were lost, once there is room."""
    with open("/dev/full", "wb") as full, open(tmp_path / "log", "wb") as log:
        fd = os.dup(full.fileno())
        say = Logger(fd)
        say("one")
        say("two")
        os.dup2(log.fileno(), fd)
        say("three")
        os.close(fd)
    words = (tmp_path / "log").read_text()
    assert words == "\n[entrypoint] EP901 2 lines could not be written here\n[entrypoint] three\n"


def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `docker run --pids-limit`: lines are written where that holds up nobody."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with unread(full=False) as (read, write):
        Logger(write)("one")
        assert said(read) == ["[entrypoint] one", ""]
    with unread(full=True) as (read, write):
        Logger(write)("one")
