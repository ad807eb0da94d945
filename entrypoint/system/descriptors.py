"""Files and file descriptors that other processes share. The keeper imports this: keep
it fast."""

from __future__ import annotations

import os
import select

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

CHUNK = 65536  # bytes read at a time
_EINVAL = 22


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


def at(folder: str | os.PathLike[str], name: str, act: Callable[[str], object]) -> None:
    """Call a socket's `bind` or `connect` with the address of this name in a folder: an address has
    at most 107 bytes, and the folder's path may have more. Raises OSError."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        act(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.close(fd)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a file that a program may have replaced, without ever waiting. Raises OSError if it is
    not a regular file, such as a named pipe, a device or a link."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC, mode)
    if os.fstat(fd).st_mode & 0o170000 != 0o100000:
        os.close(fd)
        raise OSError(_EINVAL, "not a regular file", os.fspath(path))
    return fd


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the first bytes of a file that a program may have replaced, as `open_regular`."""
    fd = open_regular(path)
    try:
        return os.read(fd, min(most, os.fstat(fd).st_size))
    finally:
        os.close(fd)
