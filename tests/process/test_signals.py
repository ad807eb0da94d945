"""Signals at moments when no program of the job runs yet, or any more: each is heard, once, and is
the job's end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from shlex import split
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from entrypoint.ranks.node_ranks import DaemonRanks
from entrypoint.system.signals import Signals
from tests.process.bench import Bench, executable
from tests.waits import PATIENCE, until

RUN = "from entrypoint.cli import script; script()"
# The folder of the hooks is the image's; here the first argument is.
HOOKED = (
    "import sys; from pathlib import Path; from entrypoint.ranks import hooks; hooks.FOLDER ="
    " Path(sys.argv.pop(1))"
)
FIRST = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
CAN_BE_FIRST = subprocess.run([*FIRST, "true"], capture_output=True, check=False).returncode == 0


def hooked(
    bench: Bench, script: str, *words: str, first: bool = False, **env: str
) -> subprocess.Popen[str]:
    """A job of one node, under a launcher that boots it, with this start hook."""
    folder = executable(bench.folder / "start.d/10-hook", script).parent
    job = (*split("run --launcher mpirun --slots 1"), *words, "--", *split("sh -c"))
    argv = [*(FIRST if first else ()), sys.executable, "-c", f"{HOOKED}; {RUN}", str(folder), *job]
    return bench.popen([*argv, 'echo job >>"$NOTES"'], env)


def result(bench: Bench) -> dict[str, object]:
    read: dict[str, object] = json.loads((bench.folder / "run-state.json").read_text())["result"]
    return read


def test_a_placeholder_that_is_reported_late_holds_up_no_stop() -> None:
    """It stands for a rank, and ends after the stop: the keeper's word on it may come during that."""
    seen = iter([[os.getpid()], [os.getpid()], []])
    ranks = object.__new__(DaemonRanks)
    ranks._spawned = [os.getpid()]
    ranks.keeping = SimpleNamespace(spawned=lambda: next(seen))
    ranks.ranks = SimpleNamespace(gone=AsyncMock())
    asyncio.run(asyncio.wait_for(ranks.gone(), PATIENCE))
    assert ranks.ranks.gone.await_count == 3


@pytest.mark.promise("a stop is heard before anything slow, hooks included")
@pytest.mark.parametrize("first", [False, True], ids=["", "as PID 1"])
def test_a_stop_during_a_start_hook(bench: Bench, first: bool) -> None:
    """The hook may tidy up, also a program of it in another group, the job does not run, and the
    end is told like any other."""
    if first and not CAN_BE_FIRST:
        pytest.skip("no namespaces here")
    # It takes longer than the hook's own shell, which ends at once.
    tidies = (
        'trap \'sleep 0.3; echo tidy >>"$NOTES"; exit 0\' TERM; echo ready >>"$NOTES"; while :; do'
        " sleep 0.02; done"
    )
    process = hooked(bench, f"timeout 600 sh -c {shlex.quote(tidies)}", first=first)
    bench.await_notes("ready")
    pid = process.pid
    if first:
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, signal.SIGTERM)
    assert process.wait() == 143
    assert bench.notes == ["ready", "tidy"]
    assert bench.err.endswith("ended by SIGTERM (143) before the job started; exit 143\n")
    assert (result(bench)["status"], result(bench)["class"]) == (143, "stopped")
    assert not bench.left()


@pytest.mark.promise("a deadline stops the job with 72 and its grace, under every launcher")
def test_a_deadline_during_a_start_hook(bench: Bench) -> None:
    """The hook gets SIGTERM, and no rank starts."""
    tidies = "trap 'echo tidy >>\"$NOTES\"; exit 0' TERM; while :; do sleep 0.02; done"
    process = hooked(bench, tidies, ENTRYPOINT_TIMEOUTS_JOB="1")
    assert process.wait() == 72
    assert bench.notes == ["tidy"]
    assert (result(bench)["status"], result(bench)["class"]) == (72, "stopped")


