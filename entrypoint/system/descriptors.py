"""Writing to file descriptors that other processes share. Each rank's supervisor imports this: keep
it fast."""

from __future__ import annotations

import os
import select

CHUNK = 65536  # bytes read at a time


def write_all(fd: int, data: bytes) -> None:
    """Write all data, however long that takes, even if another process has made `fd` non-blocking.

    Raises OSError if there is no reader any more, or the disk is full.
    """
    remaining = memoryview(data)  # slices of it copy nothing
    while remaining:
        try:
            remaining = remaining[os.write(fd, remaining) :]
        except BlockingIOError:
            select.select([], [fd], [])


def reopened(fd: int) -> int:
    """Return a file descriptor for the same pipe or terminal, non-blocking only for this process;
    -1 if impossible.

    A file has none: writes through two descriptors would overwrite each other.
    """
    if os.stat(fd).st_mode & 0o170000 == 0o010000 or os.isatty(fd):
        try:
            return os.open(
                f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            )
        except OSError:
            pass  # it may belong to another user
    return -1
