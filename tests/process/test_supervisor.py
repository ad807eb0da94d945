"""What keeps one program: its environment, its output, its last words, its status."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint.base import supervised
from entrypoint.output import stream
from tests.process.bench import Process, executable, until

KEEP = [sys.executable, "-I", "-S", supervised.FILE]


def keep(*words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*KEEP, *words], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, **how
    )


def started(*words: str, **how: Any) -> Process[bytes]:
    return Process([*KEEP, *words], **{"stdout": subprocess.PIPE, **how})


@pytest.mark.parametrize(("program", "status"), [("/no/such", 127), ("/tmp", 126)])
def test_what_cannot_be_started(program: str, status: int) -> None:
    done = keep("--", program)
    assert done.returncode == status
    assert done.stderr.startswith(f"EP440 cannot start {program}: ".encode())


def test_a_variable_that_is_too_long_is_named(tmp_path: Path) -> None:
    large = b"LARGE=" + b"x" * (32 * os.sysconf("SC_PAGESIZE"))
    (tmp_path / "env").write_bytes(b"SMALL=1\0" + large + b"\0")
    done = keep("--env", str(tmp_path / "env"), "--", "true")
    assert done.returncode == 126
    why = b"the variable LARGE has 131079 bytes, and the kernel takes 131072"
    assert b"EP440 cannot start true: " + why in done.stderr


@pytest.mark.parametrize(("script", "status"), [("missing.py", 127), ("there.py", 3)])
def test_a_script_that_python_is_to_read(script: str, status: int, tmp_path: Path) -> None:
    """Alone, Python ends with 2, as for a wrong option."""
    (tmp_path / "there.py").write_text("raise SystemExit(3)")
    done = keep("--", sys.executable, "-u", script, cwd=tmp_path)
    assert (done.returncode, f": {script}: ".encode() in done.stderr) == (status, status == 127)


def test_an_entrypoint_that_is_gone_before_the_program_starts(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "node"))  # at which nobody listens
    done = keep("--run-dir", str(tmp_path), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (137, b"")


@pytest.mark.promise("stdout is the program's, byte for byte")
def test_every_byte_passes() -> None:
    data = bytes(range(256)) * 4096
    done = subprocess.run([*KEEP, "--", "cat"], input=data, capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (data, b"")


def test_the_order_of_two_streams_that_are_one() -> None:
    program = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    done = subprocess.run(
        [*KEEP, "--", "sh", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.stdout == b"".join(b"out %d\nerr %d\n" % (i, i) for i in (1, 2, 3))


def test_a_terminal_stays_one() -> None:
    """Open MPI gives each rank one, and a program that prints into a pipe keeps its lines back."""
    ours, theirs = os.openpty()
    program = "[ -t 1 ] && [ ! -t 2 ] && printf 'one\\ntwo\\n'; echo err >&2"
    with started("--", "sh", "-c", program, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.communicate(timeout=60)[1] == b"err\n"
    assert os.read(ours, 100) == b"one\r\ntwo\r\n", "this terminal adds the \r"
    os.close(ours)


@pytest.mark.control("stdout is the program's, byte for byte")
def test_lines_get_a_label_and_a_copy(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("from before\n")
    program = ("printf", "one\\ntwo\\n1%%\\r2%%\\rlast")
    done = keep("--label", "[rank 3] ", "--log", str(log), "--", *program)
    assert done.stdout == b"[rank 3] one\n[rank 3] two\n[rank 3] 1%\r[rank 3] 2%\r[rank 3] last\n"
    assert log.read_bytes() == b"from before\none\ntwo\n1%\r2%\rlast"
    assert log.stat().st_mode & 0o7777 == 0o644


def test_a_line_without_an_end_comes_in_several_and_the_log_has_it_whole(tmp_path: Path) -> None:
    """In time that grows with its length alone: of four times as much, sixteen times were taken."""
    log = tmp_path / "log"

    def kept(size: int) -> tuple[bytes, float]:
        """What comes of so many bytes, and the seconds of CPU that it took."""
        log.unlink(missing_ok=True)
        program = f"head -c {size} /dev/zero | tr '\\0' x; sleep 0.05; printf 'y\\nz'"
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = keep("--label", "[rank 3] ", "--log", str(log), "--", "sh", "-c", program)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return done.stdout, ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime

    brief = min(kept(8388608)[1] for _ in range(3))
    (out, first), (_, second) = kept(33554432), kept(33554432)
    assert min(first, second) < 10 * brief
    lines = out.split(b"\n")
    assert (lines[-3][-1:], lines[-2], lines[-1]) == (b"y", b"[rank 3] z", b"")
    assert {line[:9] for line in lines[:-1]} == {b"[rank 3] "}
    assert max(map(len, lines)) < 4096  # a pipe takes so much at once
    assert sum(line.count(b"x") for line in lines) == 33554432
    assert log.stat().st_size == 33554432 + 3


# What a line of a rank comes in, and seconds between its pieces.
APART = (
    "for i in 1 2 3 4 5 6 7 8 9; do printf 'a%.0s' 1 2 3; sleep 0.05; printf '%0{0}d\\nb' 0; sleep"
    " 0.05; echo; done"
)


@pytest.mark.promise(
    "lines of several ranks are whole by default, and prompts are shown",
    control="its case `control`",
)
@pytest.mark.parametrize("zeros", [1, 50_000], ids=["short", "long"])
@pytest.mark.parametrize("whole", [True, False], ids=["", "control"])
def test_lines_that_come_in_pieces_do_not_mix(whole: bool, zeros: int) -> None:
    """Two ranks of a program, as torchrun has them, of which nobody asked for a prefix."""
    rank = " ".join([*KEEP, *split("--lines whole --through pipe" * whole), "-- sh -c"])
    program = f'{rank} "$0" & {rank} "sleep 0.02; $0" & wait'
    above = split("--lines whole --through ranks" * whole)
    done = keep(*above, "--", "sh", "-c", program, APART.format(zeros))
    lines = done.stdout.split(b"\n")
    right = {b"aaa" + b"0" * zeros, b"b", b""}
    assert (set(lines) == right) == whole
    assert not whole or lines.count(b"b") == 18


@pytest.mark.promise("lines of several ranks are whole by default, and prompts are shown")
@pytest.mark.parametrize(
    ("above", "options", "waits"),
    [
        ([], "", False),
        ([], "--lines whole", True),
        ([*KEEP, *split("--lines whole --through ranks --")], "--lines whole --through pipe", True),
    ],
    ids=["alone", "several", "through a launcher"],
)
def test_a_prompt_is_shown(above: list[str], options: str, waits: bool) -> None:
    """A line without an end waits a second where others may print there, and not at all where
    nobody does. A busy machine may delay some prompts, and not each of many."""
    program = "while printf 'name? ' && read name; do echo \"hello $name\"; done"
    words = [*above, *KEEP, *split(options), "--", "sh", "-c", program]
    with Process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout.read(6) == b"name? "
        for _ in range(50):
            begun = time.monotonic()
            process.stdin.write(b"you\n")
            assert process.stdout.read(10) == b"hello you\n"
            assert process.stdout.read(6) == b"name? "
            if (waited := time.monotonic() - begun > 0.9) == waits:
                break
        assert waited == waits
        process.stdin.close()


def test_dots_are_shown_though_they_never_stop() -> None:
    program = ("sh", "-c", "while sleep 0.3; do printf .; done")
    with started("--lines", "whole", "--", *program, start_new_session=True) as process:
        assert process.stdout.read(1) == b"."
        os.killpg(process.pid, signal.SIGTERM)


def test_a_file_of_a_rank_s_own_gets_no_marks(tmp_path: Path) -> None:
    """As torchrun --redirects gives it one."""
    with (tmp_path / "out").open("wb") as out:
        process = started(*split("--lines whole --through pipe -- echo one"), stdout=out)
    assert process.wait(60) == 0
    assert (tmp_path / "out").read_bytes() == b"one\n"


def test_a_terminal_s_last_line_without_an_end_is_passed_on() -> None:
    """mpirun gives its ranks a terminal; once nobody holds it any more, each read of it fails."""
    source, program = os.openpty()
    reader, target = os.pipe()
    os.write(program, b"the end")
    os.close(program)
    passed = stream.Stream(source, target, b"", stream.Copies(bytearray()))
    assert passed.read() == 7
    assert os.read(reader, 100) == b"the end"
    assert passed.open
    passed.read()
    assert not passed.open
    for fd in (source, reader, target, passed.target):
        os.close(fd)


def test_what_it_leaves_running_keeps_nobody_waiting() -> None:
    program = "(trap '' HUP; exec sleep 600) & echo $!; exit 4"
    done = keep("--", "sh", "-c", program, start_new_session=True)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 4


class Listener:
    """The entrypoint's end of the socket, and what was told through it by the one supervisor that
    connects."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = os.open(run_dir, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"/proc/self/fd/{self._folder}/node")
        self._socket.listen()
        self._text = b""
        self._connection: socket.socket | None = None  # once the supervisor has been inspected
        # whether the entrypoint has inspected who connects
        self.looks = threading.Event()
        self.looks.set()
        threading.Thread(target=self._inspect, daemon=True).start()

    def _inspect(self) -> None:
        with contextlib.suppress(OSError):
            connection = self._socket.accept()[0]
            self._text = connection.recv(65536)
            self.looks.wait(10)
            connection.setblocking(False)
            self._connection = connection
            connection.send(b"\n")

    def _read(self) -> None:
        """Take what the supervisor has sent: all of it, if it has ended."""
        with contextlib.suppress(BlockingIOError):
            while self._connection and (data := self._connection.recv(65536)):
                self._text += data

    @property
    def told(self) -> list[str]:
        hidden = ("tail", "program")
        return [f"{name} {value}" for name, value in self._lines if name not in hidden]

    @property
    def program(self) -> list[bytes]:
        """The command with the number of its words, and the environment."""
        return bytes.fromhex(dict(self._lines).get("program", "")).split(b"\0")

    @property
    def tail(self) -> bytes:
        return bytes.fromhex(dict(self._lines).get("tail", ""))

    @property
    def _lines(self) -> list[tuple[str, Any]]:
        self._read()
        return [json.loads(line) for line in self._text.split(b"\n")[:-1]]

    def close(self) -> None:
        os.close(self._folder)
        self._socket.close()
        if self._connection:
            self._connection.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path)
    yield listener
    listener.close()


