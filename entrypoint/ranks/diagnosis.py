"""Diagnoses the failures of this node's ranks and programs, and reports their causes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from entrypoint.base.cause import RETRIES, Cause
from entrypoint.base.text import Log, quoted
from entrypoint.base.values import replace
from entrypoint.causes.evidence import DeviceFault, Evidence
from entrypoint.job import messages
from entrypoint.output.log import Callbacks
from entrypoint.ranks.evidence import TOOL_LIMIT, NodeProbe
from entrypoint.ranks.keeping import Failure
from entrypoint.system.descriptors import read_regular
from entrypoint.system.threads import in_thread

# Seconds that a node waits for its diagnoses before it reports the stop: for a device's tool, and
# for the judgement on a busy machine.
LIMIT = TOOL_LIMIT + 1.0
# Seconds of CPU in which the output of all failures of a node is judged: what fails later is judged
# by its end alone. A usual output takes a hundredth of a second.
MOST = 2.0


class Diagnostician:
    """Judges each failure with this node's measurements. The devices are asked once."""

    _count = 0
    _spent = 0.0  # seconds of CPU
    _device_faults: asyncio.Task[tuple[DeviceFault, ...]] | None = None

    def __init__(self, probe: NodeProbe, callbacks: Callbacks) -> None:
        self._probe = probe
        self._log = callbacks.log
        self._tell = callbacks.tell
        self._background = callbacks.background
        self._judging = asyncio.Lock()  # one at a time: each slows the event loop down
        self._pending: set[asyncio.Task[Any]] = set()

    def failed(self, failure: Failure, names_nodes: bool) -> None:
        """Begin the diagnosis of a failure, which may name the node that failed by its address. The
        report is a message to the leader."""
        self._count += 1
        if self._count > messages.CAUSES:
            return
        self._start(self._diagnose(failure, names_nodes))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._background(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _ask_devices(self) -> tuple[DeviceFault, ...]:
        with contextlib.suppress(Exception):  # without an answer the output alone is judged
            return await in_thread(self._probe.device_faults)
        return ()

    async def _diagnose(self, failure: Failure, names_nodes: bool) -> None:
        try:
            if cause := await in_thread(partial(_own_word, failure, self._log)):
                self._tell(messages.Diagnosis(replace(cause, rank=failure.name)))
                return
            counters = await in_thread(self._probe.counters)
            cause = await self._judge(failure, counters)
            if names_nodes and cause.node and not self._probe.is_at(cause.node):
                cause = await self._judge(failure)  # what was measured here is no evidence
            elif _may_be_a_device(cause):
                if self._device_faults is None:
                    self._device_faults = self._start(self._ask_devices())
                evidence = replace(counters, device_faults=await self._device_faults)
                cause = await self._judge(failure, evidence)
        except Exception as error:  # a job that fails must not fail once more for its diagnosis
            text = f"internal error: {type(error).__name__}: {error}"
            self._log(f"warning: EP902 {text} | the cause of {failure.name}'s failure is unknown")
            return
        rank = failure.name if failure.name.startswith("rank ") else ""
        node = cause.node if names_nodes else ""
        self._tell(messages.Diagnosis(replace(cause, rank=rank, node=node)))

    async def _judge(self, failure: Failure, evidence: Evidence | None = None) -> Cause:
        async with self._judging:
            lines = failure.lines if self._spent < MOST else ()
            cause, spent = await in_thread(
                partial(_judged, lines, failure.status, evidence, self._log)
            )
            self._spent += spent
            return cause

    async def settled(self, most: float) -> None:
        """Return when every diagnosis is reported, after `most` seconds at the latest."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=min(most, LIMIT))


def _judged(
    lines: tuple[str, ...], status: int, evidence: Evidence | None, log: Log
) -> tuple[Cause, float]:
    """Return the cause, and the seconds of CPU that the judgement took."""
    # Their tables take long to read: not in the event loop.
    from entrypoint.causes.judge import judge
    from entrypoint.system.causes import add_site

    add_site(log)
    begin = time.thread_time()
    return judge(lines, status, evidence=evidence), time.thread_time() - begin


def _own_word(failure: Failure, log: Log) -> Cause | None:
    """Return what the rank or program has said itself; None if that is nothing."""
    from entrypoint.causes.verdict import MOST, stated

    try:
        text = read_regular(failure.verdict, MOST).decode(errors="replace")
    except OSError:
        return None
    if not (cause := stated(text)):
        hint = f"write `retry: {', '.join(RETRIES)}`, one of them, and `why: TEXT`"
        log(f"warning: EP654 the verdict of {failure.name} is not used | {quoted(text)} | {hint}")
    return cause


def _may_be_a_device(cause: Cause) -> bool:
    """Return whether a device may be the cause, or may have a name: then its tool is worth some
    seconds.

    A consequence of another rank's failure must not delay the next attempt.
    """
    is_program_s = cause.certainty == "high" and cause.blame == "program"
    return cause.role != "cascade" and not is_program_s
