"""Where a node's timeline begins: with its container, as far as the kernel tells."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from entrypoint.phases import Phase, Span
from entrypoint.system import proc

_FIRST = 0xEFFFFFFC  # the inode of the machine's own pid namespace (linux/proc_ns.h): there pid 1 is no container's
_LONGEST = 3600.0  # seconds; a container that is older was not started for this job


def before(begun: float, hooked: float) -> list[Span]:
    """What was before the boot: the start hooks ran from `begun` to `hooked` (monotonic seconds)."""
    own = min(_started("self", begun), begun)
    return [*_container(own), Span(Phase.FACTS.timeline, own, begun), Span(Phase.HOOKS.timeline, begun, hooked)]


def _container(own: float) -> Iterator[Span]:
    with contextlib.suppress(OSError):
        if os.getpid() != 1 and os.stat("/proc/self/ns/pid").st_ino != _FIRST and proc.is_below(os.getpid(), 1):
            first = _started(1, own)
            if 0 < own - first < _LONGEST:
                yield Span(Phase.CONTAINER.timeline, first, own)


def _started(pid: int | str, unknown: float) -> float:
    """When a process started, on the monotonic clock: the kernel counts from its boot, sleep included (proc(5))."""
    try:
        ticks = int(proc.stat(pid)[1][19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return unknown
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