def linger(
    tmp_path: Path, program: str, *options: str, grace: str = "600", **how: Any
) -> Process[bytes]:
    words = ("--run-dir", str(tmp_path), "--number", "2", "--linger", grace, *options)
    return started(*words, "--", "bash", "-c", program, start_new_session=True, **how)


def test_a_program_is_told_as_it_is_started(tmp_path: Path, listener: Listener) -> None:
    (tmp_path / "env").write_bytes(b"MINE=\xff\n=1\0")
    words = ("--run-dir", str(tmp_path), "--env", str(tmp_path / "env"), "--each", "RANK=NUMBER")
    done = keep(*words, "--", "env", "-0", "A=", env={"NUMBER": "3"})
    size, *program = listener.program
    assert (size, program[:3]) == (b"3", [b"env", b"-0", b"A="])
    assert sorted([*program[3:], b"A=", b""]) == sorted(done.stdout.split(b"\0"))
    assert {b"MINE=\xff\n=1", b"RANK=3"} <= {*program}


@pytest.mark.parametrize(
    ("options", "size"), [(("--signals", "group"), 0), ((), 70_000)], ids=["a launcher", "too long"]
)
def test_a_program_that_is_not_told(
    options: tuple[str, ...], size: int, tmp_path: Path, listener: Listener
) -> None:
    """No report of it may wait for a reader: what is too long for the socket stays out."""
    env = {"A": "a" * size, "B": "b" * size}
    done = keep("--run-dir", str(tmp_path), *options, "--", "true", env=env)
    assert (done.returncode, listener.program) == (0, [b""])


