"""The rows, in the order of the page."""

from __future__ import annotations

from ..table import Row
from . import boot, hangs, large, many, noticed, start, waiting

ROWS: tuple[Row, ...] = (
    boot.BOOT, boot.CALL_IN, boot.TORCHRUN, boot.RANKS, boot.RESTART, start.ONE_NODE, start.WORKER,
    start.VERSION, start.HEALTH, waiting.ROW, many.ROW, large.ROW, large.AGAIN,
    noticed.ROW, noticed.PAUSES, hangs.ROW,
)  # fmt: skip
