"""Writing to file descriptors that others hold, too. Each rank's supervisor imports this: keep it fast."""

from __future__ import annotations

import os
import select

CHUNK = 65536  # bytes read at a time


def write_all(fd: int, data: bytes) -> None:
    """Write it all, however long that takes, also where another process has made `fd` non-blocking.

    Raises OSError where nobody reads it any more, or the disk is full.
    """
    left = memoryview(data)  # else each part would be a copy of all that is left
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            select.select([], [fd], [])


def reopened(fd: int) -> int:
    """Return a file descriptor for the same pipe or terminal, non-blocking for us alone; -1 if there can be none.

    None is for a file, where two descriptors would write over each other.
    """
    if os.stat(fd).st_mode & 0o170000 == 0o010000 or os.isatty(fd):
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass  # it may belong to another user
    return -1
