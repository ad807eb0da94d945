"""From the last rank's end to the last container's end."""

from __future__ import annotations

import os
import signal
import time

from tests.containers import docker

from ..engine import Failed, await_words, bare, boot, create_job, ended, states
from ..figures import Goal
from ..page import About
from ..table import Row, Table

OURS, BARE, FLOOR = "entrypoint", "bare mpirun", "the same containers, killed at once"
PROGRAM = ("python3", "/bench/rank.py", "place")


def measure(table: Table) -> None:
    """16 nodes, again and again: no container may run on."""
    nodes, network = 2 if table.quick else 16, table.engine.network()
    case = f"{nodes} nodes"
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": "1"}

    def by_hand() -> float:
        _, out = floor.run(f"{' '.join(PROGRAM)}; date +%s.%N")
        *ranks, over = out.splitlines()
        return float(over) - last("\n".join(ranks), nodes)

    def by_toolkit() -> float:
        job = boot(table.engine, table.image, nodes, network, *PROGRAM, env=env, seconds=60)
        return max(each.finished for each in job.states) - last(job.out, nodes)

    def by_kill() -> float:
        names = create_job(table.engine, table.image, nodes, network, "sleep", "900", env=env)
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
            table.take(case, BARE, "s", by_hand)
            table.take(case, FLOOR, "s", by_kill)
            table.take(case, OURS, "s", by_toolkit)


def last(out: str, nodes: int) -> float:
    """The time at which the last rank ended, as the ranks printed it. Raises Failed if one has
    not."""
    ends = [float(line.split()[1]) for line in out.splitlines() if line.startswith("node-")]
    if len(ends) != nodes:
        raise Failed(f"{len(ends)} of {nodes} ranks said when they ended")
    return max(ends)


ROW = Row(
    About(
        "end", "The end",
        "Seconds from the last rank's last statement, which prints the time, to the last container's end by "
        "Docker's timestamp. A container that still runs after 60 s is a failed run. Bare: until mpirun itself "
        "ends. Killed at once: from a SIGKILL to the first process of each container, while all ranks sleep, to "
        "the last container's end. This is the time that Docker and the kernel need to end so many containers.",
        (Goal("16 nodes", OURS, "", "each", 0.25),),
    ),
    measure, 20,
)  # fmt: skip
