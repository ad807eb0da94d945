"""A leader of ten thousand nodes: of a checkout, without containers, and its workers are simulated
(workers.py)."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.cluster import Cluster, clean_environment
from tests.waits import until

from ..engine import HERE, Failed, Tree, cpu_of, keygen, tail
from ..figures import Goal
from ..table import Row, Table

CALL, CPU, MEMORY = "roll call", "leader's CPU per worker", "leader's memory, at most"
BEATS, RELEASE = "heartbeats", "release"
LOST, STOP = "a lost worker is noticed", "release after a loss"
RESTART = "a program fails, until it runs again"
_UNITS = {
    CALL: "s", CPU: "ms", MEMORY: "MB", BEATS: "% of a core", RELEASE: "s", LOST: "s", STOP: "s",
}  # fmt: skip
EACH = "leader's memory for each worker"
FEW, SOME, MANY = 999, 3_999, 9_999
_OF_ONE = 5_000  # workers of one process: each needs two files, and a usual limit is 20,000


def measure(table: Table) -> None:
    """Few and many workers, and two jobs of each: one whose programs end well after some time of
    heartbeats, and one that loses a worker. Between them the roll call of 4,000 alone."""
    few, some, many = (2, 3, 4) if table.quick else (FEW, SOME, MANY)
    for _ in range(table.runs):
        for workers in (few, many):
            units = {_case(workers, name): unit for name, unit in _UNITS.items()}
            for tree in table.trees:
                table.take(units, tree.way, _jobs, tree, workers, 6.0 if table.quick else 30.0)
        for tree in table.trees:
            table.take({_case(some, CALL): "s"}, tree.way, _call, tree, some)
            _add_slope(table, tree.way, few, many)


def _add_slope(table: Table, way: str, few: int, many: int) -> None:
    """Keep the memory for each worker of the last run: by how much more there are."""
    less, more = (table.kept[_case(workers, MEMORY), way, "MB"][-1] for workers in (few, many))
    if isinstance(less, float) and isinstance(more, float):
        table.add(_case(many, EACH), way, "KB", (more - less) / (many - few) * 1e3)


def _case(workers: int, name: str) -> str:
    return f"{workers} simulated workers: {name}"


def _call(tree: Tree, workers: int) -> tuple[float]:
    with _leader_of(tree, workers) as leader:
        call = leader.await_ranks()
        (leader.folder / "end").touch()
        leader.ends(signal.SIGUSR1, workers, 0)
        return (call,)


def _jobs(tree: Tree, workers: int, seconds: float) -> tuple[float, ...]:
    with _leader_of(tree, workers) as leader:
        call = leader.await_ranks()
        cpu = leader.cpu() / workers * 1e3
        time.sleep(5)  # for what the start left to do
        before, begun = leader.cpu(), time.monotonic()
        time.sleep(seconds)
        beats = (leader.cpu() - before) / (time.monotonic() - begun) * 100
        memory = leader.peak()
        (leader.folder / "end").touch()
        release = leader.ends(signal.SIGUSR1, workers, 0)
    with _leader_of(tree, workers) as leader:
        leader.await_ranks()
        lost = leader.loses_one()
        stop = leader.ends(0, workers - 1, 75)
    return call, cpu, memory, beats, release, lost, stop


def restart(table: Table) -> None:
    """Few and many workers: from the failure of worker-0's program until it runs again."""
    for workers in (2, 4) if table.quick else (FEW, MANY):
        for _ in range(table.runs):
            for tree in table.trees:
                table.take({_case(workers, RESTART): "s"}, tree.way, _restarted, tree, workers)


def _restarted(tree: Tree, workers: int) -> tuple[float]:
    env = {"ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTARTS_ON": "any"}
    with _leader_of(tree, workers, env) as leader:
        leader.await_ranks()
        took = leader.restarts()
        (leader.folder / "end").touch()
        leader.ends(signal.SIGUSR1, workers, 0)
        return (took,)