def test_a_failure_is_told_at_once_and_what_is_left_is_heard_out(
    tmp_path: Path, listener: Listener
) -> None:
    go = tmp_path / "go"
    program = f"(until [ -e {go} ]; do sleep 0.02; done; echo late) & echo early; exit 3"
    with linger(tmp_path, program) as process:
        told = ["rank 2", "output 0", "end 3"]
        until(lambda: listener.told == told, "its end")
        assert process.poll() is None
        go.touch()
        assert process.stdout.read() == b"early\nlate\n"
    assert process.returncode == 3
    assert listener.told[3:] == ["done 0"]


def test_the_last_output_is_told_where_the_program_fails(
    tmp_path: Path, listener: Listener
) -> None:
    program = "seq 100000; sleep 0.5; printf '\\xffwhy\n' >&2; exit 3"
    assert linger(tmp_path, program, stdout=subprocess.DEVNULL).wait(60) == 3
    # two pipes have no order of their own, but for the pause
    assert listener.tail.endswith(b"99999\n100000\n\xffwhy\n")
    assert len(listener.tail) == 16384
    assert listener.told == ["rank 2", "output 0", "end 3", "done 0"]


def test_success_is_told_when_nothing_is_left(tmp_path: Path, listener: Listener) -> None:
    """What holds the output, and what does not, such as the `tee` of a log in a session of its
    own."""
    go, log, ended = tmp_path / "go", tmp_path / "log", tmp_path / "pid"
    late = f"until [ -e {go} ]; do sleep 0.02; done; cat"
    program = (
        f"exec > >({late}) 2> >(setsid sh -c '{late} >{log}' >/dev/null); seq 3000; seq 3000 >&2;"
        f" echo $$ >{ended}"
    )

    def has_ended() -> bool:
        pid = ended.read_text().strip() if ended.exists() else ""
        return bool(pid) and not Path(f"/proc/{pid}").exists()

    with linger(tmp_path, program) as process:
        until(has_ended, "it")
        assert listener.told == ["rank 2"]
        go.touch()
        assert len(process.stdout.read().split()) == 3000
    assert listener.tail == b"", "it has not failed"
    assert (process.returncode, listener.told[1:]) == (0, ["output 0", "end 0", "done 0"])
    assert len(log.read_text().split()) == 3000


