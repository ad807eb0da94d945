"""Logs as they are asked for: prefix, time, JSON and files; colour and the live line, on a terminal
alone."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.kept import OutputForm
from entrypoint.base.values import replace
from entrypoint.output.log import Logger
from entrypoint.spec.logs import LogsSpec
from tests.cluster import clean_environment
from tests.process.bench import Process
from tests.process.keeps import PLAIN, Make
from tests.waits import until

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
PROGRAM = "printf 'one\\n1%%\\r2%%\\r'; echo error >&2; printf last; exit 3"


def run(tmp_path: Path, *words: str, few: bool = False) -> subprocess.CompletedProcess[bytes]:
    env = {
        **clean_environment(),
        "ENTRYPOINT_RUN_DIR": str(tmp_path / "run"),
        "ENTRYPOINT_LOG_DIR": str(tmp_path / "log"),
    }
    argv = [sys.executable, "-m", "entrypoint", "run", "--launcher", "plain", *words]

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    limit = small if few else None
    return subprocess.run(
        argv, env=env, capture_output=True, stdin=subprocess.DEVNULL, preexec_fn=limit
    )


@pytest.mark.promise("logs that were not asked for cost nothing")
def test_without_them_the_program_takes_our_place(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "sh", "-c", PROGRAM)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"one\n1%\r2%\rlast", b"error\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run-state.json"], "the record alone"


@pytest.mark.control("logs that were not asked for cost nothing")
def test_a_prefix(tmp_path: Path) -> None:
    done = run(
        tmp_path, "--log-prefix", "[{job} {node} {rank} {stream}] ", "--", "sh", "-c", PROGRAM
    )
    begin = b"[job worker-0 0 stdout] "
    assert (done.returncode, done.stdout) == (
        3,
        b"".join(begin + each for each in (b"one\n", b"1%\r", b"2%\r", b"last\n")),
    )
    assert b"[job worker-0 0 stderr] error\n" in done.stderr


def test_the_time_is_on_all_lines(tmp_path: Path) -> None:
    begun = int(time.time())
    done = run(tmp_path, "--log-timestamps", "utc", "--", "sh", "-c", "echo one; exit 3")
    assert re.fullmatch(f"{TIME} one\n", done.stdout.decode())
    assert re.fullmatch(f"({TIME} \\[entrypoint\\] .*\n)+", done.stderr.decode())
    written = datetime.datetime.fromisoformat(done.stdout.decode()[:19] + "+00:00")
    assert begun <= written.timestamp() <= time.time()


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, "--log-format", "json", "--", "sh", "-c", PROGRAM)
    found = [json.loads(line) for line in done.stdout.splitlines() + done.stderr.splitlines()]
    ours = [each for each in found if each["stream"] == "entrypoint"]
    expected = ["one", "1%\r", "2%\r", "last"]
    assert [each["text"] for each in found if each["stream"] == "stdout"] == expected
    expected = [None, True, True, True]
    assert [each.get("partial") for each in found if each["stream"] == "stdout"] == expected
    assert [each["text"] for each in found if each["stream"] == "stderr"] == ["error"]
    assert ours[-1]["text"].endswith("exited with 3; exit 3")
    assert {(each["node"], each["rank"]) for each in ours} == {("worker-0", None)}
    host = socket.gethostname()
    for each in found:
        assert (each["job"], each["host"], each["attempt"]) == ("job", host, 1)
    assert (ours[-1]["level"], ours[-1]["id"]) == ("error", "EP600")
    assert {each["level"] for each in ours} <= {"info", "warning", "error"}
    assert all("level" not in each for each in found if each not in ours)


@pytest.mark.parametrize(("show", "is_shown"), [("0", True), ("1,3-7", False), ("4,0-2", True)])
def test_only_the_output_of_some_ranks_is_printed(
    show: str, is_shown: bool, tmp_path: Path
) -> None:
    done = run(tmp_path, "--log-show", show, "--log-files", "ranks", "--", "sh", "-c", PROGRAM)
    assert done.stdout == (b"one\n1%\r2%\rlast" if is_shown else b"")
    assert (b"\nerror\n" in b"\n" + done.stderr) == is_shown
    assert re.search(rb"\[entrypoint\]   \| .*error\n", done.stderr), "its last lines, as it fails"
    written = (tmp_path / "log" / "job-worker-0-rank-0.log").read_bytes()
    assert sorted(written) == sorted(b"one\n1%\r2%\rlasterror\n")


def test_a_line_of_several_ranks_is_printed_once(tmp_path: Path) -> None:
    """What each of them printed is in its file."""
    words = split("--launcher jax --slots 3 --log-collapse yes --log-files ranks -- sh -c")
    done = run(tmp_path, *words, "echo process $JAX_PROCESS_ID of 3; echo loss $JAX_PROCESS_ID")
    first, *losses = sorted(done.stdout.decode().splitlines(), key=lambda line: "loss" in line)
    assert re.fullmatch(r"\[rank (\d)\] process \1 of 3 \[x3: ranks 0-2\]", first)
    assert sorted(losses) == [f"[rank {rank}] loss {rank}" for rank in range(3)]
    for rank in range(3):
        written = (tmp_path / "log" / f"job-worker-0-rank-{rank}.log").read_text()
        assert written == f"process {rank} of 3\nloss {rank}\n"


@pytest.mark.control(
    "rotating files keep their size and name, and a full disk costs the file alone"
)
def test_a_file_of_each_rank_has_every_byte(tmp_path: Path) -> None:
    done = run(tmp_path, "--log-files", "ranks", "--", "sh", "-c", PROGRAM)
    assert done.stdout == b"one\n1%\r2%\rlast", "what is printed stays as it is"
    assert b"error" in done.stderr.splitlines()
    assert sorted((tmp_path / "log" / "job-worker-0-rank-0.log").read_bytes()) == sorted(
        b"one\n1%\r2%\rlasterror\n"
    )


@pytest.mark.promise(
    "rotating files keep their size and name, and a full disk costs the file alone"
)
def test_files_have_a_size_and_lines_stay_whole(tmp_path: Path, keeper: Make) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/log"
    program = "seq 10000; head -c 9000 /dev/zero | tr '\\0' x; echo; echo end"
    output = OutputForm(log=str(log), max_size=5000, max_files=4)
    with (tmp_path / "out").open("wb") as out:
        kept = keeper(stdout=out)
    kept.start("sh", "-c", program, form=replace(PLAIN, output=output))
    kept.ended()
    files = [log.with_name(name) for name in ("log.3", "log.2", "log.1", "log")]
    assert sorted(log.parent.iterdir()) == sorted(files), "four, and nothing of ours beside them"
    assert all(file.stat().st_size <= 5000 for file in files)
    written = [file.read_bytes() for file in files]
    assert (tmp_path / "out").read_bytes().endswith(b"".join(written)), (
        "the latest of it, without a gap"
    )
    assert written[0].endswith(b"\n"), "only a line that no file has room for is cut"
    assert written[-1].endswith(b"xxx\nend\n")


def test_a_file_s_name_is_always_there(tmp_path: Path, keeper: Make) -> None:
    """For those who read it by its name, as `tail -F` does; and who has it open reads it to its
    end."""
    log = tmp_path / "log"
    log.touch()
    program = "i=0; while [ $i -lt 40 ]; do seq 2000; i=$((i+1)); done"
    output = OutputForm(log=str(log), max_size=4096, max_files=3)
    kept = keeper(stdout=subprocess.DEVNULL)
    kept.start("sh", "-c", program, form=replace(PLAIN, output=output))
    looked = 0
    while "done 0" not in kept.told():
        assert log.exists()
        looked += 1
    assert looked > 1


@pytest.mark.promise(
    "rotating files keep their size and name, and a full disk costs the file alone"
)
@pytest.mark.parametrize("size", [0, 20000], ids=["any size", "a size of ours"])
@pytest.mark.parametrize("how", ["moved", "removed", "copied and cut"])
def test_a_file_that_logrotate_rotates_goes_on(
    how: str, size: int, tmp_path: Path, keeper: Make
) -> None:
    """Under its name, with what is printed from then on; what has been moved keeps what it had."""
    log, moved = tmp_path / "log", tmp_path / "old"
    program = (
        "echo begin; read go; sleep 1.2; i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done;"
        " echo last"
    )
    kept = keeper(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    output = OutputForm(log=str(log), max_size=size, max_files=2)
    kept.start("sh", "-c", program, form=replace(PLAIN, output=output))
    until(lambda: log.exists() and log.read_bytes() == b"begin\n", "its first line")
    if how == "copied and cut":
        moved.write_bytes(log.read_bytes())
        os.truncate(log, 0)
    elif how == "moved":
        log.rename(moved)
    else:
        log.unlink()
    assert kept.process.stdin is not None
    kept.process.stdin.write(b"go\n")
    kept.process.stdin.close()
    assert "end 0" in kept.ended()
    assert how == "removed" or moved.read_bytes() == b"begin\n"
    assert log.read_bytes() == b"".join(b"%d\n" % number for number in range(2000)) + b"last\n"


@pytest.mark.promise(
    "rotating files keep their size and name, and a full disk costs the file alone"
)
def test_a_full_disk_costs_the_copy_and_is_said_once(tmp_path: Path) -> None:
    program = "seq 100000; echo end >&2; sleep 0.2; seq 100000"
    done = run(
        tmp_path, *split("--log-files ranks --log-max-size 1000000 -- sh -c"), program, few=True
    )
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 200_000)
    said = [line for line in done.stderr.decode().splitlines() if "EP416" in line]
    assert said == [
        f"[entrypoint] warning: EP416 the copies of the ranks' output are incomplete | {tmp_path}/log:"
        " File too large | make room there, or set log_dir"
    ]
    assert (tmp_path / "log" / "job-worker-0-rank-0.log").stat().st_size == 100_000


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_log_that_cannot_be_written_is_the_reason(kind: str, tmp_path: Path) -> None:
    """The program does not run, and is not to blame."""
    log = tmp_path / "log/job-worker-0-rank-0.log"
    log.parent.mkdir()
    if kind == "folder":
        log.mkdir()
    elif kind == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to(tmp_path / "elsewhere")
    done = run(tmp_path, *split("--log-files ranks -- sh -c"), f"touch {tmp_path}/ran")
    last = done.stderr.decode().splitlines()[-1]
    words = f"EP410 cannot write the log of sh | {tmp_path}/log: "
    assert (done.returncode, last.startswith(f"[entrypoint] {words}")) == (73, True), last
    result = json.loads((tmp_path / "run-state.json").read_text())["result"]
    assert (result["class"], result["status"]) == ("config", 73)
    assert not (tmp_path / "ran").exists()


def is_full(pipe: int) -> bool:
    """Return whether a pipe has no room: after odd pieces that is long before its size."""
    with Path(f"/proc/self/fd/{pipe}").open("wb", 0) as end:
        return not select.select([], [end], [], 0)[1]


def test_a_reader_that_reads_no_more_holds_up_no_stop(tmp_path: Path) -> None:
    """The grace is for programs: what passes their lines on is not waited for."""
    env = {
        **clean_environment(),
        "ENTRYPOINT_RUN_DIR": str(tmp_path / "run"),
        "ENTRYPOINT_LOGS_PREFIX": "{rank} ",
        "ENTRYPOINT_TIMEOUTS_GRACE": "600",
    }
    words = split("-m entrypoint run --launcher jax --slots 2 -- yes")
    with Process(
        [sys.executable, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until(lambda: is_full(process.stdout.fileno()), "a pipe that is full")
        process.terminate()
        assert process.wait() == 143
        said = process.stderr.read().decode()
    lost = re.findall(r"EP628 output of the ranks is lost, (\d+) bytes at least", said)
    assert sum(map(int, lost)) > 0, said


def test_a_full_pipe_ends_with_a_whole_line(keeper: Make) -> None:
    """A message of the toolkit that comes then splits none."""
    kept = keeper()
    kept.start("seq", "100000", form=replace(PLAIN, output=OutputForm(lines="whole")))
    assert kept.process.stdout is not None
    pipe = kept.process.stdout.fileno()
    until(lambda: is_full(pipe), "a pipe that is full")
    assert os.read(pipe, 1 << 20).endswith(b"\n")


class Terminal:
    """A terminal whose screen nobody but us reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, term: str = "xterm", **env: str) -> None:
        self._ours, self.fd = os.openpty()
        monkeypatch.setenv("TERM", term)
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    def text(self) -> str:
        """What was written since the last look."""
        until(lambda: select.select([self._ours], [], [], 0)[0], "some text")
        return os.read(self._ours, 65536).decode()


