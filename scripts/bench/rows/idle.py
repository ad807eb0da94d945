"""What a node costs while training runs: a waiting worker's memory and CPU."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.containers import docker

from ..engine import await_words, create_job, processes
from ..figures import Goal
from ..machine import Process
from ..page import About
from ..table import Row, Table

OURS, ALONE = "entrypoint", "bare Python"
_CASE = "a worker of 2"
_WAIT = ("sh", "-c", "echo begun; exec sleep 900")
_SLEEP = ("-I", "-c", "import time; time.sleep(900)")
_UNITS = {
    ALONE: "MB", OURS: "MB", "ours, shared pages divided": "MB", "sshd": "MB", "mpirun's daemon": "MB",
    "CPU of ours": "%", "CPU of sshd": "%",
}  # fmt: skip


def measure(table: Table) -> None:
    """A worker whose rank sleeps: its processes' memory, and their CPU over a minute."""
    seconds = 5.0 if table.quick else 60.0
    network = table.engine.network()
    for _ in range(table.runs):
        table.take_all(_CASE, _UNITS, _worker, table, network, seconds)


def _worker(table: Table, network: str, seconds: float) -> dict[str, float]:
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": "1"}
    names = create_job(
        table.engine, table.image, 2, network, *_WAIT, env=env, options=("--no-healthcheck",)
    )
    names.append(
        table.engine.create(
            table.image,
            *_SLEEP,
            options=("--no-healthcheck", "--entrypoint", "/opt/entrypoint/bin/python3"),
        )
    )
    try:
        docker("start", *names)
        await_words(names[0], "begun\nbegun\n", 60)
        time.sleep(min(seconds, 5.0))  # until what the start left to do is done
        before = processes(names[1])
        begun = time.monotonic()
        time.sleep(seconds)
        after, took = processes(names[1]), time.monotonic() - begun
        ours, was = of(after, "ours"), of(before, "ours")
        return {
            ALONE: processes(names[2])[0].resident,
            OURS: sum(each.resident for each in ours),
            "ours, shared pages divided": sum(each.share or 0.0 for each in ours),
            "sshd": sum(each.resident for each in of(after, "sshd")),
            "mpirun's daemon": sum(each.resident for each in of(after, "mpirun")),
            "CPU of ours": (_cpu(ours) - _cpu(was)) / took * 100,
            "CPU of sshd": (_cpu(of(after, "sshd")) - _cpu(of(before, "sshd"))) / took * 100,
        }
    finally:
        table.engine.remove(names)


def of(all_processes: Iterable[Process], kind: str) -> list[Process]:
    """Those of one kind, without the job's own program."""
    return [each for each in all_processes if each.kind == kind and each.words[0] != "sleep"]


def _cpu(all_processes: Iterable[Process]) -> float:
    return sum(each.cpu for each in all_processes)


WORKER = Row(
    About(
        "waiting", "A waiting worker",
        "A worker of 2 nodes under mpirun whose rank sleeps. The images' health check is off, since it has a row "
        "of its own. Memory: resident, summed over all processes of the container except sshd, mpirun's daemon "
        "and the rank; these are tini, the entrypoint, the shell of its session, and the rank's supervisor. A "
        "page that two of them share counts twice there, and once in the line \"shared pages divided\" (PSS). CPU: "
        "nanoseconds by the scheduler's own count (`schedstat`), over 60 s. The comparison is a Python process "
        "that sleeps.",
        (Goal(_CASE, OURS, "", "value", 28), Goal(_CASE, "CPU of ours", "", "value", 0.05)),
    ),
    measure, 3,
)  # fmt: skip