def test_what_stays_gets_term_then_the_grace_then_kill(tmp_path: Path, listener: Listener) -> None:
    notes = tmp_path / "notes"
    saves = f"trap 'echo saved >>{notes}; exit' TERM; echo up; while :; do sleep 0.02; done"
    ignores = f"trap 'echo TERM >>{notes}' TERM; echo up; while :; do sleep 0.02; done"
    program = f'(setsid bash -c "{saves}" &); (bash -c "{ignores}" &) | read; exit 0'
    begun = time.monotonic()
    with linger(tmp_path, program, grace="0.5") as process:
        assert process.stdout.read() == b"up\n"
    took = time.monotonic() - begun
    assert (process.returncode, listener.told[1:]) == (0, ["output 0", "end 0", "done 0"])
    assert sorted(notes.read_text().split()) == ["TERM", "saved"]
    assert took >= 1.0, "half a second by themselves, then half a second"


@pytest.mark.parametrize(
    ("prints", "seconds", "is_said"), [(True, 9, True), (True, 0.6, False), (False, 9, False)]
)
def test_what_is_ended_while_it_prints_is_named(
    prints: bool, seconds: float, is_said: bool, tmp_path: Path, listener: Listener
) -> None:
    """Such as an upload in the background; one that prints nothing has half a second."""
    line = "echo up; sleep 0.1" if prints else "sleep 0.1"
    lasts = f"until (( SECONDS >= {seconds:.0f} )); do {line}; done"
    upload = executable(tmp_path / "upload", lasts, "/bin/bash")
    with linger(tmp_path, f"{upload} & exit 0", grace="2", stderr=subprocess.PIPE) as process:
        said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 0
    summary = "EP629 processes that the program left running still print; ending them"
    assert (f"warning: {summary} | upload (" in said) == is_said, said
    assert not is_said or "2s after its end" in said


@pytest.mark.promise("ranks of MPICH and Intel MPI that end without MPI_Finalize cost no grace")
@pytest.mark.parametrize(
    ("told", "let_go"),
    [(False, True), (True, True), (True, False)],
    ids=["failed", "told-to-end", "told-to-end, and nobody lets it go"],
)
def test_one_that_ended_under_mpirun_stays_until_it_is_let_go(
    tmp_path: Path, listener: Listener, told: bool, let_go: bool
) -> None:
    """mpirun ends the others at the first that leaves with a failure, and passes on nothing from
    then on. One that was told ends with 0 and without MPI_Finalize, for which MPICH's daemon kills
    the others; it does not stay forever."""
    # A child that a shell has forked and that is not a program yet may lose the signal: none that
    # stays.
    ends = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"
    program, status = (ends, 0) if told else ("echo up; exit 7", 7)
    with linger(tmp_path, program, "--hold", "yes", grace="600" if let_go else "0.7") as process:
        assert process.stdout.readline() == b"up\n"
        if told:
            os.killpg(process.pid, signal.SIGTERM)
        heard = ["output 0", f"end {status}", "done 0"]
        until(lambda: listener.told[1:] == heard, "its end")
        if let_go:
            process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        if let_go:
            process.send_signal(signal.SIGURG)
        assert process.wait(60) == 0


