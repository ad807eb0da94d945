"""Starts a program for the keeper: what happens between fork and exec."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
from resource import getrlimit, setrlimit

from entrypoint.base.values import frozen
from entrypoint.ranks.placeholder import Takeover
from entrypoint.system.descriptors import write_all
from entrypoint.system.prctl import PDEATHSIG, prctl
from entrypoint.system.proc import execute, script, why_not_started

if False:  # only for type checkers: importing it is slow
    from collections.abc import Mapping

_NOT_STARTED = 126
_NOT_FOUND = 127
_KILLED = 137


@frozen
class ToStart:
    """A program, and where it is started. `streams`: its stdin, stdout and stderr as descriptors of
    the keeper, each -1 for the keeper's own. `place` has CPUs and limits, if it takes over some."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    streams: tuple[int, int, int]
    place: Takeover | None
    # a number, and the keeper's descriptor that it gets under that number
    passed: tuple[int, int] | None


def fork(to_start: ToStart, keeper: int) -> int:
    """Start a program in a process group of its own, which the kernel kills when the keeper, whose
    pid that is, dies. Returns its pid. Raises OSError if there is no process for it."""
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(to_start, keeper)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    return pid


def _become(to_start: ToStart, keeper: int) -> None:
    status = _NOT_STARTED
    try:
        prctl(PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(_KILLED)  # it died before it could be noticed
        # Not a session: a program may want to move to another group, as a session's head cannot.
        os.setpgid(0, 0)
        for fd, source in enumerate(to_start.streams):
            if source >= 0:
                os.dup2(source, fd)
        if to_start.passed is not None:
            number, fd = to_start.passed
            os.dup2(fd, number)
            os.set_inheritable(number, True)
        _take_over(to_start.place)
        for signum in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(signum, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        if to_start.cwd:
            os.chdir(to_start.cwd)
        if (file := script(to_start.words)) and not os.access(file, os.R_OK):
            # Python would exit with 2, as for a wrong option.
            kind = 13 if os.path.exists(file) else 2
            raise OSError(kind, os.strerror(kind), file)
        execute(to_start.words, to_start.env)
    except OSError as error:
        status = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_STARTED
        from entrypoint.base.text import escaped

        reason = why_not_started(to_start.words, error, to_start.env)
        text = escaped(f"EP440 cannot start {to_start.words[0]}: {reason}")
        write_all(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _take_over(place: Takeover | None) -> None:
    """Give this process the CPUs and the limits of its placeholder."""
    if place is None:
        return
    os.sched_setaffinity(0, place.cpus)
    for kind, limits in place.limits:
        try:
            if getrlimit(kind) != limits:
                setrlimit(kind, limits)
        except (OSError, ValueError):
            continue  # it is above ours, which only root may raise


def pair(target: int) -> tuple[int, int]:
    """Return the keeper's end and the program's end of a stream.

    It is a terminal if `target` is one, as under Open MPI, since programs flush each line only on a
    terminal.
    """
    if not os.isatty(target):
        return os.pipe2(os.O_CLOEXEC)
    import termios

    controller, terminal = os.openpty()
    settings = termios.tcgetattr(terminal)
    settings[1] &= ~termios.OPOST  # pass output on unchanged
    settings[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    return controller, terminal
