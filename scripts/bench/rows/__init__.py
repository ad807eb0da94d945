"""The rows, in the order of the page."""

from __future__ import annotations

from ..table import Row
from . import boot, end, idle, large, output, reduce, restarts, rollcall, start, torchrun

ROWS: tuple[Row, ...] = (
    boot.ROW, torchrun.ROW, boot.BUSY, boot.RANKS, start.ONE_NODE, start.WORKER, start.VERSION, start.HEALTH,
    idle.WORKER, rollcall.IDLE, end.ROW, rollcall.REAL, rollcall.SIMULATED, large.ROW, rollcall.STARVED,
    output.ROW, reduce.ROW, restarts.ROW, restarts.SPARE_ROW,
)  # fmt: skip
