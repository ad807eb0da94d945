"""The diagnosis of a node's failures: how much time it takes in all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrypoint.causes.evidence import Evidence
from entrypoint.job import messages
from entrypoint.output.log import Callbacks
from entrypoint.ranks import diagnosis
from entrypoint.ranks.diagnosis import Diagnostician, Failure


class Probe:
    """Measures nothing."""

    def counters(self) -> Evidence:
        return Evidence()

    def is_at(self, address: str) -> bool:
        return True

    def device_faults(self) -> tuple[()]:
        return ()


@pytest.mark.parametrize(("most", "judged"), [(0.0, 0), (1e9, messages.CAUSES)])
def test_the_judgements_of_a_node_take_a_bounded_time_in_all(
    most: float, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time the ends alone are judged; each failure has a cause."""
    monkeypatch.setattr(diagnosis, "MOST", most)
    told: list[Any] = []

    async def run() -> None:
        tasks: list[asyncio.Task[Any]] = []

        def background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
            tasks.append(asyncio.ensure_future(work))
            return tasks[-1]

        refuse: Callable[..., None] = pytest.fail
        callbacks = Callbacks(log=refuse, tell=told.append, background=background)
        diagnostician = Diagnostician(Probe(), callbacks)  # type: ignore[arg-type]
        for rank in range(messages.CAUSES + 8):
            diagnostician.failed(Failure(f"rank {rank}", 1, ("KeyError: 'a'",)))
        await diagnostician.settled(60)

    asyncio.run(run())
    assert len(told) == messages.CAUSES
    assert sum(bool(message.cause.lines) for message in told) == judged
