"""The whole boot beside bare mpirun and beside a shell script; the same on a busy machine; and many
ranks on a node."""

from __future__ import annotations

import subprocess
from collections import Counter
from contextlib import ExitStack, suppress

from tests.containers import docker

from ..engine import Bare, Failed, bare, boot, members, said, states, throwaway_keys
from ..figures import Goal
from ..machine import busy
from ..page import About
from ..table import Row, Table

OURS, BARE, SCRIPT = "entrypoint", "bare mpirun", "shell script"
FLOOR = "bare mpirun, each rank below an empty Python"
PROGRAM = ("python3", "/bench/rank.py", "place")
_LINE = " ".join(PROGRAM)
# Without threads, as ours, so that no run of it stands still for a minute.
_BELOW = (
    f"-mca odls_base_num_threads 0 sh -c 'exec \"$@\"' sh python3 -I -S /bench/below.py {_LINE}"
)
_PATIENCE = 20.0  # seconds in which the script's workers may end after worker-0
LOOPS = 8


def measure(table: Table) -> None:
    """2, 8 and 16 nodes with one rank each: all three ways in turn."""
    for nodes in table.sizes(2, 8, 16):
        network = table.engine.network()
        case = f"{nodes} nodes"
        with bare(table.engine, table.image, nodes) as floor:
            for _ in range(table.runs):
                table.take(case, BARE, "s", by_hand, floor)
                table.take(case, OURS, "s", by_toolkit, table, nodes, network)
                if not table.quick:
                    units = {SCRIPT: "s", "workers that the script left": "containers"}
                    table.take_all(case, units, _by_script, table, nodes, network)


def measure_busy(table: Table) -> None:
    """16 nodes beside processes that compute without end."""
    nodes, network = 2 if table.quick else 16, table.engine.network()
    case = f"{nodes} nodes beside {LOOPS} busy loops"
    with bare(table.engine, table.image, nodes) as floor, busy(LOOPS):
        for _ in range(table.runs):
            table.take(case, BARE, "s", by_hand, floor, 1, 200)
            table.take(case, OURS, "s", by_toolkit, table, nodes, network, 1, 200)


def measure_ranks(table: Table) -> None:
    """64 ranks on each of 2 nodes."""
    slots, network = 4 if table.quick else 64, table.engine.network()
    case = f"2 nodes with {slots} ranks each"
    with bare(table.engine, table.image, 2) as floor:
        for _ in range(table.runs):
            table.take(case, BARE, "s", by_hand, floor, slots, 200)
            table.take(case, OURS, "s", by_toolkit, table, 2, network, slots, 200)
            table.take(case, FLOOR, "s", by_hand, floor, slots, 200, _BELOW)


def by_hand(floor: Bare, slots: int = 1, seconds: float = 120, line: str = _LINE) -> float:
    """Seconds of mpirun."""
    took, out = floor.run(line, slots, seconds)
    _check(out, floor.nodes, slots)
    return took


def by_toolkit(
    table: Table, nodes: int, network: str, slots: int = 1, seconds: float = 120
) -> float:
    """Seconds from the last container's start to worker-0's end."""
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": str(slots)}
    job = boot(table.engine, table.image, nodes, network, *PROGRAM, env=env, seconds=seconds)
    _check(job.out, nodes, slots)
    return job.seconds


def _check(out: str, nodes: int, slots: int) -> None:
    """Raise Failed unless every node ran its ranks."""
    seen = Counter(line.split()[0] for line in out.splitlines() if line.startswith("node-"))
    if seen != {f"node-{rank}": slots for rank in range(nodes)}:
        raise Failed(f"ranks were not where they belong: {dict(seen)}")


def _by_script(table: Table, nodes: int, network: str) -> dict[str, float]:
    """Seconds as for the toolkit, and how many workers still run some time after worker-0's end."""
    with ExitStack() as stack:
        keys = stack.enter_context(throwaway_keys())
        names = [
            table.engine.create(
                table.image, "/bench/sequential.sh", *PROGRAM,
                options=(*members(rank, network), "--init", "--no-healthcheck", "-v", f"{keys}:/keys:ro",
                         "--entrypoint", "bash"),
                env={"NODES": str(nodes), "RANK": str(rank)},
            )
            for rank in range(nodes)
        ]  # fmt: skip
        stack.callback(table.engine.remove, names)
        docker("start", *names, timeout=300)
        docker("wait", names[0], timeout=120)
        with suppress(subprocess.TimeoutExpired):
            docker("wait", *names, timeout=_PATIENCE)
        after = states(names)
        out, err = said(names[0])
        if after[names[0]].status:
            raise Failed(f"worker-0 ended with {after[names[0]].status}: {err[-200:]}")
        _check(out, nodes, 1)
        seconds = after[names[0]].finished - max(each.started for each in after.values())
        return {
            SCRIPT: seconds,
            "workers that the script left": float(sum(each.running for each in after.values())),
        }


_HOW = (
    "Toolkit: seconds from the last container's start to worker-0's end, by Docker's timestamps,"
    " including names, sshd, roll call, ranks and release. Bare: mpirun by hand with the same"
    " options and the same program, timed on worker-0, in containers of the same image that run"
    " sshd with throw-away keys. Their sshd are up and their addresses are known before the clock"
    " starts. Containers are started one after the other, worker-0 first."
)

ROW = Row(
    About(
        "boot", "Boot",
        f"{_HOW} Shell script: `scripts/bench/sequential.sh`, which follows the steps of the scripts that "
        "platforms document: it waits for names and ports one host after the other, with a second of sleep each, "
        "and workers sleep until a second mpirun ends them. The table counts the workers that still run 20 s "
        "after worker-0's end.",
        (
            Goal("2 nodes", OURS, BARE, "more", 0.30),
            Goal("8 nodes", OURS, BARE, "ratio", 1.2),
            Goal("16 nodes", OURS, BARE, "ratio", 1.0),
        ),
        "performance-boot.svg",
    ),
    measure, 7, 5,
)  # fmt: skip
BUSY = Row(
    About(
        "busy", "Boot on a busy machine",
        f"As for the boot, while {LOOPS} processes compute without end on the same cores. Each run is paired with "
        "a run of bare mpirun.",
        (Goal(f"16 nodes beside {LOOPS} busy loops", OURS, BARE, "each ratio", 1.5),),
    ),
    measure_busy, 5,
)  # fmt: skip
RANKS = Row(
    About(
        "ranks", "Many ranks on a node",
        "As for the boot, with 64 ranks on each of 2 nodes. Each run is paired with a run of bare mpirun. \"Below "
        "an empty Python\": as bare mpirun, but without mpirun's threads, and a shell and a Python that does "
        "nothing else start each rank. This is the minimum that a supervisor for each rank costs as long as it is "
        "a Python process.",
        (Goal("2 nodes with 64 ranks each", OURS, BARE, "each ratio", 1.2),),
    ),
    measure_ranks, 12,
)  # fmt: skip
