"""The parent of the image's own start, and how image-entry, which the start runs, reaches it.

A start that ends without image-entry has run another program, or none, and may still exit with 0.
image-entry therefore connects to an abstract Unix socket of the parent (unix(7)): this needs no
file, and sudo, which closes descriptors, leaves it usable. The kernel tells who connects
(SO_PEERCRED), and only processes below the start count.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

from entrypoint.base.values import frozen
from entrypoint.system import proc, process
from entrypoint.system.prctl import PDEATHSIG, prctl

# The parent's own faults and its terminal's; all other signals are passed on, as by tini.
_OWN = {
    getattr(signal, f"SIG{name}")
    for name in ("FPE", "ILL", "SEGV", "BUS", "ABRT", "TRAP", "SYS", "TTIN", "TTOU")
}
_PASSED_ON = signal.valid_signals() - _OWN
_INTERVAL = 0.01  # seconds between two checks of the socket, until image-entry is reached
_LONG = 3600.0  # seconds to wait for a signal afterwards
_ANSWER = 60.0  # seconds within which a parent that is there answers


@frozen
class StartResult:
    """The result of the image's own start."""

    status: int | None  # as in a shell; None if it did not end in time
    reached: int  # number of times that it ran image-entry
    is_left: bool  # whether image-entry was still running: nobody has waited for its status
    told: int | None  # the program's status, as image-entry tells it; None if it does not


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, mark: str, limit: float = 0
) -> StartResult:
    """Run the start, whose image-entry calls `reach` with this mark, and return how it ended.

    image-entry is reached once. With a limit, in seconds, each time counts, and processes that the
    start leaves are still there. The caller's signals stay blocked: it exits, or restores them.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_address(mark))
        listener.listen()
        listener.setblocking(False)
        if not (child := _fork()):
            os._exit(process.replace(argv, env, cwd).status)
        return _watch(child, listener, limit)


def reach(mark: str) -> socket.socket | None:
    """Tell the parent that image-entry runs, and return the connection. Returns None if it waits
    for none: it is gone, has been reached already, or this process is not below the start."""
    connection = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        connection.settimeout(_ANSWER)
        connection.connect(_address(mark))
        if connection.recv(1) == b"1":
            return connection
    connection.close()
    return None


def stand_by(connection: socket.socket) -> None:
    """Return in a child, which becomes the program or the job. This process waits for it and tells
    the parent its status, which the start may lose: `"$@" | tee log` exits with that of tee."""
    if not (child := _fork()):
        connection.close()
        return
    end = _watch(child)
    assert end.status is not None  # no time limit
    with contextlib.suppress(OSError):  # the parent was killed
        connection.send(bytes([end.status]))
    os._exit(end.status)


def _address(mark: str) -> str:
    return f"\0entrypoint-{mark}"


def _fork() -> int:
    """Fork, and return the child's pid; 0 in the child. The parent's signals are blocked from then
    on, for `_watch`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if not child:
        prctl(PDEATHSIG, signal.SIGTERM)  # no job goes on without its parent, which was killed
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    else:
        process.hide_memory()  # its environment is the container's, with the job's secret
    return child


def _watch(child: int, listener: socket.socket | None = None, limit: float = 0) -> StartResult:
    """Pass signals on until the child has ended or its time is over."""
    deadline = time.monotonic() + limit
    entry = reached = 0
    connection: socket.socket | None = None
    status: int | None = None
    while status is None and (not limit or time.monotonic() < deadline):
        is_awaited = bool(limit) or not reached
        received = signal.sigtimedwait(_PASSED_ON, _INTERVAL if listener and is_awaited else _LONG)
        if listener and is_awaited and (arrived := _accept(listener, child)):
            entry, connection = arrived
            reached += 1
            process.show(process.STARTED)  # from now on `entrypoint run` itself shows its state
            if not limit:
                listener.close()  # a second image-entry is refused
        if received is None:
            continue
        if received.si_signo == signal.SIGCHLD:
            status = _reap(child)
        elif received.si_code <= 0:  # of a process: the kernel's, such as Ctrl-C, reach the group
            _forward(received.si_signo, entry, child)
    is_left = bool(entry) and not proc.has_ended(entry)
    return StartResult(status, reached, is_left, _told(connection) if connection else None)


def _accept(listener: socket.socket, child: int) -> tuple[int, socket.socket] | None:
    """Return the pid of an image-entry below the start that has connected, and the connection; None
    if there is none."""
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
        pid = int.from_bytes(peer[:4], sys.byteorder)
        if proc.is_below(pid, child):
            connection.send(b"1")
            return pid, connection
        connection.close()
    return None


def _told(connection: socket.socket) -> int | None:
    """Return the status that image-entry has told; None if it has not."""
    with connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        if data := connection.recv(1):
            return data[0]
    return None


def _reap(child: int) -> int | None:
    """Reap what has ended, orphans too if this is process 1. Returns the start's status; None if it
    still runs."""
    status: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = process.exit_status(os.waitstatus_to_exitcode(ended[1]))
    return status


def _forward(signum: int, entry: int, child: int) -> None:
    """Signal image-entry, since a shell that waits for it would end and leave it; the start if it
    has not reached it, or may not be bypassed."""
    for pid in (entry, child) if proc.is_below(entry, child) else (child,):
        with contextlib.suppress(OSError):
            os.kill(pid, signum)
            return
