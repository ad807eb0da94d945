"""Background work of the event loop: cancelled before its start it leaves no warning, its errors
end the job."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Coroutine
from typing import Any

import pytest

from entrypoint import node


class Loop(node.Loop):
    """A node's event loop of which only the background work is there."""

    def __init__(self) -> None:
        self._tasks = set()
        self.errors: list[str] = []

    def _failed(self, error: Exception) -> None:
        self.errors.append(str(error))


async def _end(loop: Loop, work: Coroutine[Any, Any, Any], cancel: bool) -> None:
    task = loop._background(work)
    assert loop._tasks == {task}
    if cancel:
        task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert not loop._tasks


async def _fails() -> None:
    raise RuntimeError("no room")


@pytest.mark.promise("work that is cancelled before it starts leaves no warning on stderr")
def test_work_that_is_cancelled_before_it_starts_leaves_no_warning() -> None:
    """A job that ends as it begins something new prints no "coroutine was never awaited"."""
    loop = Loop()
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("always")
        asyncio.run(_end(loop, _fails(), cancel=True))
        gc.collect()
    assert [str(warning.message) for warning in printed] == []
    assert loop.errors == []


@pytest.mark.control("work that is cancelled before it starts leaves no warning on stderr")
def test_an_error_in_it_ends_the_job() -> None:
    loop = Loop()
    asyncio.run(_end(loop, _fails(), cancel=False))
    assert loop.errors == ["no room"]
