"""Names to addresses, where a name server answers late and several questions are under way."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from entrypoint.session import resolve


def test_answers_that_come_at_one_time_are_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """One knows the name, the others did not yet: an error that nobody looked at would have ended the job."""
    together, number = threading.Barrier(3), iter(range(100))

    def answer(host: str, port: int | None) -> list[Any]:
        mine = next(number)
        together.wait(10)
        if mine != 1:
            raise LookupError("not known yet")
        return ["address"]

    monkeypatch.setattr(resolve, "addresses", answer)
    unseen: list[dict[str, Any]] = []

    async def ask() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        found = await resolve.resolve("host", None, lambda why: None)
        for _ in range(50):  # what was cancelled, or came beside it
            await asyncio.sleep(0)
        gc.collect()
        return found

    assert asyncio.run(ask()) == ["address"]
    assert unseen == []