@pytest.mark.control("colour and the live line are for a terminal and never mix with output")
@pytest.mark.parametrize(
    ("term", "env", "colours"),
    [
        ("xterm", {}, ("\033[36m[entrypoint]\033[m", "\033[33m[entrypoint]\033[m")),
        ("xterm", {"NO_COLOR": "1"}, ("[entrypoint]",) * 2),
        ("dumb", {}, ("[entrypoint]",) * 2),
    ],
    ids=["", "NO_COLOR", "dumb"],
)
def test_colour_is_for_a_terminal_that_wants_it(
    term: str, env: dict[str, str], colours: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch, term, **env)
    say = Logger(terminal.fd)
    for colour, text in zip(colours, ("all is well", "warning: a lion"), strict=True):
        say(text)
        assert terminal.text() == f"{colour} {text}\r\n"


@pytest.mark.promise(
    "colour and the live line are for a terminal and never mix with output",
    control="its case `control`",
)
def test_the_live_line_stays_below_all_others_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch, NO_COLOR="1")
    say = Logger(terminal.fd)
    assert say.live is not None
    say.live("1 of 2 nodes are here")
    assert terminal.text() == "\r\033[K1 of 2 nodes are here"
    say("news")
    shown = terminal.text()
    until(
        lambda: shown.endswith("here") or select.select([terminal._ours], [], [], 0)[0], "it again"
    )
    shown += "" if shown.endswith("here") else terminal.text()
    assert shown == "\r\033[K[entrypoint] news\r\n\r\033[K1 of 2 nodes are here"
    say.live("")
    assert terminal.text() == "\r\033[K", (
        "and it has gone when this returns: a program may write there now"
    )


