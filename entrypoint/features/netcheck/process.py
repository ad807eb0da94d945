"""Torch's process on this node, as its entrypoint has it: a question in, its answer out."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.base.render import render
from entrypoint.base.text import from_json, one_line
from entrypoint.base.wire import Invalid, to_json
from entrypoint.features.netcheck.messages import (
    ANSWERS,
    MOST,
    PATIENCE,
    WHY,
    Open,
    Ready,
    Unable,
    limit,
    packed,
    unpacked,
)
from entrypoint.system import children, process

_GONE = 2.0  # seconds for a killed process to be gone


class TorchProcess:
    """Starts when it is asked to open, and again after it has ended or did not answer in time."""

    def __init__(self, python: str, env: Callable[[str], Mapping[str, str]], launch: float) -> None:
        """`python`: the interpreter of the job's programs. `env`: name of the interface -> their
        environment. `launch`: seconds in which torch must have started."""
        self._python = python
        self._env = env
        self._interface = ""
        self._launch = launch
        self._process: asyncio.subprocess.Process | None = None

    async def reply(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return its answer. If there is none, say why.

        A caller that is cancelled asks to open before anything else: an earlier answer may be on
        its way.
        """
        try:
            question = unpacked(body, *ANSWERS)
            if isinstance(question, Open):
                await self.close()
                self._interface = question.interface
            seconds = limit(question, self._launch)
            line = await asyncio.wait_for(self._ask(question), seconds)
            return packed(unpacked(from_json(line), ANSWERS[type(question)], Unable))
        except asyncio.TimeoutError:
            await self.close()
            return packed(Unable(f"torch did not answer within {seconds:g} s"))
        except (OSError, ValueError, Invalid) as error:
            await self.close()
            why = getattr(error, "strerror", None) or error
            return packed(Unable(one_line(f"torch's process has failed: {why}", WHY)))

    async def _ask(self, question: Any) -> bytes:
        """Return its next line. Raises OSError if it ends, ValueError if the line is too long."""
        if self._process is None:
            await self._start()
            first = await self._line()
            is_ready = isinstance(unpacked(from_json(first), Ready, Unable), Ready)
            if isinstance(question, Open) or not is_ready:
                return first
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(f"{to_json(packed(question))}\n".encode())
        await self._process.stdin.drain()
        return await self._line()

    async def _start(self) -> None:
        script = render("netcheck/all_reduce.py", {})
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        # Relative paths in the environment mean nothing to it, nor do modules in the job's folder.
        self._process = await children.start(
            (self._python, "-c", script, f"{PATIENCE:g}"),
            self._env(self._interface),
            "/",
            stdin=pipe,
            stdout=pipe,
            stderr=nothing,
            limit=MOST,
        )

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise OSError(f"it ended with {await self._process.wait()}")
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
            self._process = None
