"""Multiplexer of several nodes' output to one stdout and stderr: lines stay whole, bytes unchanged.

A line is written when it has ended. One of more than `_LONG` bytes is written as it comes, while
the other nodes of that stream wait for its end. No line waits, or makes others wait, for more than
a second without output of its node, or for more than five in total.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from entrypoint.output.stream import OPEN_FOR, QUIET
from entrypoint.system.descriptors import CHUNK, reopened

# bytes of a line that are held, and bytes that wait for a slow reader: then the nodes wait, too
_LONG = 1 << 20
_REST = 16 << 20  # bytes read from a stream after its node's end: more than the largest pipe holds
_LAST = 5.0  # seconds in which a reader must take some of the remaining bytes, at the end


class Merge:
    """Passes on the lines of its sources; `add` one for each node's stdout and stderr."""

    def __init__(self) -> None:
        self._targets: dict[int, _Target] = {}
        self._sources: list[_Source] = []
        self._holders: dict[_Target, _Source] = {}  # source whose line is half written
        self._loop = asyncio.get_running_loop()

    def add(self, fd: int, target: int) -> None:
        """Read `fd` until it ends, and then close it; write to `target`, which is 1 or 2."""
        os.set_blocking(fd, False)
        if target not in self._targets:
            same = next(
                (entry for fd, entry in self._targets.items() if os.path.sameopenfile(fd, target)),
                None,
            )
            self._targets[target] = same or _Target(target, self._go_on)
        source = _Source(fd, self._targets[target])
        self._sources.append(source)
        self._loop.add_reader(fd, self._ready, source)

    async def finish(self) -> int:
        """Pass on the remaining bytes after all writers have ended, and return how many bytes
        nobody read."""
        for source in self._sources:
            if source.fd >= 0:
                source.read(limit=_REST)
                self._close(source)
        for holder in list(self._holders.values()):
            self._pass(holder)
        for last in (False, True):
            for source in self._sources:
                self._pass(source, last)
        return sum([await target.written() for target in set(self._targets.values())])

    def _ready(self, source: _Source) -> None:
        if not source.rest and self._holders.get(source.target) is not source:
            source.began = self._loop.time()
        if not source.read():
            self._close(source)
        self._pass(source)
        self._limit(source)
        if source.fd >= 0 and source.is_full:
            source.paused = True
            self._loop.remove_reader(source.fd)

    def _close(self, source: _Source) -> None:
        self._loop.remove_reader(source.fd)
        os.close(source.fd)
        source.fd = -1
        if source.timer is not None:
            source.timer.cancel()

    def _limit(self, source: _Source) -> None:
        """Set the time limit for the end of the source's line."""
        if source.timer is not None:
            source.timer.cancel()
        if source.fd >= 0 and (source.rest or self._holders.get(source.target) is source):
            due = min(self._loop.time() + QUIET, source.began + OPEN_FOR)
            source.timer = self._loop.call_at(due, self._late, source)

    def _late(self, source: _Source) -> None:
        """Write a line that has not ended in time as far as it has come, and let the others go
        on."""
        if source.target.is_full or self._holders.get(source.target, source) is not source:
            # the source is not being read, so its end cannot arrive
            source.began = self._loop.time()
            self._limit(source)
            return
        self._holders.pop(source.target, None)
        data = bytes(source.rest)
        source.rest.clear()
        source.target.write(data)
        self._go_on()

    def _pass(self, source: _Source, last: bool = False) -> None:
        """Write the ended lines of a source, unless another's line is half written.

        Lines that never end are written `last`: another node's line would continue them.
        """
        if self._holders.get(source.target, source) is not source:
            return
        # \r ends a progress bar's
        end = max(source.rest.rfind(b"\n"), source.rest.rfind(b"\r")) + 1
        if len(source.rest) - end > _LONG or (
            source.fd < 0 and (last or source.target in self._holders)
        ):
            end = len(source.rest)
        data = bytes(source.rest[:end])
        del source.rest[:end]
        source.target.write(data)
        whole = source.fd < 0 or data.endswith((b"\n", b"\r"))
        if whole:
            source.began = self._loop.time()
        if whole and source.target in self._holders:
            del self._holders[source.target]
            self._go_on()
        elif data and not whole:
            self._holders[source.target] = source

    def _go_on(self) -> None:
        """Pass on waiting lines, and resume reading sources that have room."""
        for source in self._sources:
            if source.rest:
                self._pass(source)
            if source.paused and source.fd >= 0 and not source.is_full:
                source.paused = False
                self._loop.add_reader(source.fd, self._ready, source)


class _Source:
    """The pipe with one stream of one node."""

    def __init__(self, fd: int, target: _Target) -> None:
        self.fd = fd  # -1 after its end
        self.target = target
        self.rest = bytearray()  # read, and not passed on yet
        self.paused = False
        self.began = asyncio.get_running_loop().time()  # earliest start of the unfinished line
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Return whether the bytes that were read must be written first."""
        return len(self.rest) > 2 * _LONG or self.target.is_full

    def read(self, limit: int = CHUNK) -> bool:
        """Read what is available, up to so many bytes; return False at the end."""
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while taken < limit:
                if not (data := os.read(self.fd, CHUNK)):
                    return False
                self.rest += data
                taken += len(data)
        return True


class _Target:
    """This process's stdout or stderr. A reader that is slow, or gone, never blocks the process."""

    def __init__(self, fd: int, has_room: Callable[[], None]) -> None:
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._wrote = asyncio.Event()
        self._is_slow = False
        private = reopened(fd)
        self._fd = private if private >= 0 else os.dup(fd)

    @property
    def is_full(self) -> bool:
        """Return whether its reader must take some bytes first."""
        return len(self._waiting) > _LONG

    def write(self, data: bytes) -> None:
        """Write data now, or as soon as there is room; drop it if there is no reader any more."""
        self._waiting += data
        if not self._is_slow:
            self._send()

    def _send(self) -> None:
        was_slow = self._is_slow
        slow = False
        while self._waiting:
            try:
                del self._waiting[: os.write(self._fd, self._waiting[:CHUNK])]
            except BlockingIOError:
                slow = True
                break
            except OSError:
                self._waiting.clear()  # the reader is gone, which does not end the job
        self._is_slow = slow
        if slow and not was_slow:
            self._loop.add_writer(self._fd, self._send)
        elif was_slow and not slow:
            self._loop.remove_writer(self._fd)
        self._wrote.set()
        if was_slow and not self.is_full:  # the event loop called, so no write is in progress
            self._has_room()

    async def written(self) -> int:
        """Wait until all is written, or nobody reads for some seconds; return the number of lost
        bytes."""
        with contextlib.suppress(asyncio.TimeoutError):
            while self._waiting:
                self._wrote.clear()
                await asyncio.wait_for(self._wrote.wait(), _LAST)
        self._loop.remove_writer(self._fd)
        os.close(self._fd)
        return len(self._waiting)
