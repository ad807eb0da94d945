"""The cost of a node while training runs: a waiting worker's memory and CPU."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.containers import docker

from ..engine import Tree, await_words, create_job, job_env
from ..figures import Goal
from ..table import Row, Table

_MEMORY, _SHARED, _CPU = "memory", "memory, shared pages divided", "CPU"
_UNITS = {_MEMORY: "MB", _SHARED: "MB", _CPU: "%"}
_OTHERS = ("sleep", "sshd", "mpirun", "orterun", "orted", "prte", "prted")  # not the toolkit's


def measure(table: Table) -> None:
    """A worker of 2 whose rank sleeps: its processes' memory, and their CPU over a minute."""
    network, seconds = table.engine.network(), 5.0 if table.quick else 60.0
    for _ in range(table.runs):
        for tree in table.trees:
            table.take(_UNITS, tree.way, _worker, table, tree, network, seconds)


def _worker(table: Table, tree: Tree, network: str, seconds: float) -> tuple[float, ...]:
    words = (tree.image, 2, network, "sh", "-c", "echo begun; exec sleep 900")
    names = create_job(table.engine, *words, env=job_env(), options=("--no-healthcheck",))
    try:
        docker("start", *names)
        await_words(names[0], "begun\nbegun\n", 60)
        time.sleep(5)  # until what the start left to do is done
        begun, (_, _, before) = time.monotonic(), _used(names[1])
        time.sleep(seconds)
        memory, shared, after = _used(names[1])
        return memory, shared, (after - before) / (time.monotonic() - begun) * 100
    finally:
        table.engine.remove(names)


def _used(container: str) -> tuple[float, float, float]:
    """Return what the toolkit's processes of a container use: MB resident, MB with a page shared by
    n processes counted as one nth, and seconds of CPU of the living threads."""
    memory = shared = cpu = 0.0
    for pid in docker("top", container, "-eo", "pid").split()[1:]:
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # it has just ended
            text = (folder / "status").read_text() + (folder / "smaps_rollup").read_text()
            sizes = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            if not sizes["Name"].strip().startswith(_OTHERS):
                # running time comes first, in nanoseconds
                times = [(each / "schedstat").read_text() for each in (folder / "task").iterdir()]
                cpu += sum(int(each.split()[0]) for each in times) / 1e9
                memory += float(sizes["VmRSS"].split()[0]) / 1000
                shared += float(sizes["Pss"].split()[0]) / 1000
    return memory, shared, cpu


ROW = Row("waiting", measure, 3, (Goal(_SHARED, "value", 16), Goal(_CPU, "value", 0.03)))
