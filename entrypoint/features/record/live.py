"""Keeps the record of this node up to date while it boots, and serves its metrics. The timeline
begins with the start of the container, as far as the kernel shows it.

Nothing here may delay or end the job: files are written in a thread, and a failure is a warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any

from entrypoint.base import heartbeat
from entrypoint.base.model import Plan
from entrypoint.base.phases import Phase, Span
from entrypoint.extensions import LoopView
from entrypoint.features.record.content import JobStatus
from entrypoint.features.record.file import RecordFile
from entrypoint.features.record.observer import JobObserver
from entrypoint.job import messages
from entrypoint.output.log import Logger
from entrypoint.spec.jobspec import JobSpec
from entrypoint.system import proc
from entrypoint.system.threads import in_thread

if TYPE_CHECKING:
    from entrypoint.features.record.metrics import MetricsServer

_CLOSEST = 0.2  # seconds between two writes while something changes
# Factors of the duration of a write that pass until the next: while something changes, and
# otherwise.
_SHARE_OF_CHANGES = 20
_SHARE = 50
_PATIENCE = 5.0  # seconds in which the event loop answers a request for metrics
# inode of the host's own pid namespace (linux/proc_ns.h), whose pid 1 is no container's
_FIRST = 0xEFFFFFFC
_LONGEST = 3600.0  # seconds; an older container was not started for this job


def phases_before(now: float) -> list[Span]:
    """Return the phases until now, before the start hooks (monotonic seconds)."""
    start = min(_started("self", now), now)
    spans = [Span(Phase.FACTS.timeline, start, now)]
    is_below_first = os.getpid() != 1 and proc.is_below(os.getpid(), 1)
    with contextlib.suppress(OSError):
        if is_below_first and os.stat("/proc/self/ns/pid").st_ino != _FIRST:
            first = _started(1, start)
            if 0 < start - first < _LONGEST:
                return [Span(Phase.CONTAINER.timeline, first, start), *spans]
    return spans


def _started(pid: int | str, unknown: float) -> float:
    """Return when a process started, on the monotonic clock: the kernel counts from its boot with
    sleep (proc(5))."""
    try:
        ticks = int(proc.stat(pid)[1][19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return unknown
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)


class LiveRecord:
    """The observer of this node (extensions.Observer), which keeps its record."""

    def __init__(self, spec: JobSpec, file: RecordFile, log: Logger) -> None:
        now = time.monotonic()
        self._observer = JobObserver(phases_before(now), now)
        self._spec = spec
        # Serves the metrics, also between attempts; None if nobody has asked for them.
        self._server: MetricsServer | None = None
        self._file = file
        self._log = log
        self._write: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # When the file was last written, and how many seconds that took.
        self._written = 0.0
        self._cost = 0.0
        self._is_open = False
        self._warned: set[str] = set()

    def begin(self, plan: Plan) -> None:
        """Begin an attempt."""
        self._observer.begin(plan, time.monotonic())
        self._knows_ages = plan.leads

    def open(self, view: Callable[[], LoopView]) -> None:
        """Begin to write, and to serve metrics if the spec has a port for them."""
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._schedule()
        metrics = self._spec.metrics
        if metrics.port is not None and self._server is None:
            self._serve(metrics.address, metrics.port)

    def saw(self, what: Any, now: float) -> None:
        """Note an event or an action."""
        try:
            self._observer.saw(what, now)
        except Exception as error:  # a defect of this view must not end the job
            self._warn_of_defect(error)
        if self._observer.is_new:
            self._schedule()

    def phases(self, now: float) -> messages.Phases:
        """Return this node's phases until now."""
        return self._observer.phases(now)

    def hand_over(self, command: str) -> None:
        """Write that this process becomes the program of this command."""
        self._file.hand_over(command)

    def close(self) -> None:
        """Stop writing, and keep the last state and the timeline for the result."""
        self._is_open = False
        for pending in (self._timer, self._write):
            if pending is not None:
                pending.cancel()
        self._timer = None
        self._write = None
        with contextlib.suppress(Exception):  # as in `saw`
            self._keep()
            self._file.timeline = self._observer.recording(time.monotonic(), time.time())

    # -- metrics

    def _serve(self, address: str, port: int) -> None:
        from entrypoint.features.record.metrics import (
            MetricsServer,  # http.server takes 20 ms to import
        )

        try:
            self._server = MetricsServer(address, port, self._metrics)
        except OSError as error:
            hint = "set another metrics.port or metrics.address; the job continues"
            detail = f"{address} port {port}: {error.strerror or error}"
            self._log(f"warning: EP035 no metrics are served | {detail} | {hint}")
            return
        if not (address.startswith("127.") or address == "::1"):
            detail = (
                f"everybody who reaches {address} port {port} can read the names of job and nodes,"
                " and their state"
            )
            self._log(
                f"warning: EP036 metrics are open to others | {detail} | set"
                " metrics.address: 127.0.0.1, or restrict the network"
            )

    def _metrics(self) -> str:
        """Return the metrics, between two attempts those of the last one; for the server's threads.
        Raises TimeoutError if the event loop is suspended."""
        from entrypoint.features.record import metrics

        async def status() -> JobStatus:
            return self._observer.status(time.monotonic(), self._view())

        known = self._file.status
        if self._is_open:
            asked = asyncio.run_coroutine_threadsafe(status(), self._loop)
            with contextlib.suppress(CancelledError):  # the attempt has ended meanwhile
                known = asked.result(_PATIENCE)
        return metrics.text(known, self._log.lost) if known else ""

    # -- writing

    def _schedule(self) -> None:
        """Write the record after the pause, or soon if something is new."""
        if not self._is_open:
            return
        pause = self._pause()
        if self._observer.is_new:
            pause = max(_CLOSEST, _SHARE_OF_CHANGES * self._cost)
        when = max(self._loop.time(), self._written + pause)
        if self._timer is None or self._timer.when() > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._begin)

    def _pause(self) -> float:
        # While nothing changes, only ages do: of all nodes on worker-0, and little elsewhere.
        limit = self._spec.timeouts.heartbeat
        return max(heartbeat.interval(limit) if self._knows_ages else limit, _SHARE * self._cost)

    def _begin(self) -> None:
        self._timer = None
        if self._write is None:  # otherwise the disk is slow, and the next write follows this one
            self._write = self._loop.create_task(self._update())

    async def _update(self) -> None:
        begun = time.monotonic()
        try:
            self._keep()
            await in_thread(partial(self._file.update, self._pause()))
        except OSError as error:
            detail = f"{self._file.run_dir}: {error.strerror or error}"
            self._warn("EP034", f"`entrypoint status` cannot show this node | {detail}")
        except Exception as error:  # as in `saw`
            self._warn_of_defect(error)
        self._written = self._loop.time()
        self._cost = time.monotonic() - begun
        self._write = None
        self._schedule()

    def _keep(self) -> None:
        """Keep the state of the boot for the record."""
        view = self._view()
        self._observer.is_new = False
        self._file.at = time.monotonic()
        self._file.status = self._observer.status(self._file.at, view)
        self._file.command = view.command

    def _warn_of_defect(self, error: Exception) -> None:
        hint = "status and metrics may be wrong; the job continues"
        self._warn("EP902", f"internal error: {type(error).__name__}: {error} | {hint}")

    def _warn(self, message: str, text: str) -> None:
        """Log a warning once."""
        if message not in self._warned:
            self._warned.add(message)
            self._log(f"warning: {message} {text}")
