"""The worker's side of the roll call: a socket in the run directory, where the leader's ssh session arrives."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from entrypoint import __version__
from entrypoint.host.files import RunDir, explained
from entrypoint.job import messages
from entrypoint.session import codec, relay


class Endpoint:
    """Takes one session at a time. `may_replace` decides by a new session's first message whether it replaces the
    present one: a leader that comes back has lost its session."""

    def __init__(
        self,
        on_message: Callable[[Any], None],
        on_lost: Callable[[str], None],
        may_replace: Callable[[Any], bool],
    ) -> None:
        self._on_message, self._on_lost, self._may_replace = on_message, on_lost, may_replace
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def open(self, run_dir: RunDir) -> None:
        """Listen, and write the script that connects a session of sshd with this socket."""
        socket = run_dir.path / "attend.sock"
        socket.unlink(missing_ok=True)
        with explained(socket):
            self._server = await asyncio.start_unix_server(self._serve, str(socket))
        # -I -S: nothing of the user's, and nothing that costs time.
        command = shlex.join([sys.executable, "-I", "-S", str(Path(relay.__file__)), str(socket)])
        run_dir.write("attend", f"#!/bin/sh\nexec {command}\n", 0o700)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        intake = codec.Intake(codec.BY_LEADER, codec.TO_WORKER, time.monotonic(), __version__)
        why, taken = "its session ended", False
        # asyncio cancels this when the loop ends; that is no error.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                async for data in _all_data(reader, writer):
                    for message in intake.feed(data, time.monotonic()):
                        if not taken and not self._take(writer, message):
                            writer.write(codec.pack(messages.Busy()))
                            writer.close()
                            return
                        taken = True
                        if self._writer is writer:
                            self._on_message(message)
            except messages.Invalid as error:
                why = f"it says what no leader does: {error}"
        if self._writer is writer:
            self._writer = None
            self._on_lost(why)
        writer.close()

    def _take(self, writer: asyncio.StreamWriter, first: Any) -> bool:
        """Whether this session is accepted."""
        if self._writer is not None:
            if not self._may_replace(first):
                return False
            self._writer.close()
        self._writer = writer
        return True

    def send(self, message: Any) -> None:
        """Send a message to the leader; without a session it is dropped."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.write(codec.pack(message))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._server is not None:
            self._server.close()


async def _all_data(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """All that the leader has sent: after a failed write asyncio would drop what is not read yet."""
    with writer.get_extra_info("socket").dup() as spare:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                yield data
        with contextlib.suppress(OSError):
            while data := spare.recv(65536):
                yield data
