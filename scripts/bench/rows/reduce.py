"""An all-reduce loop under the toolkit beside the same under bare mpirun."""

from __future__ import annotations

import re

from ..engine import Bare, Failed, bare, boot
from ..figures import Goal
from ..page import About
from ..table import Row, Table

OURS, BARE = "entrypoint", "bare mpirun"
_SIZE = 16384  # doubles: 128 KiB


def measure(table: Table) -> None:
    """Pairs of runs; which of a pair is first changes from pair to pair."""
    loops, network = 200 if table.quick else 4000, table.engine.network()
    case = "2 nodes, 128 KiB"
    program = ("python3", "/bench/rank.py", "reduce", str(loops), str(_SIZE))
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": "1"}

    def by_hand(floor: Bare) -> float:
        return _seconds(floor.run(" ".join(program))[1])

    def by_toolkit() -> float:
        return _seconds(boot(table.engine, table.mpi_image, 2, network, *program, env=env).out)

    with bare(table.engine, table.mpi_image, 2) as floor:
        for pair in range(table.runs):
            if pair % 2:
                table.take(case, OURS, "s", by_toolkit)
                table.take(case, BARE, "s", by_hand, floor)
            else:
                table.take(case, BARE, "s", by_hand, floor)
                table.take(case, OURS, "s", by_toolkit)


def _seconds(out: str) -> float:
    found = re.search(r"^seconds (\S+)$", out, re.MULTILINE)
    if not found:
        raise Failed(f"rank 0 said no time: {out[-200:]}")
    return float(found[1])


ROW = Row(
    About(
        "all-reduce", "An all-reduce loop",
        "mpi4py with one rank on each of 2 nodes runs 4,000 all-reduces of 128 KiB. The time is rank 0's seconds "
        "for the loop, without start and end. Runs are paired, in alternating order. The interval is that of the "
        "mean ratio of a pair, 95 %, by Student's t.",
        (Goal("2 nodes, 128 KiB", OURS, BARE, "interval", 1.0),),
    ),
    measure, 12,
)  # fmt: skip
