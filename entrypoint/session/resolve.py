"""The way to a host: its name, by the system's own resolver, and a connection, in both families and
without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable

from entrypoint.base.errors import RetryError
from entrypoint.system.network import Address, addresses
from entrypoint.system.threads import in_thread, rest

_DISCARD = 9  # the discard port, which never answers, RFC 863
_SLOW = 0.25  # seconds after which a query is sent once more
# Seconds of the first attempts to connect. A container's name resolves before its network is up,
# and the kernel repeats a lost SYN only after a second (RFC 6298).
_SOON = (0.2, 0.3)
# Seconds of the last attempt: two SYN. Then the name is resolved again, since an address that does
# not answer may be that of a Pod whose successor has another one.
_LAST = 2.0


class AttemptFailed(Exception):
    """A failed attempt to log in to a peer; the next attempt may succeed."""

    def __init__(
        self, reason: str, refused: bool = False, late: bool = False, is_ours: bool = False
    ) -> None:
        super().__init__(reason)
        self.refused = refused  # the peer answered, but one side does not accept the other's key
        self.late = late  # the peer, or its machine, may only be slow
        self.is_ours = is_ours  # another node of this job has answered


def pause(begun: float, peers: int = 1) -> float:
    """Return the seconds until the next attempt of a wait that began at `begun` (time.monotonic()).

    A fiftieth of the time waited so far, so that a long wait costs little and adds at most two per
    cent. With many peers it is longer: 2000 attempts a second keep the leader half busy.
    """
    longest = max(1.0, peers / 2000)
    return min(longest, max(0.02, (time.monotonic() - begun) / 50) * max(1.0, peers / 64))


async def _ask(host: str, port: int | None, failures: list[str]) -> list[Address]:
    """One query. Why it could not be made is added to `failures`."""
    try:
        return await in_thread(lambda: addresses(host, port))
    except LookupError:  # also an answer: there is no address yet
        return []
    except (RetryError, OSError) as error:  # no thread or file is available now
        failures.append(str(error))
        return []


async def resolve(
    host: str, port: int | None, update: Callable[[str], None], peers: int = 1
) -> list[Address]:
    """Return the host's addresses as soon as it has some; `update` is called with the reason while
    it has none.

    A container engine's name server forwards unknown names to a server that may never answer, so a
    slow query is sent again in parallel: a container that has started meanwhile is resolved at
    once.
    """
    # an address needs no name server, and no thread
    with contextlib.suppress(LookupError):
        return addresses(host, port, socket.AI_NUMERICHOST)
    # glibc would wait 5 s for each of two answers (resolv.conf(5)). Programs still get the
    # container's environment.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")
    begun = time.monotonic()
    limit = min(12, max(1, 256 // peers))  # concurrent queries
    queries: set[asyncio.Task[list[Address]]] = set()
    failures: list[str] = []

    try:
        while True:
            if len(queries) < limit:
                queries.add(asyncio.create_task(_ask(host, port, failures)))
            done, queries = await asyncio.wait(
                queries,
                timeout=_SLOW if len(queries) < limit else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                if result := task.result():
                    return result
            if done:
                update(failures.pop() if failures else "no DNS")
                # No event announces a new name; it can only be queried again.
                await rest(pause(begun, peers))
    finally:
        for task in queries:
            task.cancel()


def greet(targets: list[Address]) -> None:
    """Send an empty packet to a host's addresses, so that its kernel learns this node's hardware
    address.

    A container's name resolves before its network is up. An ARP request sent too early is repeated
    only a second later (arp(7), retrans_time_ms), and all connections wait for it; a packet from
    the container ends that wait.
    """
    for family, _, _, _, address in targets:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as packet:
            packet.setblocking(False)
            packet.sendto(b"", (address[0], _DISCARD, *address[2:]))


async def connect(addresses: list[Address]) -> socket.socket:
    """Return a connection to the first of a host's addresses, of either family, that accepts one in
    time."""
    reason = "no address"
    for address in addresses:
        try:
            return await _connect_soon(address)
        except ConnectionRefusedError:
            reason = "nothing listens there yet"
        except (TimeoutError, asyncio.TimeoutError):
            reason = f"no answer from {address[4][0]}"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
    raise AttemptFailed(reason)


async def _connect_soon(address: Address) -> socket.socket:
    for limit in _SOON:
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            return await _connect_once(address, limit)
    return await _connect_once(address, _LAST)


async def _connect_once(address: Address, limit: float) -> socket.socket:
    family, kind, protocol, _, where = address
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, where), limit)
        # Every step of a login is one small packet each way; Nagle would cost 40 ms for each.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    except BaseException:
        connection.close()
        raise
