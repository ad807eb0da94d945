"""Ten thousand nodes: what a leader of 9,999 simulated workers costs, next to one of 999."""

from __future__ import annotations

import signal
import time

from entrypoint import heartbeat

from ..engine import Failed
from ..figures import Goal, by_name
from ..machine import peak_of
from ..nodes import Nodes
from ..page import About
from ..simulated import Simulated, leader_of
from ..table import Row, Table
from .rollcall import CPU, MEMORY, OURS, SIMULATED_WORKER, called, cpu_share

FEW, MANY = 999, 9_999
_CPU_PER = "leader's CPU per worker"
_BEATS, _BEAT_PER = "heartbeats", "a ping and its answer"
_LOST, _RELEASE, _LOGINS = "a lost worker is noticed", "release", "logins"
_STOP = "release after a loss"
_UNITS = {
    OURS: "s", CPU: "s", _CPU_PER: "ms", MEMORY: "MB", _BEATS: "% of a core", _BEAT_PER: "us",
    _RELEASE: "s", _LOGINS: "", _LOST: "s", _STOP: "s",
}  # fmt: skip
_TIMEOUT = 15.0  # seconds: the default of timeouts.heartbeat
_MOST = 600.0  # seconds for a roll call: on a busy machine it takes long


def measure(table: Table) -> None:
    """Few and many workers; then what a worker of many costs over one of few."""
    sizes = (2, 3) if table.quick else (FEW, MANY)
    for _ in range(table.runs):
        for workers in sizes:
            table.take_all(_case(workers), _UNITS, _jobs, workers, 6.0 if table.quick else 30.0)
    few, many = (by_name(table.series())[_case(workers), _CPU_PER] for workers in sizes)
    for one, other in zip(many.runs, few.runs, strict=True):
        failed = isinstance(one, str) or isinstance(other, str)
        ratio = "no number" if failed else float(one) / float(other)
        table.add(f"{sizes[1]} over {sizes[0]}", _CPU_PER, "", ratio)


def _case(workers: int) -> str:
    return f"{workers} simulated workers"


def _jobs(workers: int, seconds: float) -> dict[str, float]:
    """Two jobs: one whose programs end well, after so many seconds of heartbeats, and one that
    loses a worker."""
    with leader_of(workers) as (made, simulated):
        found = _boot(made, workers)
        beats = cpu_share(made.processes[0].pid, seconds)
        memory, _ = peak_of(made.processes[0].pid)
        simulated.signal(signal.SIGUSR1)
        (made.folder / "end").touch()
        released = _ended(made, simulated, workers, 0)
    per_ping = beats / 100 * heartbeat.interval(_TIMEOUT, workers + 1) / workers * 1e6
    with leader_of(workers) as (made, simulated):
        _boot(made, workers)
        simulated.silence_one(signal.SIGUSR2)
        lost = _noticed(made, 60)
        stopped = _ended(made, simulated, workers - 1, 75)
    return {
        OURS: found[OURS], CPU: found[CPU], _CPU_PER: found[CPU] / workers * 1e3, MEMORY: memory,
        _BEATS: beats, _BEAT_PER: per_ping,
        _RELEASE: released[0], _LOGINS: released[1], _LOST: lost, _STOP: stopped[0],
    }  # fmt: skip


def _boot(made: Nodes, workers: int) -> dict[str, float]:
    """Start a leader whose program runs until the folder has a file `end`."""
    wait = f"while [ ! -e {made.folder}/end ]; do sleep 0.2; done"
    return called(made, workers, _MOST, "sh", "-c", wait)


def _noticed(made: Nodes, seconds: float) -> float:
    """Seconds until the leader says that a worker is lost. Raises Failed."""
    begun = time.monotonic()
    while " is lost: nothing heard" not in made.said():
        if time.monotonic() - begun > seconds:
            raise Failed(f"no worker is lost after {seconds:g} s: {made.said()[-200:]}")
        time.sleep(0.05)
    return time.monotonic() - begun


def _ended(made: Nodes, simulated: Simulated, least: int, status: int) -> tuple[float, float]:
    """Seconds until the leader has ended, and the logins that it has made. Raises Failed."""
    begun = time.monotonic()
    codes = made.ends(120)
    took = time.monotonic() - begun
    if codes != {0: status}:
        raise Failed(f"the leader ended with {codes[0]}: {made.said()[-200:]}")
    counts = simulated.counts()
    if counts["Release"] < least:
        raise Failed(f"not every worker was released: {counts}")
    return took, float(counts["sessions"])


ROW = Row(
    About(
        "ten-thousand", "A leader of ten thousand nodes",
        f"{SIMULATED_WORKER} Two jobs for each number of workers. In the first, the leader's CPU until its program's "
        "start is divided by the workers; heartbeats are its CPU over 30 s in which nobody says anything else, and "
        "once more for each ping and its answer, with the defaults of one each 3 s, and 6 s from 5,000 nodes on; "
        "release is the time from the "
        "workers' message that their programs have ended to the leader's end. In the second, one worker says nothing "
        "more: the time until the leader says that it is lost, and from there to the leader's end. Logins beyond the "
        "number of workers are those that were repeated. \"9999 over 999\": the runs of a pair, divided.",
        (
            Goal(_case(MANY), OURS, "", "value", 25.0),
            Goal(_case(MANY), MEMORY, "", "value", 500.0),
            Goal(f"{MANY} over {FEW}", _CPU_PER, "", "value", 1.3),
            Goal(_case(MANY), _BEATS, "", "value", 20.0),
            Goal(_case(MANY), _LOST, "", "each", 21.5),
            Goal(_case(MANY), _RELEASE, "", "value", 10.0),
            Goal(_case(MANY), _STOP, "", "value", 10.0),
        ),
    ),
    measure, 1,
)  # fmt: skip
