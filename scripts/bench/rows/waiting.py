"""What a node costs while training runs: a waiting worker's memory and CPU."""

from __future__ import annotations

import time

from tests.containers import docker

from ..engine import await_words, create_job, job_env
from ..figures import Goal
from ..machine import processes
from ..table import Row, Table

OURS, SHARED = "entrypoint", "ours, shared pages divided"
_CASE = "a worker of 2"
_WAIT = ("sh", "-c", "echo begun; exec sleep 900")
_SSHD, _DAEMON, _CPU = "sshd", "mpirun's daemon", "CPU of ours"
_UNITS = {OURS: "MB", SHARED: "MB", _SSHD: "MB", _DAEMON: "MB", _CPU: "%"}


def measure(table: Table) -> None:
    """A worker whose rank sleeps: its processes' memory, and their CPU over a minute."""
    seconds = 5.0 if table.quick else 60.0
    network = table.engine.network()
    for _ in range(table.runs):
        table.take_all(_CASE, _UNITS, _worker, table, network, seconds)


def _worker(table: Table, network: str, seconds: float) -> dict[str, float]:
    options = ("--no-healthcheck",)
    names = create_job(
        table.engine, table.image, 2, network, *_WAIT, env=job_env(), options=options
    )

    def cpu() -> float:
        return sum(each.cpu for each in processes(names[1]) if each.kind == "ours")

    try:
        docker("start", *names)
        await_words(names[0], "begun\nbegun\n", 60)
        time.sleep(5)  # until what the start left to do is done
        before, begun = cpu(), time.monotonic()
        time.sleep(seconds)
        used, took = cpu() - before, time.monotonic() - begun
        memory = dict.fromkeys(_UNITS, 0.0)
        for each in processes(names[1]):
            if each.kind == "ours":
                memory[SHARED] += each.share
            name = {"ours": OURS, "sshd": _SSHD, "mpirun": _DAEMON}.get(each.kind)
            if name:
                memory[name] += each.resident
        return {**memory, _CPU: used / took * 100}
    finally:
        table.engine.remove(names)


ROW = Row(
    "waiting", "A waiting worker", measure, 3,
    (Goal(_CASE, OURS, "", "value", 28), Goal(_CASE, _CPU, "", "value", 0.05)),
)  # fmt: skip
