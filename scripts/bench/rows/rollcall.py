"""The roll call: of real nodes, of simulated ones, and of so many that some may starve."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..engine import LOGIN, Failed
from ..figures import Goal, by_name
from ..machine import cpu_of, peak_of
from ..nodes import Nodes, real
from ..nodes import address as real_address
from ..page import About
from ..simulated import given, keys, leader_of, started
from ..table import Row, Table

OURS = "roll call"
CPU = "leader's CPU"
MEMORY = "leader's memory, at most"
THREADS = "leader's threads"
PER = "per worker"
_UNITS = {OURS: "s", PER: "ms", CPU: "s", MEMORY: "MB", THREADS: ""}
_IDLE, _FLOOR, _LOGINS = "entrypoint", "paramiko alone", "ssh logins alone"
_AT_ONCE = 16  # more take no less time on a machine of a few cores


def measure_real(table: Table) -> None:
    """127 real nodes on loopback addresses, all sshd up; then the leader starts."""
    workers = 3 if table.quick else 127
    for _ in range(table.runs):
        table.take_all(
            f"{workers} real workers", {_LOGINS: "s", **_UNITS, "release": "s"}, _real, workers
        )


def _real(workers: int) -> dict[str, float]:
    with (
        keys() as pair,
        real(workers + 1, ENTRYPOINT_TIMEOUTS_PEERS="300", **given(pair)) as made,
    ):
        for rank in range(1, workers + 1):
            made.start(rank, "true")
        made.await_sshd(workers, 240)
        logins = _log_in(made, pair, workers)
        found = called(made, workers, 120, "true")
        begun = time.time()
        codes = made.ends(60)
        if set(codes.values()) != {0}:
            raise Failed(f"exit statuses {sorted(set(codes.values()))}: {made.said()[-200:]}")
        return {_LOGINS: logins, **found, "release": time.time() - begun}


def _log_in(made: Nodes, keys: Path, workers: int) -> float:
    """Seconds until OpenSSH's client has logged in to every worker; then its connections are
    closed."""
    line = f"-F none -i {keys}/client -p {made.port} {LOGIN}"

    def log_in(rank: int) -> None:
        master = made.folder / f"login-{rank}"  # which goes to the background once it is in
        argv = ["ssh", *line.split(), "-f", "-N", "-M", "-S", str(master), real_address(rank)]
        subprocess.run(argv, check=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)

    begun = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(log_in, range(1, workers + 1)))
    took = time.monotonic() - begun
    for rank in range(1, workers + 1):
        argv = ["ssh", "-F", "none", "-S", str(made.folder / f"login-{rank}"), "-O", "exit", "x"]
        subprocess.run(argv, check=True, timeout=20, capture_output=True)
    return took


def measure_simulated(table: Table) -> None:
    """More and more simulated workers; then what the most cost over what the fewest did."""
    sizes = (2, 3) if table.quick else (127, 255, 511, 999)
    for _ in range(table.runs):
        for workers in sizes:
            case = f"{workers} simulated workers"
            table.take_all(case, {**_UNITS, "release": "s", "logins": ""}, _simulated, workers)
    data = by_name(table.series())
    for way in (PER, THREADS):
        few, many = (data[f"{workers} simulated workers", way] for workers in (sizes[0], sizes[-1]))
        for one, other in zip(many.runs, few.runs, strict=True):
            failed = isinstance(one, str) or isinstance(other, str)
            table.add(
                f"{sizes[-1]} over {sizes[0]}",
                way,
                "",
                "no number" if failed else float(one) / float(other),
            )


def _simulated(workers: int) -> dict[str, float]:
    with leader_of(workers) as (made, simulated):
        found = called(made, workers, 120, "sleep", "2")
        simulated.signal(signal.SIGUSR1)
        begun = time.time()
        codes = made.ends(60)
        released = time.time() - begun
        if codes != {0: 0}:
            raise Failed(f"the leader ended with {codes[0]}: {made.said()[-200:]}")
        counts = simulated.counts()
        if counts.get("Hello", 0) < workers or counts.get("Release", 0) < workers:
            raise Failed(f"not every worker was asked and released: {counts}")
        return {**found, "release": released, "logins": float(counts["sessions"])}


def called(made: Nodes, workers: int, seconds: float, *command: str) -> dict[str, float]:
    """Start the leader, whose program notes the time; look at what it costs until then."""
    mark = Path(made.folder / "begun")
    begun = time.time()
    leader = made.start(
        0, "sh", "-c", f'date +%s.%N >{mark}.new; mv {mark}.new {mark}; exec "$@"', "sh", *command
    )
    most, threads, used = 0.0, 0, 0.0
    deadline = time.monotonic() + seconds
    while not mark.exists():
        if leader.poll() is not None:
            raise Failed(f"the leader ended with {leader.returncode}: {made.said()[-300:]}")
        if time.monotonic() > deadline:
            raise Failed(f"no roll call within {seconds:g} s: {made.said()[-300:]}")
        time.sleep(0.02)
        memory, alive = peak_of(leader.pid)
        most, threads, used = max(most, memory), max(threads, alive), max(used, cpu_of(leader.pid))
    took = float(mark.read_text()) - begun
    return {OURS: took, PER: took / workers * 1e3, CPU: used, MEMORY: most, THREADS: float(threads)}


def measure_starved(table: Table) -> None:
    """256 real nodes that all start at once on this machine: how many end with 75, or with
    something else but 0."""
    count = 4 if table.quick else 256
    units = {"ended with 75": "nodes", "ended with another failure": "nodes", "seconds in all": "s"}
    for _ in range(table.runs):
        table.take_all(f"{count - 1} real workers at once", units, _starved, count)


def _starved(count: int) -> dict[str, float]:
    with real(count, ENTRYPOINT_TIMEOUTS_PEERS="400") as made:
        begun = time.monotonic()
        for rank in reversed(range(count)):
            made.start(rank, "true")
        codes = list(made.ends(450).values())
        again = codes.count(75)
        others = len(codes) - again - codes.count(0)
        return {
            "ended with 75": float(again), "ended with another failure": float(others),
            "seconds in all": time.monotonic() - begun,
        }  # fmt: skip


def measure_idle(table: Table) -> None:
    """A leader whose 300 workers have nothing to say, beside as many sessions of paramiko alone."""
    workers, seconds = (3, 3.0) if table.quick else (300, 60.0)
    case = f"{workers} sessions"
    for _ in range(table.runs):
        table.take(case, _FLOOR, "%", _idle_floor, workers, seconds)
        table.take_all(case, {_IDLE: "%", "threads": "", "memory": "MB"}, _idle, workers, seconds)


def _idle(workers: int, seconds: float) -> dict[str, float]:
    with leader_of(workers) as (made, _):
        called(made, workers, 120, "sleep", "900")
        leader = made.processes[0].pid
        used = cpu_share(leader, seconds)
        memory, threads = peak_of(leader)
        return {_IDLE: used, "threads": float(threads), "memory": memory}


def _idle_floor(workers: int, seconds: float) -> float:
    with keys() as pair, leader_of(1, pair, workers) as (made, _):
        argv = [
            sys.executable,
            "-m",
            "scripts.bench.floor",
            str(pair),
            str(made.port),
            str(workers),
        ]
        with started(argv, 60) as floor:
            return cpu_share(floor.pid, seconds)


def cpu_share(pid: int, seconds: float) -> float:
    """Per cent of a core over so many seconds, after some for what the start left to do."""
    time.sleep(min(seconds, 5.0))
    before, begun = cpu_of(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_of(pid) - before) / (time.monotonic() - begun) * 100


SIMULATED_WORKER = (
    "A simulated worker is an address of one process that implements ssh (key exchange, host key,"
    " signature of the login, one session) and answers the roll call's question and pings as a"
    " worker does. It has no sshd, no process and no name to look up, and its server shares the"
    " host's cores with the leader."
)

REAL = Row(
    About(
        "roll-call", "The roll call of 127 real nodes",
        "128 real entrypoints of this checkout run on this host, each with its sshd on a loopback address, with "
        "the launcher `plain`. The workers are up first. The time is the seconds from the leader's start to its "
        "program's start. Release: from there to the last node's end. Before the leader starts, OpenSSH's client "
        "logs in to the same workers, 16 at a time, until each connection is open; this shows the time of the "
        "logins alone. The leader's CPU, memory (resident) and threads are read every 20 ms until its program's "
        "start.",
        (Goal("127 real workers", OURS, "", "value", 3.0),),
    ),
    measure_real, 3,
)  # fmt: skip
SIMULATED = Row(
    About(
        "roll-call-simulated", "The roll call of simulated workers",
        f"As with real nodes. {SIMULATED_WORKER} Release: from the workers' message that their programs have ended to "
        "the leader's end, including the rest of its program's 2 s. \"999 over 127\": a run with 999 workers, "
        "divided by the paired run with 127; a cost is flat up to 1.25, and threads do not depend on the workers "
        "up to 1.1.",
        (
            Goal("999 simulated workers", OURS, "", "value", 8.0),
            Goal("999 simulated workers", MEMORY, "", "value", 100.0),
            Goal("999 over 127", PER, "", "value", 1.25),
            Goal("999 over 127", THREADS, "", "value", 1.1),
        ),
        "performance-rollcall.svg",
    ),
    measure_simulated, 3,
)  # fmt: skip
STARVED = Row(
    About(
        "starved", "255 real workers at once",
        "256 real entrypoints start at once on this host, the leader last, and all must exit with 0.",
        (
            Goal("255 real workers at once", "ended with 75", "", "each", 0),
            Goal("255 real workers at once", "ended with another failure", "", "each", 0),
        ),
    ),
    measure_starved, 1,
)  # fmt: skip
IDLE = Row(
    About(
        "idle-leader", "A leader with 300 sessions",
        f"The leader's CPU over 60 s while its program sleeps and the workers answer heartbeats. {SIMULATED_WORKER} The "
        "comparison is a process that has 300 sessions of paramiko and does nothing else: the minimum as long as "
        "each session has a thread of its own.",
        (Goal("300 sessions", _IDLE, "", "value", 2.0),),
    ),
    measure_idle, 1,
)  # fmt: skip
