"""What the entrypoint makes of what comes on its node socket, to which any program of the job may
connect."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base import supervised
from entrypoint.ranks.reports import Ranks
from entrypoint.system.files import RunDir
from entrypoint.system.nodesocket import NodeSocket
from tests.process.bench import Bench, until

NO_PIDFD = Path(__file__).with_name("no_pidfd.py")
Heard = list[tuple[str, int, int]]


# What a process that stands for a supervisor does: sends these lines, waits to be looked at, and
# stays if told to.
SPEAKS = """
import socket, sys, time
socket_file, lines, stays = sys.argv[1:]
told = socket.socket(socket.AF_UNIX)
told.connect(socket_file)
told.sendall(lines.encode("latin-1").decode("unicode_escape").encode("latin-1"))
told.recv(1)
time.sleep(600 if stays == "yes" else 0)
"""


def sent(*events: str) -> str:
    """The lines of these events, such as `rank 0` and `end 7`."""
    pairs = (event.split(" ", 1) for event in events)
    return "".join(f'["{name}", {value}]\\n' for name, value in pairs)


def speaks(folder: Path, lines: str, stays: str = "yes") -> subprocess.Popen[bytes]:
    """A process that sends these lines. It stays, or leaves when it was looked at ("heard")."""
    words = (str(folder / "run/node"), lines, stays)
    return subprocess.Popen([sys.executable, "-c", SPEAKS, *words])


@contextmanager
def listening(tmp_path: Path, report: Callable[[str, int, int], None]) -> Iterator[Ranks]:
    """An entrypoint's node socket and its ranks, of which `report` gets the starts and ends."""
    run_dir = RunDir(str(tmp_path / "run"))
    node = NodeSocket(run_dir)
    ranks = Ranks(node, report)
    try:
        yield ranks
    finally:
        ranks.close()
        node.close()
        run_dir.close()


def heard(
    tmp_path: Path, work: Callable[[], list[subprocess.Popen[bytes]]], *, reports: int
) -> Heard:
    """All that is reported of the processes that `work` starts, until there are so many reports and
    all have ended."""

    async def listen() -> Heard:
        enough = asyncio.Event()
        got: Heard = []

        def report(event: str, rank: int, value: int) -> None:
            got.append((event, rank, value))
            if len(got) >= reports:
                enough.set()

        with listening(tmp_path, report) as ranks:
            processes = work()
            await asyncio.wait_for(enough.wait(), 10)
            for process in processes:
                process.kill()
                process.wait()
            await asyncio.wait_for(ranks.gone(), 10)
        return got

    return asyncio.run(listen())


def without_pids(got: Heard) -> Heard:
    return [(event, rank, 0 if event == "start" else value) for event, rank, value in got]


@pytest.mark.parametrize(
    "junk",
    [
        sent("end 256", "end -1", "end true", "end 0.0", 'end "0"', "end [0]", "done 1", "lost 1e9"),
        sent("rank 1", "program-rank 1", 'agent "node-0"', "stacks null", "unknown 0"),
        'end 0 0\\n[]\\n{}\\n0\\n["end"]\\n["end", 0, 0]\\n[["end"], 0]\\n\\0\\xff\\n\\n' + "[" * 10000 + "\\n",
        sent("end 9" + "9" * 5000, "output NaN", "tail 0", 'tail "x"'),
    ],
    ids=["values", "names", "no-lines", "numbers"],
)  # fmt: skip
def test_what_is_no_line_of_a_supervisor_changes_nothing(junk: str, tmp_path: Path) -> None:
    lines = f"{sent('rank 0')}{junk}{sent('end 7', 'end 0', 'done 0')}"
    got = heard(tmp_path, lambda: [speaks(tmp_path, lines)], reports=2)
    assert without_pids(got) == [("start", 0, 0), ("end", 0, 7)]


# A supervisor whose program connects, too, once the supervisor is known, and then ends with 7.
LIES = """
import socket, subprocess, sys
socket_file, speaks, lies, in_child = sys.argv[1:]
told = socket.socket(socket.AF_UNIX)
told.connect(socket_file)
told.sendall(b'["rank", 1]\\n')
told.recv(1)
if in_child == "True":
    subprocess.run([sys.executable, "-c", speaks, socket_file, lies, "heard"])
else:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(socket_file)
        other.sendall(lies.encode().decode("unicode_escape").encode())
told.sendall(b'["end", 7]\\n["done", 0]\\n')
"""


@pytest.mark.promise("a program cannot report for its supervisor, and its failure is never 0")
@pytest.mark.parametrize("in_child", [True, False])
@pytest.mark.parametrize("rank", [1, 5], ids=["its-own", "another-rank"])
def test_a_program_cannot_report_for_its_supervisor(
    rank: int, in_child: bool, tmp_path: Path
) -> None:
    """Neither as a process of its own, nor as the supervisor's, on a second connection."""
    lies = sent(f"rank {rank}", "end 0", "done 0")
    words = [sys.executable, "-c", LIES, str(tmp_path / "run/node"), SPEAKS, lies, str(in_child)]
    got = heard(tmp_path, lambda: [subprocess.Popen(words)], reports=2)
    assert without_pids(got) == [("start", 1, 0), ("end", 1, 7)]


