"""Processes below this one: starting one, and awaiting their ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from entrypoint.system import proc
from entrypoint.system.clock import rest
from entrypoint.system.process import sweep, tied

_LOOK = 1.0  # seconds between two looks for the end of a process, if the kernel cannot notify us


async def start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None = None, supervised: bool = False, **streams: Any
) -> asyncio.subprocess.Process:
    """Start a program as the leader of its own session, so that a terminal's Ctrl-C reaches it through us alone.

    The kernel kills it when this process dies, if setpriv is there. A supervisor (`supervised`) notices our death
    itself, and then ends more than the kernel would. Raises OSError when it is not there or cannot be executed.
    """
    argv = argv if supervised else tied(argv)
    return await asyncio.create_subprocess_exec(*argv, env=env, cwd=cwd, start_new_session=True, **streams)


def on_end(pid: int, callback: Callable[[], None]) -> Callable[[], object]:
    """Have `callback` called once when this process has ended, our child or not. Returns a function to cancel this."""
    loop, watch = asyncio.get_running_loop(), contextlib.ExitStack()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(callback).cancel
    except OSError:  # an old kernel, or a seccomp profile that does not know it
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


async def end_all(limit: float) -> list[str]:
    """As sweep(), and wait until the kernel has freed their memory, ports and devices. Returns the processes that are
    left after `limit` seconds, such as `pid 12, state D`."""
    left = sweep()
    wait = asyncio.ensure_future(gone(left))
    done, _ = await asyncio.wait({wait}, timeout=limit)
    wait.cancel()
    return [] if done else [f"pid {pid}, state {proc.state(pid)[0]}" for pid in sorted(left) if not proc.has_ended(pid)]
