"""SIGTERM and user signals reach every process of a rank, in whatever process group, and SIGTERM
once."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path
from shlex import split

import pytest

from entrypoint.base.kept import KeptForm
from entrypoint.base.values import replace
from entrypoint.ranks import orders
from tests.process.bench import Bench
from tests.process.keeps import PLAIN, Keeper, Make
from tests.waits import until

# A program that notes each signal with its pid, and goes on saving for a while after the first
# SIGTERM.
COUNTS = """
import os, signal, sys, time
def note(words):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{words}\\n")
def heard(signum, frame):
    global ends
    if signum == signal.SIGTERM:
        ends = min(ends, time.monotonic() + 1.2)
    note(f"{signal.Signals(signum).name} {os.getpid()}")
ends = time.monotonic() + 600
for signum in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(signum, heard)
note(f"ready {os.getpid()}")
while time.monotonic() < ends:
    time.sleep(0.02)
"""
COUNTING = [sys.executable, "-c", COUNTS]
_IT = shlex.join(COUNTING)
PROGRAMS = {
    "python": COUNTING,
    "setsid": ["setsid", *COUNTING],
    "shell": ["sh", "-c", f"{_IT}; true"],
    "shell-own-groups": ["bash", "-m", "-c", f"{_IT} & {_IT} & wait"],
    "shell-setsid": ["sh", "-c", f"setsid {_IT} & {_IT}; true"],
    "timeout-shell": ["timeout", "600", "sh", "-c", f"{_IT} & {_IT}; true"],
    "two-timeouts": ["timeout", "600", "timeout", "500", *COUNTING],
}


def counts(notes: list[str], event: str) -> dict[str, int]:
    """How often each program that was ready had the signal."""
    ready = [note.split()[1] for note in notes if note.startswith("ready")]
    return {pid: notes.count(f"{event} {pid}") for pid in ready}


def programs_of(command: list[str]) -> int:
    return " ".join(command).count("SIGUSR1")


def started(keeper: Make, bench: Bench, command: list[str], form: KeptForm = PLAIN) -> Keeper:
    """A keeper with this program, once all that it starts runs."""
    kept = keeper()
    kept.start(*command, form=form, env=bench.env)
    until(lambda: len(counts(bench.notes, "")) == programs_of(command), "the programs")
    return kept


def tell(kept: Keeper, signum: int) -> None:
    kept.send(orders.SignalAll(orders.PROGRAM, signum))


@pytest.mark.promise("every process of a rank receives SIGTERM exactly once")
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_process_of_a_rank_hears_sigterm_once(name: str, bench: Bench, keeper: Make) -> None:
    """Programs in other process groups heard none, and those behind a shell two (issue 25, row
    10)."""
    kept = started(keeper, bench, PROGRAMS[name])
    tell(kept, signal.SIGTERM)
    kept.ended()
    heard = counts(bench.notes, "SIGTERM")
    assert set(heard.values()) == {1}, (heard, bench.notes)
    until(lambda: not bench.left(), "the end of all")


@pytest.mark.control("every process of a rank receives SIGTERM exactly once")
def test_a_launcher_s_processes_are_the_launcher_s_to_tell(bench: Bench, keeper: Make) -> None:
    """The control of the test above; what the launcher leaves is told when it has ended."""
    words = ["sh", "-c", f"trap '' TERM; setsid {_IT} & sleep 3"]
    kept = started(keeper, bench, words, replace(PLAIN, is_launcher=True))
    tell(kept, signal.SIGTERM)
    time.sleep(0.5)
    assert set(counts(bench.notes, "SIGTERM").values()) == {0}
    kept.ended()
    assert set(counts(bench.notes, "SIGTERM").values()) == {1}


@pytest.mark.parametrize("name", ["two-timeouts", "shell-own-groups"])
def test_every_process_that_asks_for_it_hears_a_user_signal(
    name: str, bench: Bench, keeper: Make
) -> None:
    kept = started(keeper, bench, PROGRAMS[name])
    for times in (1, 2):
        tell(kept, signal.SIGUSR1)
        heard = {times}
        until(lambda heard=heard: set(counts(bench.notes, "SIGUSR1").values()) == heard, "it")  # type: ignore[misc]
    tell(kept, signal.SIGTERM)
    kept.ended()
    until(lambda: not bench.left(), "the end of all")


FORKS = """
import os, time
os.setpgid(0, 0)
while True:
    if not os.fork():
        os.setpgid(0, 0)
        time.sleep(600)
        os._exit(0)
    time.sleep(0.002)
"""


def test_what_forks_while_it_is_told(bench: Bench, keeper: Make) -> None:
    """Each process in another group starts one more all the time; none that is older than the
    signal goes on."""
    kept = keeper()
    kept.start(sys.executable, "-c", FORKS, env=bench.env)
    until(lambda: len(bench.left()) > 20, "some processes")
    tell(kept, signal.SIGTERM)
    kept.ended()
    until(lambda: not bench.left(), "the end of all")


@pytest.mark.promise("every process of a rank receives SIGTERM exactly once")
@pytest.mark.parametrize(
    ("launcher", "name"), [("mpirun", "setsid"), ("pytorch", "two-timeouts"), ("plain", "shell")]
)
def test_a_stop_reaches_every_process_of_the_job_once(
    launcher: str, name: str, bench: Bench, tmp_path: Path
) -> None:
    flags = f"--launcher {launcher} --slots 1 --log-files ranks --log-dir {tmp_path}/logs --"
    run = [sys.executable, *split("-m entrypoint run"), *flags.split()]
    process = bench.popen([*run, *PROGRAMS[name]])
    until(lambda: len(counts(bench.notes, "")) == programs_of(PROGRAMS[name]), "the program")
    process.terminate()
    assert process.wait() == 143, bench.err
    assert set(counts(bench.notes, "SIGTERM").values()) == {1}, bench.notes
    until(lambda: not bench.left(), "the end of all")
