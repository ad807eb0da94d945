"""Processes below this one: starting one, and awaiting their ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from entrypoint.system import cgroups, proc
from entrypoint.system.process import tied
from entrypoint.system.threads import rest

_LOOK = 1.0  # seconds between two checks for the end of a process, if the kernel cannot report it


async def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None = None,
    **streams: Any,
) -> asyncio.subprocess.Process:
    """Start a program as the leader of its own session, so that a terminal's Ctrl-C reaches only
    this process.

    The kernel kills it when this process dies, if setpriv is installed. Raises OSError if the
    program does not exist or cannot be executed, RetryError if the kernel refuses another process.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *tied(argv), env=env, cwd=cwd, start_new_session=True, **streams
        )
    except (BlockingIOError, RuntimeError) as error:
        # RuntimeError: of asyncio's thread that awaits the end, before Python 3.12
        raise cgroups.refused("process") from error


def on_end(pid: int, callback: Callable[[], None]) -> Callable[[], object]:
    """Call `callback` once when a process, a child or not, has ended. Return a function to cancel
    this."""
    loop = asyncio.get_running_loop()
    watch = contextlib.ExitStack()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(callback).cancel
    except OSError:  # an old kernel, or a seccomp profile that forbids it
        return asyncio.create_task(_look_for_end(pid, callback)).cancel

    def ended() -> None:
        watch.close()
        callback()

    watch.callback(os.close, fd)
    watch.callback(loop.remove_reader, fd)
    loop.add_reader(fd, ended)
    return watch.close


async def _look_for_end(pid: int, callback: Callable[[], None]) -> None:
    while not proc.has_ended(pid):
        await rest(_LOOK)
    callback()


async def gone(pids: Iterable[int]) -> None:
    """Return when none of these processes runs any more."""
    for pid in pids:
        ended = asyncio.Event()
        forget = on_end(pid, ended.set)
        try:
            await ended.wait()
        finally:
            forget()


async def end_all(limit: float, spared: Set[int] = frozenset()) -> list[str]:
    """Kill all processes below this one but `spared`, and wait until the kernel has freed their
    memory, ports and devices.

    Returns the processes that still exist after `limit` seconds, such as `pid 12, state D`.
    """
    remaining = proc.sweep(spared)
    wait = asyncio.ensure_future(gone(remaining))
    done, _ = await asyncio.wait({wait}, timeout=limit)
    wait.cancel()
    if done:
        return []
    return [
        f"pid {pid}, state {proc.state(pid)[0]}"
        for pid in sorted(remaining)
        if not proc.has_ended(pid)
    ]
