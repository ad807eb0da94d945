"""Torch's process on this node, as its entrypoint has it: a question in, its answer out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

from entrypoint.base.model import Facts, Interface, Plan
from entrypoint.base.render import render
from entrypoint.base.text import from_json, one_line
from entrypoint.base.values import dataclass, replace
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
from entrypoint.job.inquiry import Answers
from entrypoint.plan import network
from entrypoint.spec import JobSpec
from entrypoint.system import children

_GONE = 2.0  # seconds for a killed process to be gone


@dataclass
class TorchProcess(Answers):
    """Starts when it is asked to open, and again after it has ended or did not answer in time."""

    _spec: JobSpec
    _facts: Facts
    _plan: Plan
    _env: Mapping[str, str]  # of this node's programs
    _interface: Interface | None = None  # that the roll call came over
    _process: asyncio.subprocess.Process | None = None

    async def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return its answer. If there is none, say why.

        A caller that is cancelled asks to open before anything else: an earlier answer may be on
        its way.
        """
        try:
            question = unpacked(body, *ANSWERS)
            if isinstance(question, Open):
                await self.close()
                known = {each.name: each for each in self._facts.interfaces}
                self._interface = known.get(question.interface)
            seconds = limit(question, self._spec.timeouts.launch)
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
        topology, reports = self._plan.topology, self._plan.members.reports
        report = replace(reports[topology.me], interface=self._interface)
        variables = network(self._spec, self._facts, report)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        # Relative paths in the environment mean nothing to it, nor do modules in the job's folder.
        self._process = await children.start(
            (topology.interpreter, "-c", script, f"{PATIENCE:g}"),
            {**{var.name: var.value for var in variables}, **self._env},
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

    def stop(self) -> None:
        """End it at once, with what it has started."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End it, and return when it has ended, or when the kernel does not end it in time."""
        self.stop()
        if self._process is not None:
            await asyncio.wait({asyncio.ensure_future(self._process.wait())}, timeout=_GONE)
            # Its end may be known before that of its pipes, which something else may hold, and
            # asyncio has no public way to close them.
            self._process._transport.close()  # type: ignore[attr-defined]
            self._process = None