def test_an_end_after_sigterm_under_mpirun_is_told_before_what_is_left_has_ended(
    tmp_path: Path, listener: Listener
) -> None:
    """Where an MPI ends its job, the entrypoint keeps it waiting until each rank has ended."""
    left = "trap '' TERM; touch ready; until [ -e go ]; do sleep 0.02; done"
    program = (
        f'(setsid sh -c "{left}" >/dev/null 2>&1 &); until [ -e ready ]; do sleep 0.02; done;'
        " trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"
    )
    with linger(tmp_path, program, "--hold", "yes", cwd=tmp_path) as process:
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGTERM)
        until(lambda: listener.told[1:] == ["output 0", "end 0"], "its end")
        (tmp_path / "go").touch()
        until(lambda: listener.told[-1] == "done 0", "the end of what is left")
        process.send_signal(signal.SIGURG)
        assert process.wait(60) == 0


def test_output_that_nobody_takes_holds_up_no_report(tmp_path: Path, listener: Listener) -> None:
    with linger(tmp_path, "head -c 110000 /dev/zero; exit 7") as process:
        until(lambda: listener.told[1:] == ["output 0", "end 7"], "its end")
        assert len(process.stdout.read()) == 110000
    assert process.returncode == 7


def test_no_program_starts_before_the_entrypoint_has_inspected_its_supervisor(
    tmp_path: Path, listener: Listener
) -> None:
    """Whose it was could not be told if it was killed before, and the job would wait forever."""
    listener.looks.clear()
    with linger(tmp_path, "touch started; exit 4", cwd=tmp_path) as process:
        until(lambda: listener.told == ["rank 2"], "its first line")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert not (tmp_path / "started").exists()
        listener.looks.set()
        told = ["rank 2", "end 4", "done 0"]
        until(lambda: listener.told == told, "its lines")
    assert process.returncode == 4
    assert (tmp_path / "started").exists()


@pytest.mark.control("a program cannot report for its supervisor, and its failure is never 0")
def test_its_program_has_no_part_in_its_reports(tmp_path: Path, listener: Listener) -> None:
    """Nor any other descriptor than the standard streams; a second connection is another
    process's."""
    program = "ls /proc/self/fd; ls -l /proc/$PPID/fd >&2"
    with linger(tmp_path, program, stderr=subprocess.PIPE) as process:
        until(lambda: "done 0" in listener.told, "its end")
        out, err = process.communicate(timeout=60)
    assert out.split() == [b"0", b"1", b"2", b"3"], "3 is the folder that ls reads"
    assert b"socket:" in err, "the control: the supervisor has one"


def test_a_log_that_cannot_be_opened_is_the_reason(tmp_path: Path, listener: Listener) -> None:
    log = str(tmp_path / "none/log")
    done = keep("--run-dir", str(tmp_path), "--log", log, "--", "echo", "ran")
    why = f"cannot keep echo | {log}: No such file or directory\n".encode()
    assert (done.returncode, done.stdout, done.stderr) == (73, b"", why)
    assert listener.tail == why
    assert listener.told[1:] == ["log 2", "end 73", "done 0"]


def test_a_supervisor_that_gets_no_process_says_so(tmp_path: Path, listener: Listener) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))

    done = keep("--run-dir", str(tmp_path), "--", "echo", "ran", preexec_fn=few)
    assert (done.returncode, done.stdout) == (71, b"")
    assert done.stderr.startswith(b"cannot keep echo | ")
    assert b"Too many open files" in done.stderr
    assert listener.told[1:] == ["end 71", "done 0"]


