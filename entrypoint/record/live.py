"""Keeps the record of this node up to date while it boots, and serves its metrics. The timeline
begins with the start of the container, as far as the kernel shows it.

Nothing here may delay or end the job: files are written in a thread, and a failure is a warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from entrypoint import heartbeat
from entrypoint.model import Outcome, Plan
from entrypoint.output.log import Logger
from entrypoint.phases import Phase, Span
from entrypoint.record.content import JobStatus
from entrypoint.record.file import RecordFile
from entrypoint.record.nodes import NodeTable
from entrypoint.spec.jobspec import JobSpec
from entrypoint.system import proc
from entrypoint.system.threads import in_thread

if TYPE_CHECKING:
    from entrypoint.job.state import JobState

_CLOSEST = 0.2  # seconds between two writes while something changes
# Factors of the duration of a write that pass until the next: while something changes, and
# otherwise.
_SHARE_OF_CHANGES = 20
_SHARE = 50
_PATIENCE = 5.0  # seconds in which the event loop answers a request for metrics
# inode of the host's own pid namespace (linux/proc_ns.h), whose pid 1 is no container's
_FIRST = 0xEFFFFFFC
_LONGEST = 3600.0  # seconds; an older container was not started for this job


def phases_before(begun: float, hooked: float) -> list[Span]:
    """Return the phases before the boot; the start hooks ran from `begun` to `hooked` (monotonic
    seconds)."""
    start = min(_started("self", begun), begun)
    spans = [Span(Phase.FACTS.timeline, start, begun), Span(Phase.HOOKS.timeline, begun, hooked)]
    with contextlib.suppress(OSError):
        is_below_first = os.getpid() != 1 and proc.is_below(os.getpid(), 1)
        if is_below_first and os.stat("/proc/self/ns/pid").st_ino != _FIRST:
            first = _started(1, start)
            if 0 < start - first < _LONGEST:
                spans.insert(0, Span(Phase.CONTAINER.timeline, first, start))
    return spans


def _started(pid: int | str, unknown: float) -> float:
    """Return when a process started, on the monotonic clock: the kernel counts from its boot with
    sleep (proc(5))."""
    try:
        ticks = int(proc.stat(pid)[1][19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return unknown
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)


class JobView(Protocol):
    """The attributes of the leader or worker that are read."""

    state: JobState

    @property
    def outcome(self) -> Outcome | None: ...


class ProgramsView(Protocol):
    """What a record shows of this node's programs."""

    command: str  # the command line that was started, without secrets; "" before that

    def idle(self) -> float: ...


class LiveRecord:
    """The record of one attempt, from its start to its end."""

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        machine: JobView,
        file: RecordFile,
        programs: ProgramsView,
        log: Logger,
    ) -> None:
        self._metrics_spec = spec.metrics
        # While nothing changes, a node wakes only for heartbeats.
        self._beat = heartbeat.interval(spec.timeouts.heartbeat)
        self._machine = machine
        self._file = file
        self._programs = programs
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._table = NodeTable(plan, time.monotonic())
        self._write: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # When the file was last written, and how many seconds that took.
        self._written = 0.0
        self._cost = 0.0
        self._is_open = False
        self._warned: set[str] = set()

    def saw(self, event: Any, wanted: list[Any], now: float) -> list[Any]:
        """Note an event of the machine and the actions that it wants, and return the actions."""
        try:
            self._table.saw(event, wanted, now)
        except Exception as error:  # a defect of this view must not end the job
            self._warn_of_defect(error)
        if self._table.is_new:
            self._write_soon()
        return wanted

    def open(self) -> None:
        """Begin to write, and to serve metrics if the spec has a port for them."""
        self._is_open = True
        self._write_within(0.0)
        if self._metrics_spec.port is not None:
            self._serve(self._metrics_spec.address, self._metrics_spec.port)

    def _serve(self, address: str, port: int) -> None:
        from entrypoint.record.metrics import MetricsServer  # http.server takes 20 ms to import

        try:
            if self._file.server is None:
                self._file.server = MetricsServer(address, port, self._metrics)
        except OSError as error:
            hint = "set another metrics.port or metrics.address; the job goes on"
            detail = f"{address} port {port}: {error.strerror or error}"
            self._log(f"warning: EP035 no metrics are served | {detail} | {hint}")
            return
        self._file.server.metrics = self._metrics
        if not (address.startswith("127.") or address == "::1"):
            detail = (
                f"whoever reaches {address} port {port} reads the names of job and nodes, and how"
                " they are"
            )
            self._log(
                f"warning: EP036 metrics are open to others | {detail} | metrics.address 127.0.0.1"
                " keeps them here"
            )

    def _metrics(self) -> str:
        """Return the metrics; for the server's thread. Raises TimeoutError, and RuntimeError after
        the attempt."""
        from entrypoint.record import metrics

        async def status() -> JobStatus:
            return self._status()

        if not self._is_open:
            raise RuntimeError("no attempt is running")
        asked = asyncio.run_coroutine_threadsafe(status(), self._loop)
        return metrics.text(asked.result(_PATIENCE), self._log.lost)

    def _status(self) -> JobStatus:
        self._file.command = self._programs.command
        return self._table.snapshot(
            time.monotonic(),
            self._machine.state.history.attempt,
            self._machine.outcome,
            self._programs.idle(),
        )

    # -- writing

    def _write_soon(self) -> None:
        self._write_within(max(_CLOSEST, _SHARE_OF_CHANGES * self._cost))

    def _write_within(self, seconds: float) -> None:
        """Write so many seconds after the last write, or now if they have passed."""
        when = max(self._loop.time(), self._written + seconds)
        if self._is_open and (self._timer is None or self._timer.when() > when):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._write is None:  # otherwise the disk is slow, and the next write follows this one
            self._write = self._loop.create_task(self._update())

    async def _update(self) -> None:
        begun = time.monotonic()
        pause = max(self._beat, _SHARE * self._cost)
        try:
            await in_thread(partial(self._file.update, self._status(), begun, pause))
        except OSError as error:
            detail = f"{self._file.run_dir}: {error.strerror or error}"
            self._warn("EP034", f"`entrypoint status` cannot show this node | {detail}")
        except Exception as error:  # as in `saw`
            self._warn_of_defect(error)
        self._written = self._loop.time()
        self._cost = time.monotonic() - begun
        self._write = None
        self._write_within(pause)
        if self._table.is_new:
            self._write_soon()

    def _warn_of_defect(self, error: Exception) -> None:
        hint = "status and metrics may be wrong; the job goes on"
        self._warn("EP902", f"internal error: {type(error).__name__}: {error} | {hint}")

    def _warn(self, message: str, text: str) -> None:
        """Log a warning once."""
        if message not in self._warned:
            self._warned.add(message)
            self._log(f"warning: {message} {text}")

    def close(self) -> None:
        """Stop writing, and keep the last state for the result."""
        self._is_open = False
        for pending in (self._timer, self._write):
            if pending is not None:
                pending.cancel()
        with contextlib.suppress(Exception):  # as in `saw`
            self._file.keep(self._status(), time.monotonic())
