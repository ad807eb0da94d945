"""Multiplexer of several nodes' output to one stdout and stderr: lines stay whole, bytes unchanged.

A line is written when it has ended. One of more than `_LONG` bytes is written as it comes, while
the other nodes of that stream wait for its end. No line waits, or makes others wait, for more than
a second without output of its node, or for more than five in total.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Iterator

from entrypoint.output.stream import OPEN_FOR, QUIET
from entrypoint.system.descriptors import CHUNK, reopened
from entrypoint.system.threads import in_thread

_LONG = 1 << 20  # bytes of a line that are held
_LAST = 5.0  # seconds in which a reader must take some of the remaining bytes, at the end


class Merge:
    """Passes on the lines of its sources; `add` one for each node's stdout and stderr."""

    def __init__(self) -> None:
        self._targets: dict[int, _Target] = {}
        self._sources: list[_Source] = []
        self._passing: set[asyncio.Future[None]] = set()

    def add(self, fd: int, target: int) -> None:
        """Read `fd` until it ends, and then close it; write to `target`, which is 1 or 2.

        Raises RetryError if no thread can start."""
        same = (known for known in self._targets if os.path.sameopenfile(known, target))
        if (number := next(same, target)) not in self._targets:
            self._targets[number] = _Target(number)
        source = _Source(fd, self._targets[number])
        self._sources.append(source)
        self._passing.add(in_thread(source.pass_on))

    async def finish(self) -> int:
        """Pass on the remaining bytes after all writers have ended, and return how many bytes
        nobody read."""
        await self._passed_on()
        self._passing.add(in_thread(self._pass_unended))
        await self._passed_on()
        return sum(source.received() for source in self._sources) - self._taken()

    async def _passed_on(self) -> None:
        """Return when all is passed on, or nobody has read for some seconds."""
        before = -1
        while self._passing and self._taken() != before:
            before = self._taken()
            _, self._passing = await asyncio.wait(self._passing, timeout=_LAST)

    def _taken(self) -> int:
        return sum(target.taken for target in self._targets.values())

    def _pass_unended(self) -> None:
        """Write last lines without an end, which another node's line would have continued."""
        for source in self._sources:
            source.target.write(source.unended)


class _Source:
    """The pipe with one stream of one node, which a thread reads."""

    _size = 0  # bytes that were read
    _is_over = False
    unended = b""  # its last line, if that has no end

    def __init__(self, fd: int, target: _Target) -> None:
        self._fd = fd
        self.target = target

    def pass_on(self) -> None:
        """Pass on lines until the pipe ends."""
        is_whole = True
        for data, is_whole_now in self._pieces():
            if is_whole:
                self.target.lock.acquire()
            is_whole = is_whole_now
            self.target.write(data)
            if is_whole:
                self.target.lock.release()
        self._is_over = True
        os.close(self._fd)

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Yield bytes to be written, and whether another source's line may follow them."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        rest = b""
        is_begun = False  # whether a part of the line in `rest` was passed on
        left = OPEN_FOR  # seconds that the line may still wait
        while True:
            if not rest and not is_begun:
                poll.poll()
                left = OPEN_FOR
            begun = time.monotonic()
            is_late = not poll.poll(min(QUIET, left) * 1000)
            left -= time.monotonic() - begun
            data = b"" if is_late else os.read(self._fd, CHUNK)
            if not data and not is_late:
                break
            self._size += len(data)
            rest += data
            # \r ends a progress bar's
            end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
            is_late = is_late or left <= 0
            if not is_late and not end and len(rest) > _LONG:
                yield rest, False
                rest = b""
                is_begun = True
            elif is_late or end:
                cut = len(rest) if is_late else end
                yield rest[:cut], True
                rest = rest[cut:]
                is_begun = False
                left = OPEN_FOR
        if is_begun:
            yield rest, True
        else:
            self.unended = rest

    def received(self) -> int:
        """Return how many bytes have come through the pipe, or wait in it."""
        waiting = bytes(4) if self._is_over else fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4))
        return self._size + int.from_bytes(waiting, sys.byteorder)


class _Target:
    """This process's stdout or stderr; `lock` is held by the source whose line is being written."""

    def __init__(self, fd: int) -> None:
        self.lock = threading.Lock()
        self.taken = 0  # bytes that were written, or that nobody reads any more
        private = reopened(fd)
        self._fd = private if private >= 0 else os.dup(fd)

    def write(self, data: bytes) -> None:
        """Write data, however long that takes; drop it if there is no reader any more."""
        while data:
            try:
                sent = os.write(self._fd, data[:CHUNK])
            except BlockingIOError:
                select.select([], [self._fd], [])
                continue
            except OSError:
                sent = len(data)  # the reader is gone, which does not end the job
            self.taken += sent
            data = data[sent:]
