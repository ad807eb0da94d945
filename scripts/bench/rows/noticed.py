"""The time until a failure is noticed, without containers: a process that dies, and a host that
falls silent; and that pauses of a busy host are no failure, by the simulator of the tests."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from entrypoint.spec import JobSpec
from tests.cluster import Cluster
from tests.waits import until

from ..engine import HERE, Failed, Tree, below, tail
from ..figures import Goal
from ..table import Row, Table

NODES = 4
_DIES, _SILENT = "a process is killed", "a host falls silent"
_MOST = f"{_DIES}: 99 of 100"
_PAUSES = "{:,} simulated hours, each node stops for 2 s every 20 s: false losses"
_HOURS = 1000
_LIMIT = 120.0  # seconds of each wait


def measure(table: Table) -> None:
    """200 kills of a rank or a worker's entrypoint, in one job that restarts; 5 silent hosts."""
    kills, hosts = (5, 1) if table.quick else (200, 5)
    for _ in range(table.runs):
        for tree in table.trees:
            _killed(table, tree, kills)
            for _ in range(hosts):
                table.take({_SILENT: "s"}, tree.way, _silent, tree)


def pauses(table: Table) -> None:
    """The simulated hours, of this checkout alone."""
    hours = 4 if table.quick else _HOURS
    for _ in range(table.runs):
        units = {_PAUSES.format(hours): "losses"}
        table.take(units, table.trees[0].way, _false_losses, hours)


class _Job:
    """Nodes whose ranks note in one file when they start, and when they get SIGTERM."""

    def __init__(self, folder: Path, tree: Tree, restarts: int) -> None:
        self.job = Cluster(folder, NODES, slots=1)
        self._notes = folder / "notes"
        self._notes.touch()
        self._begun = 0
        self._env = {
            "PYTHONPATH": str(tree.folder), "ENTRYPOINT_TIMEOUTS_GRACE": "(unset)",
            "ENTRYPOINT_RESTARTS": str(restarts), "ENTRYPOINT_RESTARTS_ON": "any",
        }  # fmt: skip

    def start(self, node: int) -> None:
        program = (sys.executable, "-IS", str(HERE / "told.py"), str(self._notes))
        self.job.start(node, *program, env=self._env)

    def _all(self, word: str) -> list[list[str]]:
        lines = [line.split() for line in self._notes.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == word]

    def await_ranks(self) -> dict[int, int]:
        """Return the pid of each node's rank, once all run that one attempt has more."""
        self._begun += NODES
        self._until(lambda: len(self._all("up")) >= self._begun, "all ranks run")
        return {int(node): int(pid) for node, pid, _ in self._all("up")[-NODES:]}

    def await_told(self, gone: int, since: float) -> float:
        """Return the seconds until the ranks of all nodes but one have SIGTERM."""

        def told() -> list[float]:
            others = [float(at) for node, _, at in self._all("told") if int(node) != gone]
            return [at - since for at in others if at > since]

        self._until(lambda: len(told()) >= NODES - 1, "all others are told")
        return max(told())

    def _until(self, check: Callable[[], bool], what: str) -> None:
        try:
            until(check, what, _LIMIT)
        except AssertionError:
            raise Failed(f"{what}: {tail(self.job.err())}") from None


@contextlib.contextmanager
def _started(tree: Tree, restarts: int) -> Iterator[_Job]:
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as name:
        nodes = _Job(Path(name), tree, restarts)
        try:
            for node in reversed(range(NODES)):
                nodes.start(node)
            yield nodes
        finally:
            nodes.job.close()


def _killed(table: Table, tree: Tree, kills: int) -> None:
    seconds: list[float] = []

    def one(nodes: _Job) -> tuple[float]:
        ranks = nodes.await_ranks()
        time.sleep(random.uniform(0, 0.5))
        node, entrypoint = random.randrange(NODES), random.random() < 0.5
        begun = time.time()
        if entrypoint and node:  # worker-0's is the one that notices
            nodes.job.processes[node].kill()
            nodes.job.processes[node].wait(_LIMIT)
        else:
            os.kill(ranks[node], signal.SIGKILL)
        seconds.append(nodes.await_told(node, begun))
        if nodes.job.processes[node].poll() is not None:
            nodes.start(node)
        return (seconds[-1],)

    with _started(tree, kills) as nodes:
        for number in range(kills):
            table.take({_DIES: "s"}, tree.way, one, nodes)
            if len(seconds) == number:
                break  # the job is in no state for another one
    rank = -(-99 * kills // 100)
    found = sorted(seconds)[rank - 1] if len(seconds) >= rank else "too few runs"
    table.add(_MOST, tree.way, "s", found)


def _silent(tree: Tree) -> tuple[float]:
    """Stop all processes of a worker, which then sends nothing, and no connection of it ends."""
    with _started(tree, 0) as nodes:
        nodes.await_ranks()
        time.sleep(random.uniform(1, 4))
        node = random.randrange(1, NODES)
        begun = time.time()
        for pid in below(nodes.job.processes[node].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return (nodes.await_told(node, begun),)


def _false_losses(hours: int) -> tuple[float]:
    with multiprocessing.Pool() as pool:
        if not all(pool.map(_losses, [(-1 - seed, 30.0) for seed in range(4)])):
            raise Failed("the control: pauses of 30 s lose no node")
        lost = pool.imap_unordered(_losses, [(seed, 2.0) for seed in range(hours)], chunksize=4)
        return (float(sum(lost)),)


def _losses(given: tuple[int, float]) -> int:
    """Simulate an hour of a job whose nodes stop for so long again and again; return how many
    ended otherwise than with 0, with the default heartbeat and slow messages."""
    # they need every feature
    from tests.simulation import world
    from tests.simulation.schedule import Fault, Schedule

    seed, pause = given
    source, hour = random.Random(seed), 3600.0
    vars(world)["HEARTBEAT"] = JobSpec().timeouts.heartbeat
    faults = [
        Fault(source.uniform(5, hour), "freeze", node, pause)
        for node in range(NODES)
        for _ in range(int(hour / 20))
    ]
    job = world.World(
        Schedule(
            nodes=NODES, launcher="torchrun", starts=(0.0,) * NODES, save=(0.5,) * NODES,
            duration=hour, latency=0.3, seed=seed,
            faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        )
    )  # fmt: skip
    job.run(2 * hour, 60.0)
    if job.violations:
        raise Failed(job.violations[0])
    outcomes = [node.outcomes for node in job.containers]
    return sum(not each or each[-1][1].status != 0 for each in outcomes)


ROW = Row("noticed", measure, 1, (Goal(_MOST, "value", 0.3), Goal(_SILENT, "value", 12.0)))
PAUSES = Row("pauses", pauses, 1, (Goal(_PAUSES.format(_HOURS), "value", 0.0),))
