"""Time and daemon threads for coroutines to wait for. Work in such a thread may never end: neither
the event loop nor the end of this process waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from entrypoint.system import cgroups

T = TypeVar("T")


async def rest(seconds: float) -> None:
    """Let time pass before a state is checked again that no event announces."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)


class Background(set[asyncio.Task[Any]]):
    """Coroutines that run in the background; `failed` takes the error of one."""

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        super().__init__()
        self._failed = failed

    def __call__(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine.

        The task runs the coroutine itself: within another one it would never start, of which Python
        warns on stderr, if the task is cancelled before its first step.
        """
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed(error)

    def cancel(self) -> None:
        """Cancel all that still run."""
        for task in list(self):
            task.cancel()


class _Threads:
    """Daemon threads that end when there is no work; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._work: deque[Callable[[], None]] = deque()
        self._lock = allocate_lock()

    def do(self, work: Callable[[], None]) -> None:
        """Do the work soon. Raises RetryError if a thread is needed and none can start."""
        with self._lock:
            self._work.append(work)
            if self._count == self._most:
                return
            self._count += 1
        try:
            # the start of a threading.Thread waits until it runs
            start_new_thread(self._run, ())
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
                with contextlib.suppress(ValueError):  # another thread does it
                    self._work.remove(work)
            raise cgroups.refused("thread") from error

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._count -= 1
                    return
                work = self._work.popleft()
            work()


_threads = _Threads(256)


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Return the future of the work's result, from a daemon thread: a name server may never answer,
    for example. Raises RetryError if no thread can start."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        if future.cancelled():
            return
        deliver: Callable[[], None]
        try:
            deliver = partial(future.set_result, work())
        except BaseException as error:
            deliver = partial(future.set_exception, error)
        # the loop is closed, so nothing waits for the result
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else deliver())

    _threads.do(run)
    return future