@pytest.mark.promise("a deadline stops the job with 72 and its grace, under every launcher")
@pytest.mark.parametrize(
    "seconds", [0.0001, 0.005, *(hundredth / 100 for hundredth in range(1, 7))]
)
def test_a_deadline_while_the_program_starts(seconds: float, bench: Bench) -> None:
    """A program that has started gets its grace, and none starts after the deadline."""
    saves = "trap 'sleep 0.2; echo saved; exit' TERM; echo started; while :; do sleep 0.02; done"
    argv = [sys.executable, *split("-m entrypoint run --launcher jax --slots 1 -- sh -c"), saves]
    process = bench.popen(argv, {"ENTRYPOINT_TIMEOUTS_JOB": str(seconds)})
    assert process.wait() == 72
    printed = [line for line in ("started", "saved") if f"{line}\n" in bench.out]
    assert printed in ([], ["started", "saved"]), bench.err
    assert printed == [] or seconds > 0.0001


def test_a_start_hook_that_does_not_stop(bench: Bench) -> None:
    """A second signal ends it, and what it started."""
    stays = "trap '' TERM; sleep 600 & setsid sleep 600 & echo ready >>\"$NOTES\"; wait; wait"
    process = hooked(bench, stays)
    bench.await_notes("ready")
    process.terminate()
    until(lambda: "SIGTERM: stopping\n" in bench.err, "the first")
    process.terminate()
    assert process.wait() == 143
    until(lambda: not bench.left(), "the end of all")


def test_a_start_hook_s_own_75_is_tried_once(bench: Bench) -> None:
    process = hooked(bench, 'echo hook >>"$NOTES"; exit 75', "--restarts", "2")
    assert process.wait() == 75
    assert bench.notes == ["hook"]
    assert "again" not in bench.err
    assert result(bench)["class"] == "job"


@pytest.mark.control("a stop is heard before anything slow, hooks included")
def test_what_was_ignored_stays_ignored(bench: Bench) -> None:
    """As under nohup; other signals stop it all the same."""
    run = f'exec {sys.executable} -m entrypoint run --launcher mpirun --slots 1 -- sh -c "$0"'
    program = 'echo ready >>"$NOTES"; exec sleep 600'
    process = bench.popen(["sh", "-c", f"trap '' HUP; {run}", program])
    bench.await_notes("ready")
    process.send_signal(signal.SIGHUP)
    process.terminate()
    assert process.wait() == 143
    assert "SIGHUP" not in bench.err


@pytest.mark.promise("a stop is heard before anything slow, hooks included")
def test_a_stop_while_the_spec_is_read(bench: Bench) -> None:
    spec = bench.folder / "spec"
    os.mkfifo(spec)
    argv = [sys.executable, *split("-m entrypoint run --spec"), str(spec), "--", "true"]
    process = bench.popen(argv)
    # Opened for writing, it is being read: from then on we are past our start.
    writer = os.open(spec, os.O_WRONLY)
    process.terminate()
    assert process.wait() == 143
    os.close(writer)
    said = "EP611 ended by SIGTERM (143) before the job started; exit 143"
    assert bench.err == f"[entrypoint] {said}\n"


@pytest.mark.promise("a stop between two attempts ends every node with 143")
def test_a_stop_that_one_attempt_has_heard_too_late_is_given_to_the_next() -> None:
    """It is said once, and is the first one of each attempt."""
    said: list[str] = []
    given: list[tuple[int, bool]] = []
    signals = Signals(said.append)
    signals.hold()

    async def attempt(stops: int) -> None:
        signals.take(lambda signum, again: given.append((signum, again)))
        for _ in range(stops):
            signals._on_signal(signal.SIGTERM, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(attempt(0))
    assert given == []
    asyncio.run(attempt(1))
    assert given == [(15, False)]
    signals._on_signal(signal.SIGTERM, None)  # between two attempts
    assert given == [(15, False)]
    asyncio.run(attempt(0))
    assert given == [(15, False), (15, False), (15, True)]
    assert said == ["SIGTERM: stopping", "SIGTERM again: not waiting for the grace to end"]


@pytest.mark.parametrize(
    ("signum", "same", "count"),
    [(signal.SIGTERM, 600, 1), (signal.SIGTERM, 0, 2), (signal.SIGINT, 600, 2)],
)
def test_two_signals_of_timeout_are_one_and_each_ctrl_c_counts(
    signum: int, same: float, count: int
) -> None:
    """timeout(1) signals its child, and then the group."""
    said: list[str] = []
    signals = Signals(said.append, same)
    signals.hold()

    async def job() -> None:
        signals.take(lambda signum, again: None)
        signals._on_signal(signum, None)
        signals._on_signal(signum, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(job())
    assert len(said) == count