def test_killed_it_takes_the_program_with_it() -> None:
    with started("--", "sh", "-c", "echo $$; exec sleep 600") as process:
        pid = int(process.stdout.readline())
        process.kill()
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or "Z" in stat.read_text(), "its end")


@pytest.mark.parametrize("round_", range(10))
def test_a_signal_to_the_group_ends_the_program_whenever_it_comes(round_: int) -> None:
    """The supervisor must not take for itself a signal that was meant for a program that it has not
    started yet."""
    process = started("--", "sleep", "600", stdout=None, start_new_session=True)
    try:
        process.wait(0.004 * round_)  # somewhere between its first line and the program's
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_locale_is_what_was_given(given: dict[str, str]) -> None:
    """Python itself sets one, where it is C."""
    env = {"PATH": os.environ["PATH"], "LANG": "C", **given}
    done = keep("--", "sh", "-c", 'echo "$LANG ${LC_CTYPE-none}"', env=env)
    assert done.stdout.decode() == f"C {given.get('LC_CTYPE', 'none')}\n"


def test_a_colon_that_was_hidden_from_mpirun_is_back() -> None:
    hidden = ("\\:", "\\\\:", "a:", ":a", "\\", "")
    done = keep("--colons", "escaped", "--", "printf", "%s\\n", *hidden)
    assert done.stdout.decode().split("\n")[:-1] == [":", "\\:", "a:", ":a", "\\", ""]


def test_when_it_printed_is_told_by_a_clock_that_does_not_jump(tmp_path: Path) -> None:
    last_output = tmp_path / "last-output"
    last_output.write_text("00000000000000.000\n")
    begun = time.monotonic()
    keep("--last-output", str(last_output), "--", "true")
    assert last_output.read_text() == "00000000000000.000\n", "it printed nothing"
    keep("--last-output", str(last_output), "--", "echo", "up")
    assert begun - 0.001 <= float(last_output.read_text()) <= time.monotonic()


def test_the_environment_from_the_file_wins_but_for_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"A=file\0B=file\0a.b=odd\nname\0C=\xff\0")
    env = {"PATH": os.environ["PATH"], "A": "own", "B": "mpirun's -x", "ENTRYPOINT_KEEP": "B Z "}
    done = keep("--env", str(tmp_path / "env"), "--", "env", "-0", env=env)
    got = dict(pair.split(b"=", 1) for pair in done.stdout.split(b"\0") if pair)
    got.pop(b"PATH")
    assert got == {b"A": b"file", b"B": b"mpirun's -x", b"a.b": b"odd\nname", b"C": b"\xff"}


def test_what_a_program_leaves_running_prints_on_when_its_supervisor_has_ended(
    tmp_path: Path,
) -> None:
    program = "(until [ -e go ]; do sleep 0.02; done; echo late) & echo early; exit 3"
    process = started("--linger", "apart", "--", "sh", "-c", program, cwd=tmp_path)
    assert process.wait(60) == 3  # while what it left is still there
    (tmp_path / "go").touch()
    with process.stdout as out:
        assert out.read() == b"early\nlate\n"


def test_a_label_and_another_kind(tmp_path: Path, listener: Listener) -> None:
    words = ("--run-dir", str(tmp_path), *split("--kind program-rank --number 3 --label"))
    assert keep(*words, "[chief] ", "--", "echo", "up").stdout == b"[chief] up\n"
    assert listener.told == ["program-rank 3", "output 0", "end 0", "done 0"]


def test_a_stop_before_the_program_is_there(tmp_path: Path, listener: Listener) -> None:
    """It ended this process without a word, and the rank counted as killed by SIGKILL."""
    (tmp_path / "env").write_bytes(b"A=1\0" * 500_000)  # which holds it up
    words = ("--run-dir", str(tmp_path), "--env", str(tmp_path / "env"), "--", "sleep", "600")
    process = started(*words, stdout=None, start_new_session=True)
    until(lambda: listener.told, "the start line")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    assert listener.told == ["rank 0", "end 143", "done 0"]


@pytest.mark.control("a program runs whichever standard streams are closed")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = f"echo x; echo x >{ran}"
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *KEEP, "--", "sh", "-c", program]
    assert subprocess.run(words, timeout=60).returncode == 0
    assert ran.exists()
