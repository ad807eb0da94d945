"""A named pipe into which processes of this node write lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from entrypoint.host.files import RunDir

_PIECE = 65536  # bytes read at a time; what is shorter than 4096 arrives in one piece (pipe(7))


class Lines:
    """Listens at the pipe of this name in the run directory: `heard` gets each line.

    Raises CantCreateError when the pipe can't be made.
    """

    def __init__(self, run_dir: RunDir, name: str, heard: Callable[[str], None]) -> None:
        self._pipe, self._heard = run_dir.pipe(name), heard
        self._buffer = b""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self._pipe, _PIECE)
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest[-_PIECE:]
        for line in lines:
            self._heard(line.decode(errors="replace"))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
