"""Reads the stack of one process, by the signal on which its Python prints it itself.

This needs no right to trace processes, but `own_stacks/sitecustomize.py` in that Python. The signal
would end any other process, so none gets it. A suspended process answers no signal.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from entrypoint.base.text import one_line
from entrypoint.job.stacks import Frame, chosen
from entrypoint.system import proc
from entrypoint.system.threads import rest

SIGNAL = 46  # as in own_stacks/sitecustomize.py: a real-time signal that no library uses
_FILE = "/memfd:entrypoint-stacks"
_LINE = re.compile(r'  File "([^"\n]{1,4096})", line (\d{1,9}) in ([^\n]{1,1000})')
_PAUSE = 0.02  # seconds between two readings of a file
_QUIET = 0.1  # seconds without a new line after which a stack is complete
_MOST = 1 << 18  # bytes of the stacks of all threads of a process
_DEEPEST = 400  # frames that are read
# Where libraries are, in a path; what follows says which one it is.
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|lib(?:64)?/python\d\.\d{1,2})(?=/)")
# The function below which a process that multiprocessing has forked is itself.
_FORKED = ("multiprocessing/process.py", "_bootstrap")


async def read(pid: int, limit: float) -> tuple[tuple[Frame, ...], str]:
    """Return the frames of a process's main thread, the innermost first, or why there are none,
    within `limit` seconds."""
    files = (path for path, target in proc.open_files(pid) if target.startswith(_FILE))
    if not proc.catches(pid, SIGNAL) or not (path := next(files, "")):
        return (), "its Python prints no stack on a signal (see stall.minutes)"
    if proc.state(pid)[0] in "Tt":
        return (), "a suspended process answers no signal"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            start = os.fstat(file.fileno()).st_size
            os.kill(pid, SIGNAL)
            text = await _answer(file.fileno(), start, limit)
    except OSError:
        return (), "it has ended"
    frames = parsed_dump(text)
    return chosen(frames), "" if frames else f"no answer to the signal within {limit:.0f}s"


async def _answer(fd: int, start: int, limit: float) -> str:
    """Return what is written into the file, once nothing more comes."""
    ends = time.monotonic() + limit
    size = start
    changed = time.monotonic()
    while (now := time.monotonic()) < ends and (size == start or now < changed + _QUIET):
        await rest(_PAUSE)
        if (new := os.fstat(fd).st_size) != size:
            size = new
            changed = time.monotonic()
    return os.pread(fd, min(size - start, _MOST), start).decode("utf-8", "replace")


def parsed_dump(text: str) -> tuple[Frame, ...]:
    """Return the frames of the main thread from what faulthandler prints: it is the last one."""
    _, _, main = text.rpartition("hread ")
    return _own(
        [
            frame_of(match[3], match[1], int(match[2]))
            for match in list(_LINE.finditer(main))[:_DEEPEST]
        ]
    )


def frame_of(function: str, file: str, line: int) -> Frame:
    """Return a frame; a library's file is named from the library on."""
    *_, last = [None, *_LIBRARY.finditer(file)]
    is_library = last is not None or file.startswith("<frozen ")
    name = file[last.end() + 1 :] if last else file
    return Frame(one_line(function, 100), _end(name), max(0, line), is_library)


def _end(path: str) -> str:
    """Return the end of a path, which says most, in at most 100 characters."""
    path = one_line(path, 4096)
    return path if len(path) <= 100 else f"...{path[-97:]}"


def _own(frames: list[Frame]) -> tuple[Frame, ...]:
    """Return the frames without those of the process that has forked this one."""
    for at, frame in enumerate(frames):
        if (frame.file, frame.function) == _FORKED:
            return tuple(frames[: at + 1])
    return tuple(frames)


def kernel_of(pid: int) -> tuple[str, str]:
    """Return a process's state, and the function of the kernel in which it waits."""
    state, _ = proc.state(pid)
    try:
        return state, Path(f"/proc/{pid}/wchan").read_text().strip("0\n")[:60]
    except OSError:
        return state, ""