def test_ctrl_c_leaves_nothing_of_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows `^C` behind it, twice for a second Ctrl-C: what goes into the next row stays
    when the line is erased."""
    terminal = Terminal(monkeypatch)
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
    say = Logger(terminal.fd)
    assert say.live is not None
    say.live("1 of 2 nodes are here, 2s of 600s | waiting for worker-1 (no DNS)")
    shown = terminal.text()
    assert "of 600s" in shown, "control: most of it is shown"
    for _ in range(2):
        os.write(terminal._ours, b"\x03")
        shown += terminal.text()
    assert shown.endswith("^C^C")
    say.live("")
    assert "".join(_screen(shown + terminal.text(), 40)) == ""


def _screen(text: str, columns: int) -> list[str]:
    """The rows of a terminal on which the text was printed."""
    rows, at = [""], 0
    for token in re.findall(r"\x1b\[K|.", text, re.DOTALL):
        if token == "\r":
            at = 0
        elif token == "\x1b[K":
            rows[-1] = rows[-1][:at]
        else:
            if at == columns:
                rows.append("")
                at = 0
            rows[-1] = rows[-1][:at] + token + rows[-1][at + 1 :]
            at += 1
    return rows


def test_a_log_has_no_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    assert Logger(writer).live is None
    terminal = Terminal(monkeypatch)
    say = Logger(terminal.fd)
    say.shape(LogsSpec(format="json"))
    assert say.live is None
    os.close(reader)
    os.close(writer)
