"""The helper process of this node, as its entrypoint has it: a question in, its answer out."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entrypoint.netcheck.messages import ANSWERS, MOST, Open, Unable, packed, unpacked
from entrypoint.system import children, process
from entrypoint.text import from_json
from entrypoint.wire import Invalid, to_json

_GONE = 2.0  # seconds for a killed helper to be gone
FILE = Path(__file__).with_name("helper.py")


class HelperProcess:
    """Starts the helper when it is asked to open, and again when another leader asks so."""

    def __init__(self, python: str, env: Mapping[str, str], token: str) -> None:
        self._python = python
        self._env = env
        self._token = token
        self._process: asyncio.subprocess.Process | None = None

    async def reply(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the helper's answer. If there is none, say why.

        A caller that is cancelled asks to open before anything else: an earlier answer may be on
        its way.
        """
        try:
            question = unpacked(body, *ANSWERS)
            if isinstance(question, Open):
                await self.close()
                await self._start()
            answer = from_json(await self._asked(to_json(packed(question))))
            return packed(unpacked(answer, ANSWERS[type(question)], Unable))
        except Invalid as error:
            return packed(Unable(f"an invalid message: {error}"))
        except (OSError, ValueError) as error:
            return packed(
                Unable(
                    f"its helper process has failed: {getattr(error, 'strerror', None) or error}"
                )
            )

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        command = (self._python, "-I", str(FILE))
        # Relative paths in the environment mean nothing to it, nor do modules in the job's folder.
        self._process = await children.start(
            command, self._env, "/", stdin=pipe, stdout=pipe, limit=MOST
        )
        assert self._process.stdin
        self._process.stdin.write(f"{self._token}\n".encode())

    async def _asked(self, question: str) -> bytes:
        """Return its next line. Raises OSError if it has ended, ValueError if the line is too
        long."""
        if self._process is None:
            raise OSError("it was not started")
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{question}\n".encode())
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise OSError("it has ended")
        return line

    def end(self) -> None:
        """End it at once, with what it has started."""
        if self._process is not None and self._process.returncode is None:
            process.kill_group(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End it, and return when it has ended, or when the kernel does not end it in time."""
        self.end()
        if self._process is not None:
            await asyncio.wait({asyncio.ensure_future(self._process.wait())}, timeout=_GONE)
            # Its end may be known before that of its pipes, which something else may hold, and
            # asyncio has no public way to close them.
            self._process._transport.close()  # type: ignore[attr-defined]
