"""A leader of ten thousand nodes: of this checkout, without containers, and its workers are
simulated (workers.py)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import clean_environment, free_port

from ..engine import Failed, keygen, tail
from ..figures import Goal
from ..machine import cpu_of, peak_of, simulated_address
from ..table import Row, Table

TREE = Path(__file__).resolve().parents[3]
CALL, CPU, MEMORY = "roll call", "leader's CPU per worker", "leader's memory, at most"
BEATS, RELEASE = "heartbeats", "release"
LOST, STOP = "a lost worker is noticed", "release after a loss"
_UNITS = {
    CALL: "s", CPU: "ms", MEMORY: "MB", BEATS: "% of a core", RELEASE: "s", LOST: "s", STOP: "s",
}  # fmt: skip
FEW, MANY = 999, 9_999
_OF_ONE = 5_000  # workers of one process: each needs two files, and a usual limit is 20,000


def measure(table: Table) -> None:
    """Few and many workers, and two jobs of each: one whose programs end well after some time of
    heartbeats, and one that loses a worker."""
    for _ in range(table.runs):
        for workers in (2, 3) if table.quick else (FEW, MANY):
            case = f"{workers} simulated workers"
            table.take_all(case, _UNITS, _jobs, workers, 6.0 if table.quick else 30.0)


def _jobs(workers: int, seconds: float) -> dict[str, float]:
    with leader_of(workers) as leader:
        call = leader.await_ranks(600)
        cpu = cpu_of(leader.process.pid) / workers * 1e3
        time.sleep(5)  # for what the start left to do
        before, begun = cpu_of(leader.process.pid), time.monotonic()
        time.sleep(seconds)
        beats = (cpu_of(leader.process.pid) - before) / (time.monotonic() - begun) * 100
        memory = peak_of(leader.process.pid)
        (leader.folder / "end").touch()
        release = leader.ends(signal.SIGUSR1, workers, 0)
    with leader_of(workers) as leader:
        leader.await_ranks(600)
        lost = leader.loses_one(60)
        stop = leader.ends(0, workers - 1, 75)
    found = (call, cpu, memory, beats, release, lost, stop)
    return dict(zip(_UNITS, found, strict=True))


class Leader:
    """A leader whose program runs until its folder has a file `end`, and its workers."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, port = folder, free_port()
        keygen(folder)
        env = {**clean_environment(), "PYTHONPATH": str(TREE)}
        argv = [sys.executable, "-m", "scripts.bench.workers", str(folder), str(port)]
        self.workers = [
            subprocess.Popen(
                [*argv, str(first), str(min(workers, first + _OF_ONE - 1))],
                env=env, stdout=subprocess.PIPE, text=True, cwd=TREE,
            )
            for first in range(1, workers + 1, _OF_ONE)
        ]  # fmt: skip
        for each in self.workers:
            assert each.stdout is not None
            if not each.stdout.readline().startswith("ready"):
                raise Failed("the simulated workers did not start")
        # in a file, since one variable may have 128 KiB at most (execve(2))
        hosts = [f"w{number}={simulated_address(number)}" for number in range(1, workers + 1)]
        spec = "\n  - ".join(["hosts:", f"leader={simulated_address(0)}", *hosts])
        (folder / "job.yaml").write_text(f"{spec}\n")
        own = {
            "ENTRYPOINT_SPEC": str(folder / "job.yaml"), "ENTRYPOINT_TIMEOUTS_PEERS": "300",
            "ENTRYPOINT_SSH_PORT": str(port), "ENTRYPOINT_NODE_RANK": "0",
            "ENTRYPOINT_SSH_CLIENT_KEY": str(folder / "client"),
            "ENTRYPOINT_SSH_HOST_KEY": str(folder / "host"),
            "ENTRYPOINT_RUN_DIR": str(folder / "run"),
        }  # fmt: skip
        wait = f"touch {folder}/begun; while [ ! -e {folder}/end ]; do sleep 0.2; done"
        program = ["run", "--launcher", "plain", "--", "sh", "-c", wait]
        self.begun = time.time()
        with open(folder / "said", "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entrypoint", *program], env={**env, **own},
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        """Return what the leader has printed."""
        return (self.folder / "said").read_text(errors="replace")

    def await_ranks(self, seconds: float) -> float:
        """Return the seconds from the leader's start to its program's. Raises Failed."""
        mark = self.folder / "begun"
        while not mark.exists():
            if self.process.poll() is not None or time.time() > self.begun + seconds:
                raise Failed(f"no roll call within {seconds:g} s: {tail(self.said())}")
            time.sleep(0.02)
        return mark.stat().st_mtime - self.begun

    def loses_one(self, seconds: float) -> float:
        """Silence a worker; return the seconds until the leader says that it is lost."""
        self.workers[-1].send_signal(signal.SIGUSR2)
        begun = time.monotonic()
        while " is lost: nothing heard" not in self.said():
            if time.monotonic() - begun > seconds:
                raise Failed(f"no worker is lost after {seconds:g} s: {tail(self.said())}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def ends(self, signum: int, released: int, status: int) -> float:
        """Send the workers a signal, and return the seconds until the leader has ended. Raises
        Failed unless it ends with this status and has released so many workers."""
        for each in self.workers:
            each.send_signal(signum)
        begun = time.monotonic()
        code = self.process.wait(120)
        took, count = time.monotonic() - begun, 0
        for each in self.workers:
            each.terminate()
            count += json.loads(each.communicate(timeout=20)[0]).get("Release", 0)
        if code != status or count < released:
            raise Failed(f"it ended with {code}, {count} were released: {tail(self.said())}")
        return took

    def close(self) -> None:
        """End all processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for each in self.workers:
            each.kill()
            each.wait()


@contextlib.contextmanager
def leader_of(workers: int) -> Iterator[Leader]:
    """A leader and its workers for the time of the block."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # of all that is started
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as name:
        leader = Leader(Path(name), workers)
        try:
            yield leader
        finally:
            leader.close()


_CASE = f"{MANY} simulated workers"
ROW = Row(
    "ten-thousand", "A leader of ten thousand nodes", measure, 1,
    (
        Goal(f"{FEW} simulated workers", CPU, "", "value", 2.5),
        Goal(_CASE, CPU, "", "value", 2.5),
        Goal(_CASE, MEMORY, "", "value", 500.0),
        Goal(_CASE, BEATS, "", "value", 20.0),
        Goal(_CASE, LOST, "", "each", 21.5),
        Goal(_CASE, RELEASE, "", "value", 10.0),
        Goal(_CASE, STOP, "", "value", 10.0),
    ),
)  # fmt: skip
