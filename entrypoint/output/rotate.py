"""A log file of a program's output, unchanged, that is rotated at a size."""

from __future__ import annotations

import os
import time

from entrypoint.system.descriptors import open_regular, write_all

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

_HOW = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_MODE = 0o640
_LOOK = 1.0  # seconds between two checks of the name


class RotatingFile:
    """The file, whose predecessors are FILE.1, the latest, to FILE.<count - 1>.

    Other programs may rotate it, too: a file that was moved or removed is created again, one that
    was cut is continued. `max_size` is its limit in bytes, 0 for none; `count` the number of files
    with it. `failed` is called once, with the number of the error, if it cannot be written any
    more: the copy is lost, and the job goes on.

    Raises OSError if it cannot be opened.
    """

    _fd = -1
    _size = 0
    _ended = True  # whether its last line has ended

    def __init__(
        self, file: str, max_size: int, count: int, failed: Callable[[int], object]
    ) -> None:
        self._file = file
        self._max_size = max_size
        self._count = count
        self._failed = failed
        self._open()

    def write(self, data: bytes) -> None:
        """Append data. A line stays in one file, unless it is longer than a file or comes in
        several pieces."""
        try:
            if self._fd >= 0 and time.monotonic() >= self._looked + _LOOK:
                self._open()
            while self._max_size and self._size + len(data) > self._max_size and self._fd >= 0:
                room = max(0, self._max_size - self._size)
                cut = data.rfind(b"\n", 0, room) + 1
                if not cut and not (self._ended and self._size):
                    cut = room
                self._add(data[:cut])
                data = data[cut:]
                self._next()
            self._add(data)
        except OSError as error:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._failed(error.errno or 0)

    def _open(self) -> bool:
        """Open the file of that name and read its size. Return whether another program has rotated
        or cut it."""
        self._looked = time.monotonic()
        fd = open_regular(self._file, _HOW, _MODE)
        status = os.fstat(fd)
        before = self._size
        is_new = self._fd < 0 or not os.path.samestat(status, os.fstat(self._fd))
        if is_new:
            fd, self._fd = self._fd, fd
        if fd >= 0:
            os.close(fd)
        self._size = status.st_size
        return is_new or self._size < before

    def _add(self, data: bytes) -> None:
        if data and self._fd >= 0:
            self._size += len(data)
            self._ended = data.endswith(b"\n")
            write_all(self._fd, data)

    def _next(self) -> None:
        """Begin another file. Readers can read the old one to its end, and the name always
        exists."""
        if self._open():
            return  # it has room again
        file = self._file
        fresh = f"{file}.new"
        for number in range(self._count - 1, 0, -1):
            if os.path.exists(f"{file}.{number}"):
                os.rename(f"{file}.{number}", f"{file}.{number + 1}")
        if os.path.exists(f"{file}.{self._count}"):
            os.unlink(f"{file}.{self._count}")
        if self._count > 1:
            try:
                os.link(file, f"{file}.1")
            except (
                OSError
            ):  # a file system without links, on which the name is missing for a moment
                os.rename(file, f"{file}.1")
        fd = open_regular(fresh, _HOW | os.O_TRUNC, _MODE)
        os.close(self._fd)
        self._fd = fd
        self._size = 0
        self._ended = True
        os.rename(fresh, file)
