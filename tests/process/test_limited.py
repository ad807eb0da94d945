"""Running a program that may hang, fail or print without end."""

from __future__ import annotations

import asyncio
import functools
import time
from pathlib import Path

import pytest

from entrypoint.system import limited, proc
from entrypoint.system.limited import LimitedRun, ask, run
from tests.waits import until

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("echo there >&2", LimitedRun(0, "there\n")),
        ("printf '\\377'", LimitedRun(0, "\ufffd")),
        ("echo here; echo bad >&2; exit 3", LimitedRun(3, "here\n", "ends with 3: bad")),
        ("echo here; kill -9 $$", LimitedRun(137, "here\n", "ends by signal 9: here")),
        ("echo here; exec sleep 600", LimitedRun(None, "here\n", "no answer within 1s")),
        ("exec >&- 2>&-; exec sleep 600", LimitedRun(None, "", "no answer within 1s")),
        ("echo here; sleep 600 &", LimitedRun(0, "here\n")),
        ("echo here; setsid sleep 600 &", LimitedRun(0, "here\n")),
    ],
)
def test_how_it_ends_and_what_it_prints(script: str, result: LimitedRun) -> None:
    limit = 1 if result.status is None else 600
    assert ask(("/bin/sh", "-c", script), ENV, limit) == result


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("echo here; echo there >&2; exit 3", LimitedRun(3, "here\nthere\n", "ends with 3: there")),
        ("echo here; exec sleep 600", LimitedRun(None, "here\n", "no end within 1s")),
    ],
)
def test_both_streams_in_their_order(script: str, result: LimitedRun) -> None:
    argv = ("/bin/sh", "-c", script)
    limit = 1 if result.status is None else 600
    assert asyncio.run(run(argv, ENV, limit, merged=True)) == result


@pytest.mark.parametrize("steps", range(8))
def test_a_stop_in_the_middle_of_the_start_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], steps: int
) -> None:
    pids = tmp_path / "pids"
    argv = ("/bin/sh", "-c", f"sleep 600 & echo $! $$ >{pids}.new; mv {pids}.new {pids}; wait")

    async def stopped() -> None:
        work = asyncio.create_task(run(argv, ENV, 600))
        for _ in range(steps):
            await asyncio.wait({asyncio.create_task(asyncio.wait({work}, timeout=0))})
        # on a busy machine the loop goes on long after the program, which has started by now or not
        deadline = time.monotonic() + 0.5
        while not pids.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        work.cancel()
        await asyncio.wait({work})

    asyncio.run(stopped())
    for pid in pids.read_text().split() if pids.exists() else ():
        until(functools.partial(proc.has_ended, int(pid)), "it is gone")
    assert capfd.readouterr().err == ""


def test_a_program_that_does_not_exist() -> None:
    assert ask(("/no/such",), ENV, 1) == LimitedRun(
        None, "", "cannot start: No such file or directory"
    )


def test_no_more_than_4_mib_are_read() -> None:
    """A broken tool that prints without end would take the memory of the node."""
    result = ask(("/bin/sh", "-c", "yes"), ENV, 600)
    assert (result.status, result.problem) == (None, "prints more than 4 MiB")
    assert len(result.output) == 4 << 20


def test_a_flood_from_the_background_is_not_kept() -> None:
    """The program has ended, and what it has left prints on for a second until it is cut off."""

    async def flood() -> int:
        pipes = limited._Pipes()
        pipes.process_exited()
        for _ in range(20):
            pipes.pipe_data_received(1, bytes(1 << 20))
        return len(pipes.data[1])

    assert asyncio.run(flood()) <= limited._MOST + (1 << 20)
