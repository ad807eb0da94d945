"""A named pipe into which processes of this node write lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from entrypoint.system.descriptors import CHUNK
from entrypoint.system.files import RunDir


class PipeListener:
    """Listens at the pipe of this name in the run directory: `ready` is called when there is something to `take`.

    Of a line without an end, only the first CHUNK bytes are kept.

    Raises CantCreateError when the pipe can't be made.
    """

    def __init__(self, run_dir: RunDir, name: str, ready: Callable[[], object]) -> None:
        self._pipe = run_dir.pipe(name)
        self._rest = b""
        asyncio.get_running_loop().add_reader(self._pipe, ready)

    def take(self) -> list[bytes] | None:
        """The lines that one read ends, maybe none; None if the pipe is empty."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._pipe, CHUNK)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:CHUNK]
        return lines if data else None

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
