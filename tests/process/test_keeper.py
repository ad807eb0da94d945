"""What keeps one program: its environment, its output, its last words, its status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import until

from entrypoint.run import keeper

KEEP = [sys.executable, "-I", "-S", keeper.__file__]


def keep(*words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*KEEP, *words], capture_output=True, timeout=30, stdin=subprocess.DEVNULL, **how)


@pytest.mark.parametrize(
    ("program", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -SEGV $$", 139), ("kill $$", 143)],
)
def test_the_status_is_the_program_s(program: str, status: int) -> None:
    assert keep("--", "sh", "-c", program).returncode == status


@pytest.mark.parametrize(("program", "status"), [("/no/such", 127), ("/tmp", 126)])
def test_what_cannot_be_started(program: str, status: int) -> None:
    done = keep("--", program)
    assert done.returncode == status
    assert done.stderr.startswith(f"cannot start {program}: ".encode())


@pytest.mark.parametrize(("script", "status"), [("missing.py", 127), ("there.py", 3)])
def test_a_script_that_python_is_to_read(script: str, status: int, tmp_path: Path) -> None:
    """Alone, Python ends with 2, as for a wrong option."""
    (tmp_path / "there.py").write_text("raise SystemExit(3)")
    done = keep("--", sys.executable, "-u", script, cwd=tmp_path)
    assert (done.returncode, f": {script}: ".encode() in done.stderr) == (status, status == 127), done


def test_an_entrypoint_that_is_gone_before_the_program_starts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ranks")  # which nobody reads
    done = keep("--run-dir", str(tmp_path), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (137, b"")


def test_every_byte_passes() -> None:
    data = bytes(range(256)) * 4096
    done = subprocess.run([*KEEP, "--", "cat"], input=data, capture_output=True, timeout=30)
    assert (done.stdout, done.stderr) == (data, b"")


def test_the_order_of_two_streams_that_are_one() -> None:
    program = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    done = subprocess.run([*KEEP, "--", "sh", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout == b"".join(b"out %d\nerr %d\n" % (i, i) for i in (1, 2, 3))


def test_a_terminal_stays_one() -> None:
    """Open MPI gives each rank one, and a program that prints into a pipe keeps its lines back."""
    ours, theirs = os.openpty()
    program = "[ -t 1 ] && [ ! -t 2 ] && printf 'one\\ntwo\\n'; echo err >&2"
    done = subprocess.run([*KEEP, "--", "sh", "-c", program], stdout=theirs, stderr=subprocess.PIPE, timeout=30)
    os.close(theirs)
    assert (os.read(ours, 100), done.stderr) == (b"one\r\ntwo\r\n", b"err\n"), "this terminal adds the \r"
    os.close(ours)


def test_lines_get_a_label_and_a_copy(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("from before\n")
    done = keep("--label", "[rank 3] ", "--log", str(log), "--", "printf", "one\\ntwo\\n1%%\\r2%%\\rlast")
    assert done.stdout == b"[rank 3] one\n[rank 3] two\n[rank 3] 1%\r[rank 3] 2%\r[rank 3] last\n"
    assert log.read_bytes() == b"from before\none\ntwo\n1%\r2%\rlast"
    assert log.stat().st_mode & 0o7777 == 0o644


def test_the_last_words_are_kept_where_the_program_fails(tmp_path: Path) -> None:
    tail = str(tmp_path / "tail.{rank}")
    env = {**os.environ, "OMPI_COMM_WORLD_RANK": "5"}
    keep("--tail", tail, "--", "sh", "-c", "seq 100000; echo why >&2; exit 3", env=env)
    kept = (tmp_path / "tail.5").read_bytes()
    assert kept.endswith((b"99999\n100000\nwhy\n", b"why\n99999\n100000\n"))
    assert len(kept) <= 16384
    assert (tmp_path / "tail.5").stat().st_mode & 0o7777 == 0o600
    keep("--tail", str(tmp_path / "none"), "--", "echo", "well")
    assert not (tmp_path / "none").exists()


def test_what_it_leaves_running_keeps_nobody_waiting() -> None:
    done = keep("--", "sh", "-c", "(trap '' HUP; exec sleep 600) & echo $!; exit 4", start_new_session=True)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 4


def test_it_stays_for_the_words_of_what_is_left_where_asked_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ranks")
    pipe = os.open(tmp_path / "ranks", os.O_RDWR | os.O_NONBLOCK)
    go = tmp_path / "go"
    program = f"(until [ -e {go} ]; do sleep 0.02; done; echo late) & echo early; exit 3"
    words = ["--run-dir", str(tmp_path), "--number", "2", "--linger", "yes", "--", "sh", "-c", program]
    with subprocess.Popen([*KEEP, *words], stdout=subprocess.PIPE) as process:
        told = b""
        while b"end" not in told:
            until(lambda: os.access(go.parent, os.R_OK), "the pipe")
            try:
                told += os.read(pipe, 4096)
            except BlockingIOError:
                continue
        assert told == b"start 2 %d\nend 2 3\n" % process.pid
        assert process.poll() is None
        go.touch()
        assert process.stdout is not None
        assert process.stdout.read() == b"early\nlate\n"
    os.close(pipe)
    assert process.returncode == 3


def test_killed_it_takes_the_program_with_it(tmp_path: Path) -> None:
    with subprocess.Popen([*KEEP, "--", "sh", "-c", "echo $$; exec sleep 600"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), "its end")


@pytest.mark.parametrize("round_", range(10))
def test_a_signal_to_the_group_ends_the_program_whenever_it_comes(round_: int) -> None:
    """The keeper must not take for itself a signal that was meant for a program that it has not started yet."""
    process = subprocess.Popen([*KEEP, "--", "sleep", "600"], start_new_session=True)
    try:
        process.wait(0.004 * round_)  # somewhere between its first line and the program's
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(10) in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_locale_is_what_was_given(given: dict[str, str]) -> None:
    """Python itself sets one, where it is C."""
    env = {"PATH": os.environ["PATH"], "LANG": "C", **given}
    done = keep("--", "sh", "-c", 'echo "$LANG ${LC_CTYPE-none}"', env=env)
    assert done.stdout.decode() == f"C {given.get('LC_CTYPE', 'none')}\n"


def test_a_colon_that_was_hidden_from_mpirun_is_back() -> None:
    words = (":", "\\:", "a:", ":a", "\\", "")
    hidden = ("\\:", "\\\\:", "a:", ":a", "\\", "")
    done = keep("--colons", "escaped", "--", "printf", "%s\\n", *hidden)
    assert done.stdout.decode().split("\n")[:-1] == list(words)


def test_the_environment_from_the_file_wins_but_for_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"A=file\0B=file\0a.b=odd\nname\0C=\xff\0")
    env = {"PATH": os.environ["PATH"], "A": "own", "B": "mpirun's -x", "ENTRYPOINT_KEEP": "B Z "}
    done = keep("--env", str(tmp_path / "env"), "--", "env", "-0", env=env)
    got = dict(pair.split(b"=", 1) for pair in done.stdout.split(b"\0") if pair)
    got.pop(b"PATH")
    assert got == {b"A": b"file", b"B": b"mpirun's -x", b"a.b": b"odd\nname", b"C": b"\xff"}


def test_what_a_program_leaves_running_prints_on_when_its_keeper_has_ended(tmp_path: Path) -> None:
    program = "(until [ -e go ]; do sleep 0.02; done; echo late) & echo early; exit 3"
    keep = subprocess.Popen(
        [*KEEP, "--linger", "apart", "--", "sh", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert keep.wait(timeout=20) == 3  # while what it left is still there
    (tmp_path / "go").touch()
    assert keep.stdout
    with keep.stdout as out:
        assert out.read() == b"early\nlate\n"


def test_a_label_with_the_rank_and_another_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "others")
    pipe = os.open(tmp_path / "others", os.O_RDWR | os.O_NONBLOCK)
    words = ("--run-dir", str(tmp_path), "--pipe", "others", "--number", "3", "--label", "[rank ${rank}] ")
    assert keep(*words, "--", "echo", "up").stdout == b"[rank 3] up\n"
    said = [line.split()[:2] for line in os.read(pipe, 4096).splitlines()]
    assert said == [[b"start", b"3"], [b"end", b"3"]]
    os.close(pipe)
