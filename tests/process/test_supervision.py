"""What the entrypoint owes a running job: its status, its signals, its grace, and nothing left
behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import split

import pytest

from tests.process.bench import Bench, marked
from tests.waits import until

# A rank that notes its SIGTERM and goes on.
STUBBORN = 'trap \'echo TERM >>"$NOTES"\' TERM; echo ready >>"$NOTES"; while :; do sleep 0.02; done'
# A rank that saves when it is told to stop, which takes a while.
SAVES = (
    'trap \'sleep 0.3; echo saved >>"$NOTES"; exit 0\' TERM; echo ready >>"$NOTES"; while :; do'
    " sleep 0.02; done"
)
WAITS = 'echo ready >>"$NOTES"; exec sleep 600'


def stop(process: subprocess.Popen[str], signum: int = signal.SIGTERM) -> int:
    """Its status after the signal."""
    process.send_signal(signum)
    return process.wait()


def nothing_left(bench: Bench) -> bool:
    until(lambda: not bench.left(), f"the end of {bench.left()}")
    return not bench.run_dir.exists()


# --------------------------------------------------------------------------------------------------
# The bench itself


@pytest.mark.control("no process of a job stays")
def test_the_bench_sees_what_is_left(bench: Bench) -> None:
    """The control of every `nothing_left`: a process in a session of its own is found."""
    process = bench.popen(["sh", "-c", "setsid sleep 600 & exit 0"])
    assert process.wait() == 0
    (stray,) = until(
        lambda: [pid for pid, line in bench.left().items() if "sleep 600" in line], "a stray"
    )
    os.kill(stray, signal.SIGKILL)
    until(lambda: not marked(bench.mark), "its end")


# --------------------------------------------------------------------------------------------------
# Exit statuses


def test_a_launcher_that_sleeps_when_every_rank_has_ended_well_is_ended(bench: Bench) -> None:
    """But not one that still passes on what ranks said, which takes longer here."""
    asleep, talks = bench.others(2)
    talking = talks.start("true", slots=1, FAKE_HANG="talk")
    sleeping = asleep.start("echo", "said", FAKE_HANG="after")
    assert sleeping.wait() == 0
    assert asleep.out == "said\nsaid\n"
    assert "EP613 mpirun is still running after all ranks exited; ending it" in asleep.err
    assert talking.wait() == 0
    assert talks.out.split() == ["0", "1", "2", "3"]
    assert "is still running" not in talks.err
    assert nothing_left(asleep)


@pytest.mark.control("a launcher that starts too few ranks is no success")
def test_all_ranks_well(bench: Bench) -> None:
    assert bench.run("sh", "-c", 'echo "$OMPI_COMM_WORLD_RANK"') == 0
    assert sorted(bench.out.splitlines()) == ["0", "1"]
    assert nothing_left(bench)


@pytest.mark.promise("a program runs whichever standard streams are closed")
@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(closed: str, bench: Bench) -> None:
    """The program did not run, and 71 was said to be its own (issue 25, row 14)."""
    run = [sys.executable, *split("-m entrypoint run --launcher pytorch -- sh -c")]
    run.append('echo x >"$NOTES"; exit 3')
    assert bench.popen(["sh", "-c", f'exec "$@" {closed}', "sh", *run]).wait() == 3
    assert bench.notes == ["x"]


def test_a_keeper_that_is_killed(bench: Bench) -> None:
    """All ranks end with it, and a launcher that hangs does, too."""
    program = ("sh", "-c", "kill -KILL $PPID; exec sleep 600")
    assert bench.run(*program, slots=1, FAKE_HANG="after") == 71
    assert "EP434 the keeper of this node's ranks was killed | " in bench.err
    assert nothing_left(bench)


@pytest.mark.parametrize("end", ["exit 143", "kill -TERM $$", "sh -c 'kill -TERM $$'; exit $?"])
def test_a_status_above_128_is_told_as_the_number_that_it_is(end: str, bench: Bench) -> None:
    """Only the number is known: of a program that exits with it, of one that a signal has ended,
    and of a shell whose command one has ended."""
    assert bench.run("sh", "-c", end, slots=1) == 143
    assert re.search(
        r"EP601 rank 0 on \S+ exited with 143 \(128 \+ SIGTERM\); exit 143\n", bench.err
    ), bench.err


def test_no_launcher_here(bench: Bench) -> None:
    (bench.folder / "bin" / "mpirun").write_text("#!/no/such/shell\n")
    assert bench.run("prog") in (126, 127)
    assert "Traceback" not in bench.err


# --------------------------------------------------------------------------------------------------
# What reaches a rank


def test_no_core_of_ours_is_written_and_a_rank_s_is(bench: Bench) -> None:
    """The secret is in our memory; a rank's core is its user's, where its limit allows one."""
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/")):
        pytest.skip("this machine's cores do not lie where a test would find them")
    run = [sys.executable, *split("-m entrypoint run --launcher mpirun --slots 1 -- sh -c")]
    run.append(f'sh -c "kill -ABRT \\$\\$"; ulimit -c; {WAITS}')
    process = bench.popen(["sh", "-c", 'ulimit -c unlimited && exec "$@"', "sh", *run])
    bench.await_notes("ready")
    (core,) = (bench.folder / "cwd").glob("core*")
    until(lambda: bench.out == "unlimited\n", "the rank's own limit")
    core.unlink()
    process.send_signal(signal.SIGABRT)
    assert process.wait() == -signal.SIGABRT
    assert list((bench.folder / "cwd").glob("core*")) == []
    until(lambda: not bench.left(), "the end of all")


# --------------------------------------------------------------------------------------------------
# Stopping


def test_ranks_that_do_not_stop_get_the_whole_grace(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="1.5")
    bench.await_notes("ready", "ready")
    begun = time.monotonic()
    assert stop(process) == 143
    assert time.monotonic() - begun >= 1.5, bench.err
    # Once each from us; the launcher may add one when the first of them is killed.
    assert bench.notes.count("TERM") >= 2, bench.err
    assert nothing_left(bench)


def test_ranks_that_save_are_not_kept_waiting(bench: Bench) -> None:
    process = bench.start("sh", "-c", SAVES, ENTRYPOINT_TIMEOUTS_GRACE="600")
    bench.await_notes("ready", "ready")
    assert stop(process) == 143
    assert bench.notes == ["ready", "ready", "saved", "saved"]
    assert "SIGTERM: stopping\n" in bench.err
    assert "the job was ended by SIGTERM (143); exit 143\n" in bench.err
    assert nothing_left(bench)


@pytest.mark.control("a stop gives every program SIGTERM, then the grace, then SIGKILL")
def test_no_grace_at_all(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="0")
    bench.await_notes("ready", "ready")
    assert stop(process) == 143
    assert nothing_left(bench)


@pytest.mark.promise("a second signal skips the grace")
def test_a_second_signal_skips_the_grace(bench: Bench) -> None:
    process = bench.start("sh", "-c", STUBBORN, ENTRYPOINT_TIMEOUTS_GRACE="600")
    bench.await_notes("ready", "ready")
    process.terminate()
    bench.await_notes("TERM", "TERM", "ready", "ready")
    assert stop(process) == 143
    assert "SIGTERM again: not waiting for the grace to end\n" in bench.err
    assert nothing_left(bench)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_stop_too(signum: int, bench: Bench) -> None:
    process = bench.start("sh", "-c", WAITS)
    bench.await_notes("ready", "ready")
    assert stop(process, signum) == 128 + signum
    assert nothing_left(bench)


def test_a_stop_before_any_rank(bench: Bench) -> None:
    process = bench.start("prog", FAKE_HANG="before", ENTRYPOINT_TIMEOUTS_GRACE="600")
    until(lambda: (bench.folder / "record").exists(), f"mpirun; {bench.err}")
    assert stop(process) == 143
    assert nothing_left(bench)


# --------------------------------------------------------------------------------------------------
# Nothing left


@pytest.mark.promise("no process of a job stays")
@pytest.mark.parametrize("program", ["exit 0", "exit 1"])
def test_a_daemon_is_ended_too(program: str, bench: Bench) -> None:
    """As is a child that holds stdout."""
    daemons = "sleep 600 & setsid sh -c 'sleep 600 & sleep 600' &"
    assert bench.run("sh", "-c", f"{daemons} {program}") == int(program[-1])
    assert nothing_left(bench)
