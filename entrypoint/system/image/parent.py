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
_INTERVAL = 0.01  # seconds between two checks of the socket, until image-entry is reached
_LONG = 3600.0  # seconds to wait for a signal afterwards
_ANSWER = 60.0  # seconds within which a parent that is there answers


@frozen
class StartResult:
    """The result of the image's own start."""

    status: int | None  # as in a shell; None if it did not end in time
    reached: int  # number of times that it ran image-entry
    is_left: bool  # whether image-entry was still running: nobody has waited for its status


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, mark: str, limit: float = 0
) -> StartResult:
    """Run the start, whose image-entry calls `reach` with this mark, and return how it ended.

    image-entry is reached once. With a limit, in seconds, each time counts, and processes that the
    start leaves are still there. The caller's signals stay blocked: it exits, or restores them.
    """
    signals = signal.valid_signals() - _OWN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_address(mark))
        listener.listen()
        listener.setblocking(False)
        child = os.fork()
        if not child:
            prctl(PDEATHSIG, signal.SIGTERM)  # no job goes on without its parent, which was killed
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os._exit(process.replace(argv, env, cwd).status)
        process.hide_memory()  # its environment is the container's, with the job's secret
        return _watch(child, listener, limit, signals)


def reach(mark: str) -> bool:
    """Tell the parent that image-entry runs. Returns False if it waits for none: it is gone, has
    been reached already, or this process is not below the start."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(_ANSWER)
        connection.connect(_address(mark))
        return connection.recv(1) == b"1"
    return False


def _address(mark: str) -> str:
    return f"\0entrypoint-{mark}"


def _watch(
    child: int, listener: socket.socket, limit: float, signals: set[signal.Signals]
) -> StartResult:
    """Pass signals on until the start has ended or its time is over."""
    deadline = time.monotonic() + limit
    entry = reached = 0
    status: int | None = None
    while status is None and (not limit or time.monotonic() < deadline):
        is_awaited = bool(limit) or not reached
        received = signal.sigtimedwait(signals, _INTERVAL if is_awaited else _LONG)
        if is_awaited and (pid := _accept(listener, child)):
            entry = pid
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
    return StartResult(status, reached, bool(entry) and not proc.has_ended(entry))


def _accept(listener: socket.socket, child: int) -> int:
    """Return the pid of an image-entry below the start that has connected; 0 if there is none."""
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
            pid = int.from_bytes(peer[:4], sys.byteorder)
            if proc.is_below(pid, child):
                connection.send(b"1")
                return pid
    return 0


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