class _Leader:
    """A leader whose program runs until its folder has a file `end`, or a file `fail`, and its
    workers."""

    def __init__(self, tree: Tree, folder: Path, workers: int, more: Mapping[str, str]) -> None:
        self.folder = folder
        self.job = Cluster(folder, 1)
        keygen(folder)
        python = {"PYTHONPATH": str(tree.folder)}
        addresses = [f"127.1.{each // 250}.{1 + each % 250}" for each in range(workers + 1)]
        self.workers = []
        for first in range(1, workers + 1, _OF_ONE):
            listed = folder / f"addresses-{first}"
            listed.write_text("\n".join(addresses[first : first + _OF_ONE]))
            with listed.open() as file:
                self.workers.append(
                    subprocess.Popen(
                        [sys.executable, str(HERE / "workers.py"), str(folder), str(self.job.port)],
                        env={**clean_environment(), **python}, cwd=folder, text=True,
                        stdin=file, stdout=subprocess.PIPE,
                    )
                )  # fmt: skip
        for each in self.workers:
            assert each.stdout is not None
            if not each.stdout.readline().startswith("ready"):
                raise Failed("the simulated workers did not start")
        # in a file, since one variable may have 128 KiB at most (execve(2))
        hosts = [f"w{rank}={address}" for rank, address in enumerate(addresses)]
        (folder / "job.yaml").write_text("\n  - ".join(["hosts:", *hosts]) + "\n")
        own = {
            **python, "ENTRYPOINT_SPEC": str(folder / "job.yaml"),
            "ENTRYPOINT_TIMEOUTS_PEERS": "300", "ENTRYPOINT_TIMEOUTS_GRACE": "(unset)",
            "ENTRYPOINT_HOSTS": "(unset)", "ENTRYPOINT_SECRET": "(unset)",
            "ENTRYPOINT_SSH_CLIENT_KEY": str(folder / "client"),
            "ENTRYPOINT_SSH_HOST_KEY": str(folder / "host"), **more,
        }  # fmt: skip
        wait = (
            f"cd {folder}; touch begun; until [ -e end ]; do sleep 0.2; [ ! -e fail ] ||"
            " { rm begun; mv fail failed; touch failed; exit 3; }; done"
        )
        self.begun = time.time()
        self.job.start(0, "sh", "-c", wait, env=own, launcher="plain")
        self.process = self.job.processes[0]

    def cpu(self) -> float:
        """Return the leader's seconds of CPU, in steps of a hundredth."""
        return cpu_of(self.process.pid)

    def peak(self) -> float:
        """Return the most memory (MB resident) that the leader has held."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(text.partition("VmHWM:")[2].split()[0]) / 1000

    def await_ranks(self) -> float:
        """Return the seconds from the leader's start to its program's."""
        return self._await("begun") - self.begun

    def restarts(self) -> float:
        """Have the program fail; return the seconds until it runs again."""
        (self.folder / "fail").touch()
        failed = self._await("failed")
        return self._await("begun") - failed

    def _await(self, name: str) -> float:
        """Return when a file was written, once it is there."""
        mark = self.folder / name
        until(lambda: mark.exists() or self.process.poll() is not None, "the roll call", 600)
        if not mark.exists():
            raise Failed(f"no roll call: {tail(self.job.both())}")
        return mark.stat().st_mtime

    def loses_one(self) -> float:
        """Silence a worker; return the seconds until the leader says that it is lost."""
        self.workers[-1].send_signal(signal.SIGUSR2)
        begun = time.monotonic()
        until(lambda: " is lost: nothing heard" in self.job.err(), "a worker is lost")
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
            raise Failed(f"it ended with {code}, {count} were released: {tail(self.job.both())}")
        return took


@contextlib.contextmanager
def _leader_of(
    tree: Tree, workers: int, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[_Leader]:
    """A leader with this environment, and its workers, for the time of the block."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # of all that is started
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as name:
        leader = _Leader(tree, Path(name), workers, env)
        try:
            yield leader
        finally:
            leader.job.close()
            for each in leader.workers:
                each.kill()
                each.wait()


ROW = Row(
    "ten-thousand", measure, 1,
    (
        Goal(_case(SOME, CALL), "value", 5.0),
        Goal(_case(FEW, CPU), "value", 1.2),
        Goal(_case(MANY, CPU), "value", 1.2),
        Goal(_case(MANY, MEMORY), "value", 500.0),
        Goal(_case(MANY, EACH), "value", 30.0),
        Goal(_case(MANY, BEATS), "value", 20.0),
        Goal(_case(MANY, LOST), "value", 21.5),
        Goal(_case(MANY, RELEASE), "value", 10.0),
        Goal(_case(MANY, STOP), "value", 10.0),
    ),
)  # fmt: skip
AGAIN = Row(
    "restart-at-scale", restart, 3, (Goal(_case(MANY, RESTART), "value", 10.0),),
)  # fmt: skip
