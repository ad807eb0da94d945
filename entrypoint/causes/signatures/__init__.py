"""The table of signatures, by topic. The order is that of the files; it decides nothing."""

from __future__ import annotations

from entrypoint.causes.signatures import (
    devices,
    ends,
    launcher,
    memory,
    network,
    npu,
    program,
    python,
    storage,
)

SIGNATURES = (
    *devices.ROWS,
    *npu.ROWS,
    *memory.ROWS,
    *storage.ROWS,
    *network.ROWS,
    *launcher.ROWS,
    *ends.ROWS,
    *program.ROWS,
    *python.ROWS,
)
