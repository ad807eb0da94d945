"""Names to addresses, where a name server answers late and several questions are under way."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import Any

import pytest

from entrypoint.session import resolve


def test_answers_that_come_at_one_time_are_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """One knows the name, the others did not yet: an error that nobody looked at would have ended
    the job."""
    together, number = threading.Barrier(3), iter(range(100))

    def answer(host: str, port: int | None, flags: int = 0) -> list[Any]:
        if flags:
            raise LookupError("not an address")
        mine = next(number)
        together.wait()
        if mine != 1:
            raise LookupError("not known yet")
        return ["address"]

    monkeypatch.setattr(resolve, "addresses", answer)
    unseen: list[dict[str, Any]] = []

    async def ask() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: unseen.append(context)
        )
        found = await resolve.resolve("host", None, lambda why: None)
        for _ in range(50):  # what was cancelled, or came beside it
            await asyncio.sleep(0)
        gc.collect()
        return found

    assert asyncio.run(ask()) == ["address"]
    assert unseen == []


@pytest.mark.promise(
    "a worker tells worker-0's kernel where it is, with one empty packet",
    control="a second read of the same socket gets nothing",
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_greeting_is_one_empty_packet(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that takes none is no error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as heard:
        heard.settimeout(10)
        try:
            heard.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        monkeypatch.setattr(resolve, "_DISCARD", heard.getsockname()[1])
        unreachable = resolve.addresses("255.255.255.255", None)
        resolve.greet([*unreachable, *resolve.addresses(host, None)])
        assert heard.recv(100) == b""
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.recv(100)
