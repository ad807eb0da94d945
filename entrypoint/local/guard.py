"""A visible parent process, and a child that does the work: if either is killed, processes and
files are removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time

from entrypoint.errors import CantCreateError
from entrypoint.system.process import adopt_orphans, sweep
from entrypoint.system.signals import STOPS, USERS
from entrypoint.values import dataclass

# Seconds within which two signals of the process that started this one are one request: timeout(1)
# signals its child, then the group.
_SAME = 0.2


@dataclass(frozen=True)
class Parent:
    """The visible process, after its child has ended: `code` is the child's, -n for signal n."""

    code: int


@dataclass(frozen=True)
class Child:
    """The child. `signals` is a pipe with a byte for each signal that the parent gets; it ends when
    the parent is gone.

    `folder` is a private folder for the work. The parent removes it, or `close` does if the parent
    is gone.
    """

    signals: int
    folder: str

    def close(self) -> None:
        """End all processes and remove the folder, since the parent is gone."""
        sweep()
        shutil.rmtree(self.folder, ignore_errors=True)


def split(prefix: str) -> Parent | Child:
    """Become two processes: return `Child` in the child at once, `Parent` in the parent after the
    child's end.

    The folder's name begins with `prefix`. This process must have only one thread. Raises
    CantCreateError.
    """
    watched = [
        signum for signum in (*STOPS, *USERS) if signal.getsignal(signum) is not signal.SIG_IGN
    ]
    signal.pthread_sigmask(signal.SIG_BLOCK, (*watched, signal.SIGCHLD))
    try:
        folder = tempfile.mkdtemp(prefix=prefix)  # 0700
    except OSError as error:
        hint = "make room, start the container with --tmpfs /tmp, or set TMPDIR to a writable place"
        raise CantCreateError(
            "EP410 cannot make a folder for the nodes", error.strerror or str(error), hint
        ) from None
    adopt_orphans()
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(sink)
        os.setsid()  # signals to the group, as from a terminal, arrive only through the parent
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*watched, signal.SIGCHLD))
        adopt_orphans()
        return Child(source, folder)
    os.close(source)
    code = _pass_on(watched, child, sink)
    sweep()
    shutil.rmtree(folder, ignore_errors=True)
    return Parent(code)


def _pass_on(watched: list[signal.Signals], child: int, sink: int) -> int:
    """Pass signals on to the child until it has ended, and return its code."""
    last = -_SAME
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        came = signal.sigwaitinfo({*watched, signal.SIGCHLD})
        if came.si_signo == signal.SIGCHLD:
            continue
        if came.si_signo in STOPS:
            now = time.monotonic()
            # 0 is no process: a terminal's Ctrl-C, each of which counts
            if came.si_pid == os.getppid() != 0 and now - last < _SAME:
                continue
            last = now
        with contextlib.suppress(BrokenPipeError):  # the child is ending
            os.write(sink, bytes([came.si_signo]))
