"""The causes that a node reports of its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrypoint.base.cause import Cause
from entrypoint.causes.evidence import Evidence
from entrypoint.output.log import Callbacks
from entrypoint.ranks.diagnosis import Diagnostician
from entrypoint.ranks.keeping import Failure


class Probe:
    """Measures nothing."""

    def counters(self) -> Evidence:
        return Evidence()

    def is_at(self, address: str) -> bool:
        return True

    def device_faults(self) -> tuple[()]:
        return ()


def causes(
    *failures: Failure, names_nodes: bool = False, log: Callable[..., None] = pytest.fail
) -> list[Cause]:
    """Return the causes that are reported of these failures. Nothing may be logged without `log`."""
    told: list[Any] = []

    async def run() -> None:
        def background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
            return asyncio.ensure_future(work)

        callbacks = Callbacks(log=log, tell=told.append, background=background)
        diagnostician = Diagnostician(Probe(), callbacks)  # type: ignore[arg-type]
        for failure in failures:
            diagnostician.failed(failure, names_nodes)
        await diagnostician.settled(300)

    asyncio.run(run())
    return [message.cause for message in told]