@pytest.mark.parametrize("is_another", [False, True], ids=["the-same", "another"])
def test_what_a_supervisor_said_before_its_end_counts_first(
    is_another: bool, tmp_path: Path
) -> None:
    """It has ended before anybody could read; its second connection is no rank that has started
    again, as another process is."""

    async def listen() -> Heard:
        got: Heard = []
        with listening(tmp_path, lambda *report: got.append(report)):
            path, again = str(tmp_path / "run/node"), sent("rank 1", "end 0", "done 0")
            lies = sent("rank 7") if is_another else again
            slow = LIES.replace("told.recv(1)", "told.recv(1); __import__('time').sleep(0.2)")
            first = subprocess.Popen([sys.executable, "-c", slow, path, SPEAKS, lies, "False"])
            while not got:
                await asyncio.sleep(0.01)
            os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # the loop stands still
            second = [speaks(tmp_path, again, "heard")] if is_another else []
            if second:
                time.sleep(1)  # until it has connected
            while len(got) < 2 + 2 * is_another:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            for process in (first, *second):
                process.kill()
                process.wait()
        return got

    got = without_pids(asyncio.run(asyncio.wait_for(listen(), 20)))
    assert got[:2] == [("start", 1, 0), ("end", 1, 7)]
    assert got[2:] == [("start", 1, 0), ("end", 1, 0)] * is_another


AWAY = (
    "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid)"
)


def test_a_process_that_is_not_below_us_is_no_supervisor(tmp_path: Path) -> None:
    """Such as what somebody starts with `docker exec`; the control is one that is below us."""
    lines = sent("rank 5", "end 0")
    words = [sys.executable, "-c", SPEAKS, str(tmp_path / "run/node"), lines, "yes"]

    def work() -> list[subprocess.Popen[bytes]]:
        # Its parent ends at once, and it becomes the child of process 1 or of a subreaper above
        # this one.
        away = [sys.executable, "-c", AWAY, *words]
        strays.append(int(subprocess.run(away, stdout=subprocess.PIPE, check=True).stdout))
        return [speaks(tmp_path, sent("rank 0", "end 0", "done 0"))]

    strays: list[int] = []
    got = heard(tmp_path, work, reports=2)
    os.kill(strays[0], 9)
    assert without_pids(got) == [("start", 0, 0), ("end", 0, 0)]


def test_a_rank_that_starts_again_before_its_end_was_noticed(tmp_path: Path) -> None:
    """As torch starts one."""

    async def listen() -> Heard:
        got: Heard = []
        with listening(tmp_path, lambda *report: got.append(report)):
            first = speaks(tmp_path, sent("rank 0"))
            while not got:
                await asyncio.sleep(0.01)
            first.kill()
            os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # nobody has waited for it
            second = speaks(tmp_path, sent("rank 0", "end 5", "done 0"))
            while len(got) < 4:
                await asyncio.sleep(0.01)
            for process in (first, second):
                process.kill()
                process.wait()
        return got

    got = without_pids(asyncio.run(asyncio.wait_for(listen(), 20)))
    expected = [("start", 0, 0), ("end", 0, 137), ("start", 0, 0), ("end", 0, 5)]
    assert got == expected


def test_sixty_four_ranks_that_start_while_nobody_reads(tmp_path: Path) -> None:
    """A frozen entrypoint: each supervisor runs its program and waits, and every report is there
    afterwards, with the last output as long as it may be."""

    async def listen() -> tuple[Heard, list[int | None]]:
        got: Heard = []

        def report(event: str, rank: int, value: int) -> None:
            got.append((event, rank, value))
            if event == "end":
                lengths.add(len("".join(ranks.last_output(rank))) if rank else 16384)

        with listening(tmp_path, report) as ranks:
            keep = [sys.executable, "-I", "-S", supervised.FILE, "--run-dir", str(tmp_path / "run")]
            keep += ["--linger", "1", "--number"]
            started = [
                subprocess.Popen(
                    [*keep, str(rank), "--", "sh", "-c", f"head -c 20000 /dev/zero; exit {rank}"],
                    stdout=subprocess.DEVNULL,
                )
                for rank in range(64)
            ]
            time.sleep(5)
            early = [process.poll() for process in started]
            while sum(event == "end" for event, _, _ in got) < 64:
                await asyncio.sleep(0.05)
            assert [process.wait(60) for process in started] == list(range(64))
        return got, early

    lengths: set[int] = set()
    got, early = asyncio.run(asyncio.wait_for(listen(), 60))
    ends = sorted((rank, value) for event, rank, value in got if event == "end")
    assert ends == [(rank, rank) for rank in range(64)]
    assert lengths == {16384}, "rank 0 has not failed"
    assert early == [None] * 64, "one left before it was heard of"


def test_a_supervisor_that_is_killed_where_the_kernel_has_no_pidfd(bench: Bench) -> None:
    """Nothing ever said that it was gone, and the node waited forever."""
    program = ["sh", "-c", "kill -KILL $PPID; exec sleep 600"]
    run = [sys.executable, *split("-m entrypoint run --launcher mpirun --slots 1 --"), *program]
    process = bench.popen([sys.executable, str(NO_PIDFD), *run], {"FAKE_HANG": "after"})
    assert process.wait(60) == 137, bench.err
    assert "exited with 137 (128 + SIGKILL); exit 137" in bench.err
    until(lambda: not bench.left(), "the end of all")


def test_a_stop_waits_for_what_a_program_left_where_the_kernel_has_no_pidfd() -> None:
    code = (
        "import asyncio, subprocess, time; from entrypoint.system import children\nchild ="
        " subprocess.Popen(['sleep', '0.3'])\nbegun = time.monotonic();"
        " asyncio.run(children.gone([child.pid])); print(time.monotonic() - begun)\n"
    )
    took = subprocess.run(
        [sys.executable, str(NO_PIDFD), sys.executable, "-c", code], capture_output=True, timeout=60
    )
    assert float(took.stdout) > 0.2, took
