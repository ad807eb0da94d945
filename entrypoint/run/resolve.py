"""Names to addresses: the system's own resolver, both families, never in the event loop's way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Address = tuple[int, int, int, str, Any]  # as socket.getaddrinfo gives them

BACKOFF = (0.02, 1.0)  # seconds between attempts at one peer: first, longest


def addresses(host: str, port: int | None) -> list[Address]:
    """Every address of the host, of either family, in the system's order of preference.

    Raises LookupError when there is none now; DNS of a container that starts may come later.
    """
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (socket.gaierror, UnicodeError) as error:
        raise LookupError(str(error)) from None


async def resolve(host: str, update: Callable[[str], None]) -> None:
    """Return once the name has an address; `update` hears why it has none yet."""
    pause = BACKOFF[0]
    nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    while True:
        try:
            await in_thread(lambda: addresses(host, None))
        except LookupError:
            update("no DNS")
            # A name that appears sends no event; it can only be asked for again.
            await asyncio.wait({nothing}, timeout=pause)
            pause = min(pause * 1.5, BACKOFF[1])
        else:
            update("")
            return


async def in_thread(work: Callable[[], T]) -> T:
    """The work's result, from a thread that nobody has to wait for at the end: a name server may never answer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(set_it: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_it(value)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            report: tuple[Callable[[Any], None], Any] = (future.set_exception, error)
        else:
            report = (future.set_result, result)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, *report)

    threading.Thread(target=run, daemon=True).start()
    return await future
