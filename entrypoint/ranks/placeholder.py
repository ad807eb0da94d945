"""Placeholders: the processes that a launcher takes for its ranks (templates/ranks/rank.sh.j2).

A launcher starts a shell for each rank. It writes its pid into a named pipe, and the keeper starts
the rank with its words, variables, streams, working directory, CPUs and limits; the launcher's
signals come the same way. The shell ends with the status that the keeper gives it.

Any process of this user may write into the pipe, so a line counts only for a process that a
launcher of this attempt has started, and that is no rank, nor below one.
"""

from __future__ import annotations

# The module `signal` takes longer than all the rest together.
import _signal  # type: ignore[import-not-found]
import _socket
import os
import struct

from entrypoint.base.kept import RanksForm
from entrypoint.base.values import frozen
from entrypoint.system.descriptors import CHUNK, at
from entrypoint.system.proc import content, kill, state, variables

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

REQUESTS = "keeper"  # the pipe in the run directory
WAITING = "keeper.wait"  # a pipe from which nothing comes: its end is that of the keeper
FDS = "keeper.fds"  # the socket for descriptors
_PASSES = 1.0  # seconds that one has to pass its descriptor
_ENDS = "keeper.end"  # and a pid: what the shell of that pid reads when it is told to end
_LONGEST = 100  # bytes of a line that were not read yet
_WORDS = 64  # in the name of one placeholder; more are an attack
_MOST = 64 << 20  # bytes of an environment or a command line; the kernel takes fewer
_STREAMS = 3  # the descriptor of its stdin, as rank.sh moves it; stdout and stderr follow
_LIMITS = 16  # kinds of limits (getrlimit(2)), of which a kernel may know fewer
_NUMBERS = {
    b"TERM": _signal.SIGTERM, b"INT": _signal.SIGINT, b"HUP": _signal.SIGHUP,
    b"QUIT": _signal.SIGQUIT, b"USR1": _signal.SIGUSR1, b"USR2": _signal.SIGUSR2,
}  # fmt: skip
# Set by sshd, ssh and the login shell; ranks on mpirun's own node do not have these, so no rank
# should.
_OF_LOGINS = (
    b"SSH_CLIENT", b"SSH_CONNECTION", b"USER", b"LOGNAME", b"HOME", b"MAIL",
    b"SHELL", b"SHLVL", b"PWD", b"OLDPWD", b"TMPDIR", b"_",
)  # fmt: skip


@frozen
class Request:
    """A placeholder's request: to start its rank, or to pass on a signal of this number. `word`: by
    which it knows that an answer is ours."""

    pid: int
    signum: int
    word: bytes


