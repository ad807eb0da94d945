"""The beginning of a node's timeline: the start of its container, as far as the kernel shows it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from entrypoint.phases import Phase, Span
from entrypoint.system import proc

# inode of the host's own pid namespace (linux/proc_ns.h), whose pid 1 is no container's
_FIRST = 0xEFFFFFFC
_LONGEST = 3600.0  # seconds; an older container was not started for this job


def before(begun: float, hooked: float) -> list[Span]:
    """Return the phases before the boot; the start hooks ran from `begun` to `hooked` (monotonic
    seconds)."""
    start = min(_started("self", begun), begun)
    return [
        *_container(start),
        Span(Phase.FACTS.timeline, start, begun),
        Span(Phase.HOOKS.timeline, begun, hooked),
    ]


def _container(start: float) -> Iterator[Span]:
    with contextlib.suppress(OSError):
        if (
            os.getpid() != 1
            and os.stat("/proc/self/ns/pid").st_ino != _FIRST
            and proc.is_below(os.getpid(), 1)
        ):
            first = _started(1, start)
            if 0 < start - first < _LONGEST:
                yield Span(Phase.CONTAINER.timeline, first, start)


def _started(pid: int | str, unknown: float) -> float:
    """Return when a process started, on the monotonic clock: the kernel counts from its boot with
    sleep (proc(5))."""
    try:
        ticks = int(proc.stat(pid)[1][19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return unknown
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
