"""Background work of the event loop: cancelled before its start it leaves no warning, its errors
end the job."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from entrypoint.system.threads import Background


async def _errors(cancel: bool) -> list[str]:
    """Return the errors of work that fails, and may be cancelled before."""

    async def fail() -> None:
        raise RuntimeError("no room")

    errors: list[str] = []
    background = Background(lambda error: errors.append(str(error)))
    task = background(fail())
    assert background == {task}
    if cancel:
        background.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert not background
    return errors


@pytest.mark.promise("work that is cancelled before it starts leaves no warning on stderr")
def test_work_that_is_cancelled_before_it_starts_leaves_no_warning() -> None:
    """A job that ends as it begins something new prints no "coroutine was never awaited"."""
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("always")
        errors = asyncio.run(_errors(cancel=True))
        gc.collect()
    assert [str(warning.message) for warning in printed] == []
    assert errors == []


@pytest.mark.control("work that is cancelled before it starts leaves no warning on stderr")
def test_an_error_in_it_ends_the_job() -> None:
    assert asyncio.run(_errors(cancel=False)) == ["no room"]