class Requests:
    """The pipe at which placeholders ask. Raises OSError if it is not there."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        how = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        self.fd = os.open(f"{run_dir}/{REQUESTS}", how)
        self._waiting = os.open(f"{run_dir}/{WAITING}", how)
        self._rest = b""
        self._words: dict[int, list[bytes]] = {}  # pid of a placeholder -> what it may know
        self.fds = _listener(run_dir)
        # pid of a placeholder -> the number of a descriptor there, and the keeper's of the same
        self.passed: dict[int, tuple[int, int]] = {}

    def read(self) -> list[Request]:
        """Return what was asked for since the last call; other bytes count for nothing."""
        try:
            *lines, rest = (self._rest + os.read(self.fd, CHUNK)).split(b"\n")
        except BlockingIOError:
            return []
        self._rest = rest[:_LONGEST]
        found = []
        for line in lines:
            kind, _, rest = line.partition(b" ")
            pid, _, word = rest.partition(b" ")
            if pid.isdigit() and len(pid) < 10 and (kind == b"start" or kind in _NUMBERS):
                found.append(Request(int(pid), _NUMBERS.get(kind, 0), word))
        return found

    def hear(self, request: Request) -> None:
        """Keep the word of a placeholder; others may have given words in its name, which it does
        not know."""
        words = self._words.setdefault(request.pid, [])
        if request.word not in words:
            words.append(request.word)
        if len(words) > _WORDS:
            kill([request.pid], _signal.SIGKILL)

    def answer(self, pid: int, status: int) -> None:
        """Have the placeholder of this pid end with a status."""
        try:
            fd = os.open(
                f"{self._run_dir}/{_ENDS}.{pid}",
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
        except OSError:
            fd = -1
        answer = b"".join(b"%b %d\n" % (word, status) for word in self._words.get(pid, ()))
        if fd >= 0 and _is_written(fd, answer):
            self.wake(pid)
        else:
            # Without a file it cannot learn of a status. What it then gives is never 0.
            kill([pid], _signal.SIGKILL)

    def wake(self, pid: int) -> None:
        """Tell a placeholder that its status is there. A shell that was not waiting yet, or that
        somebody has suspended, needs this again."""
        kill([pid], _signal.SIGURG)
        kill([pid], _signal.SIGCONT)

    def forget(self, pid: int) -> None:
        """Remove what was left for a placeholder that has ended."""
        self._words.pop(pid, None)
        try:
            os.unlink(f"{self._run_dir}/{_ENDS}.{pid}")
        except OSError:
            return  # it was killed before it was answered

    def take_fd(self, is_placeholder: Callable[[int], bool]) -> None:
        """Take a descriptor that a process below a placeholder passes on for it (pass_fd.py). One
        below a rank could hold us up for as long as it says nothing."""
        try:
            connection = _socket.socket(fileno=self.fds._accept()[0])  # type: ignore[attr-defined]
        except OSError:
            return  # nobody is there any more, or no descriptor is left for it
        try:
            credentials = connection.getsockopt(
                _socket.SOL_SOCKET, _socket.SO_PEERCRED, struct.calcsize("3i")
            )
            parent = state(struct.unpack("3i", credentials)[0])[1]
            if not is_placeholder(parent):
                return
            connection.settimeout(_PASSES)
            size = struct.calcsize("i")
            number, rights, *_ = connection.recvmsg(16, _socket.CMSG_SPACE(size))
            found = [data for _, kind, data in rights if kind == _socket.SCM_RIGHTS]
            if found and number.strip().isdigit():
                (fd,) = struct.unpack("i", found[0][:size])
                os.set_inheritable(fd, False)
                self.passed[parent] = int(number), fd
                connection.send(b"x")
        except OSError:
            return  # it is gone, or says nothing
        finally:
            connection.close()

    def close(self) -> None:
        """Close the pipes: no rank can start any more."""
        self.fds.close()
        for _, fd in self.passed.values():
            os.close(fd)
        os.close(self.fd)
        os.close(self._waiting)


def _listener(run_dir: str) -> _socket.socket:
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    at(run_dir, FDS, listener.bind)
    os.chmod(f"{run_dir}/{FDS}", 0o600)
    listener.listen(4096)
    listener.setblocking(False)
    return listener


def _is_written(fd: int, data: bytes) -> bool:
    """Write data into a new file, and close it. Return whether all of it is there."""
    try:
        return os.write(fd, data) == len(data)
    except OSError:  # the disk is full
        return False
    finally:
        os.close(fd)


@frozen
class Takeover:
    """The properties that a rank takes over from its placeholder."""

    number: int
    words: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str
    stdin: str  # the path of that stream
    cpus: frozenset[int]
    limits: tuple[tuple[int, tuple[int, int]], ...]


def place(pid: int, form: RanksForm) -> Takeover | None:
    """Return what the rank of this placeholder takes over; None if it has ended, or if it has no
    number that a rank could have."""
    try:
        env = variables(content(pid, "environ", _MOST))
        words = content(pid, "cmdline", _MOST).split(b"\0")[:-1]
        given = (env[name] for name in map(os.fsencode, form.numbers) if name in env)
        number = next(given, b"0")
        if not number.isdigit() or len(number) > 9:
            return None
        cpus = frozenset(os.sched_getaffinity(pid))
        limits = tuple(_limits(pid))
    except (OSError, ValueError):
        return None
    # `sh -c '. rank.sh' rank PROGRAM`, or `sh rank.sh PROGRAM`
    begin = 4 if words[1:2] == [b"-c"] else 2
    program = [_without_backslash(word) for word in words[begin:]] if form.colons else words[begin:]
    if not program:
        return None
    here = f"/proc/{pid}"
    return Takeover(
        int(number),
        tuple(program),
        _of_rank(env, form),
        form.cwd or f"{here}/cwd",
        f"{here}/fd/{_STREAMS}",
        cpus,
        limits,
    )


def _without_backslash(word: bytes) -> bytes:
    is_colon = word[:1] == b"\\" and word.lstrip(b"\\") == b":"
    return word[1:] if is_colon else word


def _of_rank(env: dict[bytes, bytes], form: RanksForm) -> dict[bytes, bytes]:
    """Return a rank's environment from its placeholder's: this node's own wins, but for what the
    launcher has set by value (named in `ENTRYPOINT_KEEP`)."""
    if form.env:
        keep = env.pop(b"ENTRYPOINT_KEEP", b"").split()
        given = {name for name in _OF_LOGINS if name not in keep}
        env = {name: value for name, value in env.items() if name not in given}
        own = dict(entry.split(b"=", 1) for entry in form.env)
        env |= {name: value for name, value in own.items() if name not in keep}
        is_set = {*keep, *own}
        for name, source in form.each:
            if (value := env.get(source.encode())) is not None and name.encode() not in is_set:
                env[name.encode()] = value
    return env


def _limits(pid: int) -> list[tuple[int, tuple[int, int]]]:
    from resource import prlimit

    found = []
    for kind in range(_LIMITS):
        try:
            found.append((kind, prlimit(pid, kind)))
        except (ValueError, OSError):
            continue  # this kernel has none of this kind, or does not tell
    return found


def stream(pid: int, number: int) -> int:
    """Return a new descriptor of a placeholder's stdout or stderr; -1 if it cannot be opened, as a
    socket cannot."""
    how = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_APPEND
    try:
        return os.open(path_of(pid, number), how)
    except OSError:
        return -1


def path_of(pid: int, number: int) -> str:
    """Return the path of a placeholder's stdout or stderr."""
    return f"/proc/{pid}/fd/{_STREAMS + number}"


def is_same_stream(pid: int) -> bool:
    """Return whether a placeholder's stdout and stderr are one: then their order is kept."""
    try:
        first, second = (os.stat(path_of(pid, number)) for number in (1, 2))
    except OSError:
        return False
    return os.path.samestat(first, second)


class Watch:
    """Notices that a placeholder has ended. `fd` is for poll; -1 where the kernel has none, and
    then /proc has to be asked."""

    def __init__(self, pid: int) -> None:
        try:
            self.fd = os.pidfd_open(pid)
        except OSError:
            self.fd = -1

    def close(self) -> None:
        """Watch no more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
