"""What the entrypoint makes of the lines in its pipe, which any program of the job may write into."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host.files import RunDir
from entrypoint.programs.ranks import Ranks
from tests.process.bench import Bench, until

NO_PIDFD = Path(__file__).with_name("no_pidfd.py")
Heard = list[tuple[str, int, int]]


def heard(
    tmp_path: Path, work: Callable[[Path, int], None], *, reports: int, meanwhile: Callable[[], None] | None = None
) -> Heard:
    """All that is reported of a supervisor, once `work`, given the pipe and its pid, has been done, until so many.

    `meanwhile` happens while the first of them is told, and nothing is heard.
    """

    async def listen() -> Heard:
        enough = asyncio.Event()
        got: Heard = []

        def report(event: str, rank: int, value: int) -> None:
            got.append((event, rank, value))
            if meanwhile and len(got) == 1:
                meanwhile()
            if len(got) >= reports:
                enough.set()

        run_dir = RunDir(str(tmp_path / "run"))
        ranks = Ranks(run_dir, report)
        supervisor = await asyncio.create_subprocess_exec("sleep", "600")
        await asyncio.to_thread(work, run_dir.path / "ranks", supervisor.pid)
        await asyncio.wait_for(enough.wait(), 10)
        supervisor.kill()
        await supervisor.wait()
        await asyncio.wait_for(ranks.gone(), 10)
        ranks.close()
        run_dir.close()
        return got

    return asyncio.run(listen())


@pytest.mark.parametrize(
    "junk",
    [
        b"end 0 0 and more",
        b"start 1 1\nstart 2 %d\nstart 3 999999999999999999999\n" % os.getpid(),
        b"start 99999999999999999999 5\nend 0 256\nend 0 -1\nend 0 \xb2\nend 7 0\ndone 0 0\n\0\xff\n\n",
        b"x" * 60000,
    ],
    ids=["no-end", "pids", "numbers", "long"],
)
def test_what_is_no_line_of_a_supervisor_changes_nothing(junk: bytes, tmp_path: Path) -> None:
    def work(pipe: Path, pid: int) -> None:
        with open(pipe, "wb", buffering=0) as told:
            told.write(b"\nstart 0 %d\n" % pid)
            told.write(junk)
            told.write(b"\nstart 0 %d\n\nend 0 7\n\nend 0 0\n\ndone 0 0\n" % pid)

    got = heard(tmp_path, work, reports=2)
    assert [(event, rank, value if event == "end" else 0) for event, rank, value in got] == [
        ("start", 0, 0),
        ("end", 0, 7),
    ]


def test_a_rank_may_be_gone_before_it_is_heard_of(tmp_path: Path) -> None:
    """On a busy machine `true` was never believed to have started, and the job was 78."""

    def work(pipe: Path, pid: int) -> None:
        brief = subprocess.Popen(["true"])
        brief.wait()
        with open(pipe, "wb", buffering=0) as told:
            told.write(b"\nstart 3 %d\n\nend 3 0\n\ndone 3 0\n\nend 3 0\n" % brief.pid)
            told.write(b"\nstart 0 %d\n" % pid)  # the control: this one runs

    got = heard(tmp_path, work, reports=3)
    assert [(event, rank) for event, rank, _ in got[:3]] == [("start", 3), ("end", 3), ("start", 0)]
    assert got[1] == ("end", 3, 0)


def test_a_rank_may_be_killed_before_it_is_heard_of(tmp_path: Path) -> None:
    def work(pipe: Path, pid: int) -> None:
        brief = subprocess.Popen(["true"])
        brief.wait()
        with open(pipe, "wb", buffering=0) as told:
            told.write(b"\nstart 3 %d\n" % brief.pid)

    got = heard(tmp_path, work, reports=2)
    assert [(event, rank, value if event == "end" else 0) for event, rank, value in got[:2]] == [
        ("start", 3, 0),
        ("end", 3, 137),
    ]


def test_a_brief_rank_in_one_reading_with_a_rank_that_starts_again(tmp_path: Path) -> None:
    """Its end line, further down, was not waited for, and it counted as killed."""

    first, brief = subprocess.Popen(["sleep", "600"]), subprocess.Popen(["true"])
    brief.wait()
    supervisor = 0

    def work(pipe: Path, pid: int) -> None:
        nonlocal supervisor
        supervisor = pid
        pipe.write_bytes(b"\nstart 0 %d\n" % first.pid)

    def meanwhile() -> None:
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        lines = b"\nstart 3 %d\n\nstart 0 %d\n\nend 3 0\n\nend 0 5\n" % (brief.pid, supervisor)
        (tmp_path / "run" / "ranks").write_bytes(lines)

    got = heard(tmp_path, work, reports=6, meanwhile=meanwhile)
    first.wait()
    assert [(event, rank, value if event == "end" else 0) for event, rank, value in got] == [
        ("start", 0, 0),
        ("end", 0, 137),
        ("start", 0, 0),
        ("start", 3, 0),
        ("end", 3, 0),
        ("end", 0, 5),
    ]


def test_a_supervisor_that_is_killed_where_the_kernel_has_no_pidfd(bench: Bench) -> None:
    """Nothing ever said that it was gone, and the node waited for ever."""
    program = ["sh", "-c", "kill -KILL $PPID; exec sleep 600"]
    run = [sys.executable, "-m", "entrypoint", "run", "--launcher", "mpirun", "--slots", "1", "--", *program]
    process = bench.popen([sys.executable, str(NO_PIDFD), *run], {"FAKE_HANG": "after"})
    assert process.wait(20) == 137, bench.err
    assert "was ended by SIGKILL (137); exit 137" in bench.err
    until(lambda: not bench.left(), "the end of all", 5)


def test_a_stop_waits_for_what_a_program_left_where_the_kernel_has_no_pidfd(tmp_path: Path) -> None:
    code = (
        "import asyncio, subprocess, time; from entrypoint.host import children\n"
        "child = subprocess.Popen(['sleep', '0.3'])\n"
        "begun = time.monotonic(); asyncio.run(children.gone([child.pid])); print(time.monotonic() - begun)\n"
    )
    took = subprocess.run([sys.executable, str(NO_PIDFD), sys.executable, "-c", code], capture_output=True, timeout=20)
    assert 0.2 < float(took.stdout) < 5, took
