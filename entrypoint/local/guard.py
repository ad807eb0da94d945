"""One process that people see, and a child that does the work: whichever of the two is killed, nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

from entrypoint.errors import CantCreateError
from entrypoint.system.process import adopt_orphans, sweep
from entrypoint.system.signals import STOPS, USERS
from entrypoint.values import dataclass


@dataclass(frozen=True)
class Parent:
    """The process that people see, once its child has ended: `code` is that one's, -n for signal n."""

    code: int


@dataclass(frozen=True)
class Child:
    """The child. `signals` is a pipe: a byte for each signal that the other was sent; it ends once that one is gone.

    `folder` is a private one for the work. The other removes it, or `close` does, where the other is gone.
    """

    signals: int
    folder: str

    def close(self) -> None:
        """Leave nothing, since nobody else is there to do so."""
        sweep()
        shutil.rmtree(self.folder, ignore_errors=True)


def split(prefix: str) -> Parent | Child:
    """Become two processes: `Child` in the child at once, `Parent` in the other after the child's end.

    The folder's name begins with `prefix`. This process must have one thread. Raises CantCreateError.
    """
    watched = [signum for signum in (*STOPS, *USERS) if signal.getsignal(signum) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, (*watched, signal.SIGCHLD))
    try:
        folder = tempfile.mkdtemp(prefix=prefix)  # 0700
    except OSError as error:
        do = "make room, or set TMPDIR to a writable place"
        raise CantCreateError("EP410 cannot make a folder for the nodes", error.strerror or str(error), do) from None
    adopt_orphans()
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(tell)
        os.setsid()  # what a terminal, or anybody, sends to the group reaches us through the other alone
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*watched, signal.SIGCHLD))
        adopt_orphans()
        return Child(told, folder)
    os.close(told)
    code = _pass_on(watched, child, tell)
    sweep()
    shutil.rmtree(folder, ignore_errors=True)
    return Parent(code)


def _pass_on(watched: list[signal.Signals], child: int, tell: int) -> int:
    """Tell the child of signals until it has ended; its code."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        signum = signal.sigwait({*watched, signal.SIGCHLD})
        if signum != signal.SIGCHLD:
            try:
                os.write(tell, bytes([signum]))
            except BrokenPipeError:
                continue  # it is ending
