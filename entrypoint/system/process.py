"""This process: what others see of it, what it becomes, what it ends. children.py starts others and awaits their end.

Nothing here needs an event loop, whose import takes longer than all the rest of a program that we only become.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
from collections.abc import Mapping, Sequence

from entrypoint.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from entrypoint.model import Outcome
from entrypoint.system import proc
from entrypoint.system.prctl import CHILD_SUBREAPER, DUMPABLE, NAME, prctl

# Names that a boot of ours has for others, for a health check (health.py): 15 bytes at most.
WAITING, STARTED = "entrypoint:wait", "entrypoint:up"

# Python ignores these. A program that we become would ignore them as well: `yes | head` would never end.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def exit_status(returncode: int) -> int:
    """A process's exit status as in a shell: its own, or 128+n when signal n ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def cannot_start(argv: Sequence[str], error: OSError, env: Mapping[str, str] | None = None) -> Outcome:
    """The outcome of a program that could not be executed: 127 where it is not there, else 126."""
    if error.errno == errno.E2BIG and (why := proc.too_long(argv, env or {})):
        return Outcome(EXIT_NOT_EXECUTABLE, f"EP440 cannot start {argv[0]}: {why}", program=True)
    missing = isinstance(error, FileNotFoundError)
    name = os.fsdecode(error.filename or argv[0])  # the program, its last place on PATH, or the working directory
    place = "" if name == argv[0] or os.path.basename(name) == argv[0] else f"{name}: "
    status = EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE
    return Outcome(status, f"EP440 cannot start {argv[0]}: {place}{error.strerror}", program=True)


def show(name: str) -> None:
    """Give this process a name, `WAITING` or `STARTED`: it tells whether the job has started here."""
    prctl(NAME, name.encode())


def hide_memory() -> None:
    """Have the kernel write no core of this process, whatever limit and pattern say: the job's secret is in it.

    Programs that we start are not affected: they may still write a core.
    """
    prctl(DUMPABLE, 0)


def adopt_orphans() -> None:
    """Make daemons below us (such as Open MPI's orted) our children, so that `sweep` finds them (prctl(2))."""
    prctl(CHILD_SUBREAPER, 1)


def which(program: str, path: str) -> str | None:
    """Where this program is, by a PATH; None where it is not there or cannot be executed.

    As shutil's, whose import loads what reads archives.
    """
    places = proc.places(program, path)
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def check(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Outcome | None:
    """The outcome if this program cannot be started, so that the message is ours and not the launcher's."""
    if not os.path.isdir(cwd):
        return cannot_start(argv, _os_error(errno.ENOTDIR if os.path.exists(cwd) else errno.ENOENT, cwd))
    program = os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0]
    if which(program, env.get("PATH", os.defpath)) is None:
        there = any(map(os.path.exists, proc.places(program, env.get("PATH", ""))))
        return cannot_start(argv, _os_error(errno.EACCES if there else errno.ENOENT, argv[0]))
    return None


def cannot_read(command: tuple[str, ...], cwd: str) -> Outcome | None:
    """The outcome if the script of this command is missing or unreadable; Python would exit with 2.

    torch's launchers run a file that is not executable with Python, so other scripts must be executable.
    """
    word = command[0] if command else ""
    file = proc.script(command) or (word if word.endswith(".py") or "/" in word else "")
    path = os.path.join(cwd, file)
    if not file or os.access(path, os.X_OK):
        return None
    try:
        with open(path, "rb") as opened:
            first = opened.readline(256)
    except OSError as error:
        return cannot_start((file,), error)
    if not first.startswith(b"#!") or b"python" in first:
        return None
    return cannot_start((file,), _os_error(errno.EACCES, file))


def _os_error(kind: int, file: str) -> OSError:
    return OSError(kind, os.strerror(kind), file)


def replace(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Outcome:
    """Become the program. Returns only when that failed."""
    for signum in _PYTHON_IGNORES:
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.chdir(cwd)
        proc.execute(argv, env)
    except OSError as error:
        return cannot_start(argv, error, env)


def is_read(*fds: int) -> bool:
    """Whether somebody reads these streams: a full pipe waits for its reader."""
    return all(select.select([], [fd], [], 0)[1] for fd in fds if is_pipe(fd))


def is_pipe(fd: int) -> bool:
    """Whether this is a pipe, whose reader may leave."""
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    return False


def tied(argv: Sequence[str]) -> Sequence[str]:
    """Return a command line with which the kernel kills the program when this process dies, if setpriv is there."""
    setpriv = which("setpriv", os.environ.get("PATH", os.defpath))  # of util-linux
    return (setpriv, "--pdeathsig", "KILL", "--", *argv) if setpriv else argv


def kill_group(pid: int, signum: int) -> None:
    """Signal a rank: its process group if it leads one, else itself and all processes below."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signum)
        else:
            proc.kill((pid, *proc.descendants(pid)), signum)


def sweep() -> set[int]:
    """End everything below this process at once, and look again for what was forked meanwhile. Returns the pids."""
    killed: set[int] = set()
    for _ in range(10):
        alive = proc.descendants(os.getpid())
        if not alive:
            break
        proc.kill(alive, signal.SIGKILL)
        killed |= set(alive)
    return killed
