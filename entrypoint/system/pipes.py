"""A named pipe into which processes of this node write lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir


class PipeListener:
    """Reader of the pipe of this name in the run directory: `ready` is called when there are lines
    to `take`.

    Of a line without an end, only the first CHUNK bytes are kept.

    Raises CantCreateError if the pipe can't be created.
    """

    def __init__(self, run_dir: RunDir, name: str, ready: Callable[[], object]) -> None:
        self._pipe = run_dir.pipe(name)
        self._rest = b""
        asyncio.get_running_loop().add_reader(self._pipe, ready)

    def take(self) -> list[bytes] | None:
        """Read once, and return the lines that end in these bytes, maybe none; None if the pipe is
        empty."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._pipe, CHUNK)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:CHUNK]
        return lines if data else None

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
