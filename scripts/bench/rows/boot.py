"""The whole boot beside bare mpirun and beside torchrun by hand; the same on a busy machine and
with many ranks on a node; and the end."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

from tests.containers import docker

from ..engine import (
    Bare,
    Failed,
    Job,
    await_words,
    bare,
    create_job,
    ended,
    finish,
    job_env,
    members,
    states,
)
from ..figures import Goal
from ..machine import busy
from ..table import Row, Table

OURS, BARE, HAND = "entrypoint", "bare mpirun", "torchrun by hand"
KILLED = "the same containers, killed at once"
PROGRAM = ("python3", "/bench/rank.py")
LOOPS = 8


def boot(table: Table) -> None:
    """2, 8 and 16 nodes with one rank each, both ways in turn."""
    for nodes in table.sizes(2, 8, 16):
        _compare(table, f"{nodes} nodes", nodes)


def on_a_busy_machine(table: Table) -> None:
    """16 nodes beside processes that compute without end."""
    nodes = 2 if table.quick else 16
    with busy(LOOPS):
        _compare(table, f"{nodes} nodes beside {LOOPS} busy loops", nodes)


def many_ranks(table: Table) -> None:
    """64 ranks on each of 2 nodes."""
    slots = 4 if table.quick else 64
    _compare(table, f"2 nodes with {slots} ranks each", 2, slots)


def _compare(table: Table, case: str, nodes: int, slots: int = 1) -> None:
    network = table.engine.network()

    def by_hand(floor: Bare) -> float:
        took, out = floor.run(" ".join(PROGRAM), slots)
        _check(out, nodes, slots)
        return took

    def by_toolkit() -> float:
        job = _job(table, nodes, network, slots)
        _check(job.out, nodes, slots)
        return job.seconds

    with bare(table.engine, table.image, nodes) as floor:
        for _ in range(table.runs):
            table.take(case, BARE, "s", by_hand, floor)
            table.take(case, OURS, "s", by_toolkit)


def _job(table: Table, nodes: int, network: str, slots: int = 1, launcher: str = "mpirun") -> Job:
    env = job_env(launcher, slots)
    return finish(
        table.engine, create_job(table.engine, table.image, nodes, network, *PROGRAM, env=env)
    )


def _check(out: str, nodes: int, slots: int = 1) -> None:
    """Raise Failed unless every node ran its ranks."""
    seen = Counter(line.split()[0] for line in out.splitlines() if line.startswith("node-"))
    if seen != {f"node-{rank}": slots for rank in range(nodes)}:
        raise Failed(f"ranks were not where they belong: {dict(seen)}")


def torchrun(table: Table) -> None:
    """2 and 8 nodes with one process each, both ways in turn."""
    for nodes in table.sizes(2, 8):
        network = table.engine.network()
        for _ in range(table.runs):
            table.take(f"{nodes} nodes", HAND, "s", _torchrun_by_hand, table, nodes, network)
            table.take(f"{nodes} nodes", OURS, "s", _torchrun_by_toolkit, table, nodes, network)


def _torchrun_by_hand(table: Table, nodes: int, network: str) -> float:
    """Each container runs torchrun itself, with the rendezvous c10d, as torch documents it."""
    names = []
    for rank in range(nodes):
        line = (
            f"--nnodes={nodes} --nproc_per_node=1 --rdzv_id=bench --rdzv_backend=c10d"
            " --rdzv_endpoint=node-0:6060"
            f" --rdzv_conf=is_host={int(rank == 0)},join_timeout=600,read_timeout=600"
            f" --local_addr=node-{rank} --max_restarts=0 {' '.join(PROGRAM[1:])}"
        )
        own = ("--init", "--no-healthcheck", "--entrypoint", "torchrun")
        options = (*members(rank, network), *own)
        names.append(
            table.engine.create(table.image, *line.split(), options=options, env=job_env())
        )
    job = finish(table.engine, names)
    _check(job.out, 1)  # torchrun prints its own node's lines alone
    return job.seconds


def _torchrun_by_toolkit(table: Table, nodes: int, network: str) -> float:
    job = _job(table, nodes, network, launcher="torchrun")
    _check(job.out, 1)
    return job.seconds


def end(table: Table) -> None:
    """16 nodes, again and again: no container may run on."""
    nodes, network = 2 if table.quick else 16, table.engine.network()
    case = f"{nodes} nodes"

    def by_hand(floor: Bare) -> float:
        _, out = floor.run(f"{' '.join(PROGRAM)}; date +%s.%N")
        *ranks, over = out.splitlines()
        return float(over) - _last("\n".join(ranks), nodes)

    def by_toolkit() -> float:
        job = _job(table, nodes, network)
        return max(each.finished for each in job.states) - _last(job.out, nodes)

    def by_kill() -> float:
        names = create_job(table.engine, table.image, nodes, network, "sleep", "900", env=job_env())
        try:
            docker("start", *names, timeout=300)
            await_words(names[0], f"{nodes} ranks on", 60)
            time.sleep(1)  # the start is over everywhere
            first = [state.pid for state in states(names).values()]
            begun = time.time()
            for pid in first:
                os.kill(pid, signal.SIGKILL)
            return max(state.finished for state in ended(names, 60).values()) - begun
        finally:
            table.engine.remove(names)

    with bare(table.engine, table.image, nodes) as floor:
        for _ in range(table.runs):
            table.take(case, BARE, "s", by_hand, floor)
            table.take(case, KILLED, "s", by_kill)
            table.take(case, OURS, "s", by_toolkit)


def _last(out: str, nodes: int) -> float:
    """Return the time at which the last rank ended, as the ranks printed it."""
    _check(out, nodes)
    return max(float(line.split()[1]) for line in out.splitlines() if line.startswith("node-"))


BOOT = Row(
    "boot", "Boot", boot, 7,
    (
        Goal("2 nodes", OURS, BARE, "more", 0.30),
        Goal("8 nodes", OURS, BARE, "ratio", 1.2),
        Goal("16 nodes", OURS, BARE, "ratio", 1.0),
    ),
    quick=5,
)  # fmt: skip
TORCHRUN = Row(
    "torchrun", "torchrun", torchrun, 5,
    (Goal("2 nodes", OURS, HAND, "more", 0.30), Goal("8 nodes", OURS, HAND, "ratio", 1.15)),
)  # fmt: skip
BUSY = Row(
    "busy", "Boot on a busy machine", on_a_busy_machine, 5,
    (Goal(f"16 nodes beside {LOOPS} busy loops", OURS, BARE, "ratio", 1.5),),
)  # fmt: skip
RANKS = Row(
    "ranks", "Many ranks on a node", many_ranks, 12,
    (Goal("2 nodes with 64 ranks each", OURS, BARE, "ratio", 1.2),),
)  # fmt: skip
END = Row("end", "The end", end, 20, (Goal("16 nodes", OURS, "", "each", 0.25),))
