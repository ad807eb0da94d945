"""The toolkit's own share of lost time at the failure rate of Llama 3's report, from the raw
numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.base import heartbeat
from entrypoint.job.failure import VAGUE_SETTLE
from entrypoint.job.waits import KILL_MARGIN
from entrypoint.spec import JobSpec

from .figures import OURS, data_of, number
from .rows import large

# "The Llama 3 Herd of Models", 3.3.4: 16,384 GPUs in servers of 8. At most these of its causes may
# silence a node: network switch or cable 35, unplanned host maintenance 32, NIC 7, power supply 3,
# SSD 3, and 2 each of server chassis, IO board, CPU and system memory.
STOPS, SILENT, DAYS, NODES = 419, 88, 54, 2048
GOAL = 0.10  # per cent


def text(kept: Mapping[str, Any]) -> str:
    """Return the table, and how it is computed; "" if its row was not measured."""
    if not {"ten-thousand", "restart-at-scale"} <= kept.keys():
        return ""
    data = {**data_of(kept["ten-thousand"]), **data_of(kept["restart-at-scale"])}

    def at_scale(name: str) -> float:
        few, many = (
            data[f"{workers} simulated workers: {name}", OURS].median
            for workers in (large.FEW, large.MANY)
        )
        return few + (many - few) * (NODES - 1 - large.FEW) / (large.MANY - large.FEW)

    lost, again = map(at_scale, (large.LOST, large.RESTART))
    timeouts = JobSpec().timeouts
    clock = heartbeat.patience(timeouts.heartbeat, NODES) + timeouts.grace + KILL_MARGIN
    every = DAYS * 86400 / STOPS
    # A failed rank counts at once; its launcher's status 1 waits for another node's cause.
    failed = VAGUE_SETTLE + again
    silent = lost + again
    spared = lost + clock

    def mean(of_silent: float) -> float:
        return (SILENT * of_silent + (STOPS - SILENT) * failed) / STOPS

    def row(what: str, *seconds: float | str, whole: float, goal: bool = False) -> str:
        cells = [each if isinstance(each, str) else number(each, "s") for each in seconds]
        share = 100 * whole / every
        reached = ("yes" if share <= GOAL else "no") if goal else ""
        return f"| {' | '.join([what, *cells, number(share, '%'), reached])} |"

    return "\n".join((
        f"The toolkit's own share of lost time at the failure rate of Llama 3's report: {STOPS}"
        f" unexpected stops in {DAYS} days on {NODES:,} nodes, one every {every / 3600:.2f} hours"
        f" (goal: at most {GOAL:.2f} %).\n",
        "| stop | detection | stopping and restarting | lost | reached |",
        "|---|---|---|---|---|",
        row(f"a rank or program fails: {STOPS - SILENT}", VAGUE_SETTLE, again, whole=failed),
        row(f"a node falls silent: at most {SILENT}", lost, again, whole=silent),
        row(f"all {STOPS}", "", "", whole=mean(silent), goal=True),
        row(
            f"all {STOPS}, if spares replace the silent nodes", "", "",
            whole=mean(spared), goal=True,
        ),
    ))  # fmt: skip
