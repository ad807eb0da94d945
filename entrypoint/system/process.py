"""This process: its name, replacing it by a program, ending processes below it. children.py starts
and awaits others.

Nothing here needs an event loop, whose import takes longer than everything else if this process
only becomes a program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
from collections.abc import Mapping, Sequence

from entrypoint.base.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from entrypoint.base.model import Outcome
from entrypoint.base.text import escaped
from entrypoint.system import proc
from entrypoint.system.folder import own
from entrypoint.system.prctl import CHILD_SUBREAPER, DUMPABLE, NAME, prctl

# Names of this process that a health check reads (health.py): 15 bytes at most.
WAITING = "entrypoint:wait"
STARTED = "entrypoint:up"

# where the run directories are of jobs that set none: some images have no /tmp, or a read-only one
TEMPS = "/tmp", "/dev/shm"

# Python ignores these, and so would a program that replaces it: `yes | head` would never end.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def exit_status(returncode: int) -> int:
    """Return a process's exit status as in a shell: its own, or 128+n when signal n ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def cannot_start(
    argv: Sequence[str], error: OSError, env: Mapping[str, str] | None = None, cwd: str = ""
) -> Outcome:
    """Return the outcome of a program that could not be executed in this directory: 127 if it does
    not exist, otherwise 126."""
    status = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
    reason = proc.why_not_started(argv, error, env or {}, cwd)
    return Outcome(status, escaped(f"EP440 cannot start {argv[0]}: {reason}"), program=True)


def environment() -> dict[str, str]:
    """Return the environment with which the container was started."""
    env = dict(os.environ)
    if proc.python_set_locale():
        del env["LC_CTYPE"]
    return env


def cwd() -> str:
    """Return the working directory; / if it is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def show(name: str) -> None:
    """Name this process `WAITING` or `STARTED`, so that others see whether the job has started
    here."""
    prctl(NAME, name.encode())


def hide_memory() -> None:
    """Forbid core dumps of this process, whatever limit and pattern are set: they would contain the
    job's secret.

    Programs that it starts are not affected: they may still write a core.
    """
    prctl(DUMPABLE, 0)


def adopt_orphans() -> None:
    """Adopt daemons below this process (such as Open MPI's orted), so that `sweep` finds them
    (prctl(2))."""
    prctl(CHILD_SUBREAPER, 1)


def which(program: str, path: str) -> str | None:
    """Return the path of a program on this PATH; None if it does not exist or cannot be executed.

    shutil.which does the same, but its import loads modules that read archives.
    """
    places = proc.places(program, path)
    return next(
        (place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None
    )


def check(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Outcome | None:
    """Return the outcome if this program cannot be started, so that this toolkit reports it and not
    the launcher."""
    if not os.path.isdir(cwd):
        return cannot_start(
            argv, _os_error(errno.ENOTDIR if os.path.exists(cwd) else errno.ENOENT, cwd)
        )
    program = os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0]
    if which(program, env.get("PATH", os.defpath)) is None:
        exists = any(map(os.path.exists, proc.places(program, env.get("PATH", ""))))
        error = _os_error(errno.EACCES if exists else errno.ENOENT, argv[0])
        return cannot_start(argv, error, cwd=cwd)
    return None


def cannot_read(command: tuple[str, ...], cwd: str) -> Outcome | None:
    """Return the outcome if the script of this command is missing or unreadable, for which Python
    would exit with 2, or if a program with a path is not executable."""
    program = command[0] if command else ""
    script = proc.script(command) or (program if program.endswith(".py") else "")
    file = script or (program if "/" in program else "")
    path = os.path.join(cwd, file)
    if not file or os.access(path, os.R_OK if script else os.X_OK):
        return None
    kind = errno.EACCES if os.path.exists(path) else errno.ENOENT
    return cannot_start((file,), _os_error(kind, file))


def _os_error(kind: int, file: str) -> OSError:
    return OSError(kind, os.strerror(kind), file)


def replace(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Outcome:
    """Replace this process by the program. Returns only if that fails."""
    for signum in _PYTHON_IGNORES:
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.chdir(cwd)
        proc.execute(argv, env)
    except OSError as error:
        return cannot_start(argv, error, env)


def is_read(*fds: int) -> bool:
    """Return whether all these streams are read: a full pipe waits for its reader."""
    return all(select.select([], [fd], [], 0)[1] for fd in fds if is_pipe(fd))


def is_pipe(fd: int) -> bool:
    """Return whether this is a pipe, whose reader may leave."""
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    return False


def behind_init(argv: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
    """Return a command line behind tini, if it is there, for a program that becomes process 1: the
    kernel keeps from it every signal that it does not handle, so no SIGTERM would end it."""
    tini = which("tini", env.get("PATH", os.defpath)) if os.getpid() == 1 else None
    return (tini, "--", *argv) if tini else argv


def tied(argv: Sequence[str]) -> Sequence[str]:
    """Return a command line with which the kernel kills the program when this process dies, if the
    toolkit's folder is there, or setpriv of util-linux; busybox's cannot do it."""
    if tie := own("bin/tie"):
        return (tie, *argv)
    setpriv = which("setpriv", os.environ.get("PATH", os.defpath))
    is_complete = setpriv and os.path.basename(os.path.realpath(setpriv)) == "setpriv"
    return (setpriv, "--pdeathsig", "KILL", "--", *argv) if setpriv and is_complete else argv
