"""Names to addresses: the system's own resolver, both families, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from entrypoint.system.clock import rest
from entrypoint.system.threads import in_thread

Address = tuple[int, int, int, str, Any]  # as socket.getaddrinfo gives them

_DISCARD = 9  # the port for what nobody is to answer, RFC 863
_SLOW = 0.25  # seconds after which a question to a name server is asked once more


def addresses(host: str, port: int | None) -> list[Address]:
    """Every address of the host, of either family, in the system's order of preference.

    Raises LookupError when there is none now; DNS of a container that starts may come later.
    """
    try:
        # As bytes, since Python would import a table of all alphabets for a text: our names are ASCII.
        return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM))
    except (socket.gaierror, UnicodeError) as error:
        raise LookupError(str(error)) from None


def pause(begun: float, peers: int = 1) -> float:
    """Seconds until the next attempt, when the wait began at `begun` (time.monotonic()) for so many peers.

    A fiftieth of the time waited so far, so that a long wait costs little and adds at most two per cent.
    """
    return min(1.0, max(0.02, (time.monotonic() - begun) / 50) * max(1.0, peers / 64))


async def resolve(host: str, port: int | None, update: Callable[[str], None], peers: int = 1) -> list[Address]:
    """The host's addresses once it has some; `update` is told why it has none yet.

    An engine's name server passes a name it does not know yet on to a server that may never answer, so a question that
    takes long is asked again beside the first: a container that has started meanwhile is found at once.
    """
    with contextlib.suppress(socket.gaierror, UnicodeError):  # an address needs no name server, and no thread
        return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    # glibc would wait 5 s for each of two answers (resolv.conf(5)); our environment only, programs get the container's.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")
    begun = time.monotonic()
    most = min(12, max(1, 256 // peers))  # questions under way at a time
    asked: set[asyncio.Task[list[Address]]] = set()
    wrong: list[str] = []

    async def ask() -> list[Address]:
        try:
            return await in_thread(lambda: addresses(host, port))
        except LookupError:  # also an answer: there is no address yet
            return []
        except (RuntimeError, OSError) as error:  # no more threads or files; later there may be
            wrong.append(str(error))
            return []

    try:
        while True:
            if len(asked) < most:
                asked.add(asyncio.create_task(ask()))
            done, asked = await asyncio.wait(asked, timeout=_SLOW, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if found := task.result():
                    return found
            if done:
                update(wrong.pop() if wrong else "no DNS")
                # A name that appears sends no event; it can only be asked for again.
                await rest(pause(begun, peers))
    finally:
        for task in asked:
            task.cancel()


def greet(found: list[Address]) -> None:
    """Send an empty packet to a host's addresses, so that it learns where on the network this node is.

    A container is known by name before its network is up. Who asks for its hardware address in between asks again
    after a second only (arp(7), retrans_time_ms), and all connections to it wait; a packet of its own ends that.
    """
    for family, _, _, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as packet:
            packet.setblocking(False)
            packet.sendto(b"", (address[0], _DISCARD, *address[2:]))
