"""Keeps one program: gives it its environment, passes on what it prints, remembers the last of it, tells how it ended.

Run as a file, alone and isolated, once for each rank and each program of a node: `python keeper.py OPTIONS -- PROGRAM`

    --cwd      directory to start the program in
    --run-dir  tell the entrypoint there, through a pipe, of the program's start and end
    --pipe     that pipe's name; `ranks` where not given
    --number   by this number; the MPI rank's where not given
    --linger   yes: after the program's end, stay for what it left running until that closes its output; apart: end, and
               have another process stay
    --env      file of NAME=VALUE entries, each ended by NUL: any name, any byte, and on no command line
    --colons   escaped: a word of the program that is a colon came with a backslash, since mpirun would have taken it
    --said     file to touch when the program prints, once a second at most
    --tail     file for the last lines, where the program fails; `{rank}` in it is the MPI rank
    --label    begin every line that the program prints with this; `${rank}` in it is the MPI rank, or the number
    --log      file that gets what the program prints, too

Its status is the program's, 128+n where signal n ended it, 126 or 127 where it could not be started. It starts in a few
milliseconds, so it imports what is built in and little else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` takes longer than all the rest together
import os
import select
import sys
import time

_TAIL = 16384  # bytes kept; the reader takes the last lines of them
_CHUNK = 65536
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_KILL = 9
_ENXIO = 6
# The program gets its process group's signals itself; this process only waits, to say how the program ended.
_IGNORED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2)


# What our sshd, ssh and the shells on the way set; a rank of the node that mpirun runs on would have none of it.
_OF_LOGINS = (
    "SSH_CLIENT", "SSH_CONNECTION", "USER", "LOGNAME", "MAIL", "SHELL", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "_",
)  # fmt: skip


class Stream:
    """One of the program's two output streams on its way to ours."""

    def __init__(
        self, source: int, target: int, label: bytes, copies: list[bytearray], log: int | None, said: str | None
    ) -> None:
        self.source, self._target, self._label, self._copies, self._log = source, target, label, copies, log
        self._said = said  # file whose time tells when there was output
        self._rest = b""  # a line that has not ended yet
        os.set_blocking(source, False)

    spoke = 0.0  # when any of them last told the entrypoint that there was output, by time.monotonic()

    def read(self) -> bytes | None:
        """Pass on what is there: b"" at the stream's end, None where there is nothing just now."""
        try:
            data = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # a terminal that nobody holds any more
        if data and self._said and time.monotonic() - Stream.spoke > 1:
            Stream.spoke = time.monotonic()
            _touch(self._said)
        for copy in self._copies:
            copy += data
            del copy[:-_TAIL]
        if self._log is not None:
            _write(self._log, data)
        if not self._label:
            _write(self._target, data)
        else:
            # A progress bar's lines end in a carriage return.
            *lines, self._rest = (self._rest + data).replace(b"\r", b"\r\n").split(b"\n")
            if lines:
                _write(self._target, b"".join(self._labelled(line) for line in lines))
        return data

    def _labelled(self, line: bytes) -> bytes:
        return self._label + (line if line.endswith(b"\r") else line + b"\n")

    def drain(self) -> bool:
        """Pass on all that is there. False where what the program left running holds the stream open."""
        while data := self.read():
            pass
        return data == b""

    def close(self) -> None:
        """Pass on what is left without a line end."""
        if self._rest:
            _write(self._target, self._label + self._rest + b"\n")


def _touch(file: str) -> None:
    try:
        os.utime(file)
    except OSError:
        return  # nobody looks at it any more


def _write(target: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        pass  # nobody reads it, or the disk is full: no reason to end the program


def main(argv: list[str]) -> int:
    """Run the program of this command line, and return its status."""
    end = argv.index("--")
    options, program = dict(zip(argv[:end:2], argv[1:end:2])), argv[end + 1 :]  # noqa: B905 python 3.9 may run it
    rank = options.get("--number") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMIX_RANK") or "0"
    pipe = _entrypoint(options["--run-dir"], options.get("--pipe", "ranks")) if "--run-dir" in options else -1
    if "--colons" in options:
        program = [word[1:] if word[:1] == "\\" and word.lstrip("\\") == ":" else word for word in program]
    if python_set_locale():
        del os.environ["LC_CTYPE"]
    if "--env" in options:
        _load(options["--env"])
    _write(pipe, f"start {rank} {os.getpid()}\n".encode())
    tail = bytearray()
    options["--label"] = options.get("--label", "").replace("${rank}", rank)
    status, streams = _run(program, options, [tail], pipe)
    open_still = [stream for stream in streams if not stream.drain()]
    if status and "--tail" in options:
        _save(options["--tail"].replace("{rank}", rank), tail)
    _write(pipe, f"end {rank} {status}\n".encode())
    if options.get("--linger") == "apart" and open_still and os.fork():
        return status
    if "--linger" in options:
        _pass_on(streams, pipe)
    for stream in streams:
        stream.close()
    return status


def _entrypoint(run_dir: str, name: str) -> int:
    """The pipe to the entrypoint, whose death is an error on it, since nobody else reads it; -1 where it is gone."""
    try:
        return os.open(os.path.join(run_dir, name), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == _ENXIO:
            os._exit(128 + _KILL)  # nobody reads it: the entrypoint was killed before this process could see it
        return -1


def python_set_locale() -> bool:
    """Whether LC_CTYPE was not given: in a C locale Python sets it for itself and all that it starts (PEP 538)."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        with open("/proc/self/environ", "rb") as given:
            return not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0"))
    except OSError:
        return False


def _load(file: str) -> None:
    """This node's own environment; what mpirun's -x set by value (`ENTRYPOINT_KEEP` names it) stays."""
    keep = os.environ.pop("ENTRYPOINT_KEEP", "").split()
    for own in _OF_LOGINS:
        if own not in keep:
            os.environ.pop(own, None)
    with open(file, "rb") as entries:
        for entry in entries.read().split(b"\0")[:-1]:
            name, _, value = entry.partition(b"=")
            if os.fsdecode(name) not in keep:
                os.environb[name] = value


def _save(file: str, tail: bytearray) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    _write(fd, bytes(tail))
    os.close(fd)


def _run(program: list[str], options: dict[str, str], copies: list[bytearray], pipe: int) -> tuple[int, list[Stream]]:
    """The program's status, and its streams, which what it left running may still write to."""
    label = os.fsencode(options["--label"])
    log = None
    if "--log" in options:
        log = os.open(options["--log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    one = os.path.sameopenfile(1, 2)  # then one pipe for both keeps their order
    passed = {1: 1, 2: 1 if one else 2}
    pipes = {fd: _pair(fd) for fd in set(passed.values())}
    woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    child = os.fork()
    if child == 0:
        _become(program, options.get("--cwd"), {fd: pipes[to][1] for fd, to in passed.items()})
    # Not before the fork: a signal that comes now ends both, and none can be taken by this process alone.
    _signal.set_wakeup_fd(waker)
    for signum in (*_IGNORED, _signal.SIGCHLD):
        _signal.signal(signum, _nothing)
    streams = []
    for fd, (ours, theirs) in pipes.items():
        os.close(theirs)
        streams.append(Stream(ours, fd, label, copies, log, options.get("--said")))
    return _pass_on(streams, pipe, child, woken), streams


def _pair(target: int) -> tuple[int, int]:
    """Our end and the program's of a stream to `target`: a terminal where that is one, since programs print lines there
    and blocks elsewhere. Open MPI gives its ranks one."""
    if not os.isatty(target):
        return os.pipe2(os.O_CLOEXEC)
    import termios

    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST  # what is printed comes out as it is
    settings[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return ours, theirs


def _pass_on(streams: list[Stream], pipe: int, child: int = 0, woken: int = -1) -> int:
    """Pass on what comes until this child has ended, whose status it gives; without one, until the streams have."""
    by_source = {stream.source: stream for stream in streams}
    poll = select.poll()
    for source in (*by_source, *([woken] if child else [])):
        poll.register(source, select.POLLIN)
    if pipe >= 0:
        poll.register(pipe, 0)  # errors alone
    while child or by_source:
        if child:
            ended, wait = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.WEXITSTATUS(wait) if os.WIFEXITED(wait) else 128 + os.WTERMSIG(wait)
        for fd, _ in poll.poll():
            if fd == pipe:
                _die(child)
            elif fd == woken:
                os.read(woken, 512)
            elif by_source[fd].read() == b"":
                poll.unregister(fd)
                del by_source[fd]
    return 0


def _die(child: int) -> None:
    """The entrypoint was killed: nothing of this rank outlives it, nor what has a session of its own, as torchrun's
    ranks have, nor mpirun's daemon, which nobody here could end any more."""
    for pid in (*_daemon(os.getppid()), *_below(os.getpid())):
        try:
            os.kill(pid, _KILL)
        except OSError:
            continue  # gone with its parent
    if os.getpgrp() == os.getpid():
        os.killpg(0, _KILL)
    if child:
        os.kill(child, _KILL)
    os._exit(128 + _KILL)


def _daemon(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/comm") as name:
            return [pid] if name.read() in ("orted\n", "prted\n") else []
    except OSError:
        return []


def _below(pid: int) -> list[int]:
    """Every process below this one, parents before children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    # The program's name, in parentheses, may hold anything.
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [pid]
    for each in found:  # which grows
        found += children.get(each, [])
    return found[1:]


def _become(program: list[str], cwd: str | None, outputs: dict[int, int]) -> None:
    status = 126
    try:
        import ctypes

        # Whoever kills this process can't leave the program behind.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _KILL, 0, 0, 0)
        for fd, pipe in outputs.items():
            os.dup2(pipe, fd)
        for signum in (*_IGNORED, _signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(signum, _signal.SIG_DFL)
        if cwd:
            os.chdir(cwd)
        if (file := script(program)) and not os.access(file, os.R_OK):
            # Python would end with 2, as for a wrong option of its own.
            kind = 13 if os.path.exists(file) else 2
            raise OSError(kind, os.strerror(kind), file)
        os.execvp(program[0], program)
    except OSError as error:
        status = 127 if isinstance(error, FileNotFoundError) else 126
        _write(2, f"cannot start {program[0]}: {error.filename}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)


def script(program: list[str] | tuple[str, ...]) -> str:
    """The script that this Python is to read, "" where it is another program or that is not plain to see."""
    if os.path.basename(program[0]).startswith("python"):
        for word in program[1:]:
            if not word.startswith("-"):
                return word
            if word.strip("-uBEIOPsSqvx") or not word.strip("-"):
                break  # -m, -c, or an option with a value
    return ""


def _nothing(signum: int, frame: object) -> None:
    """Only to be woken by the signal."""


if __name__ == "__main__":
    # Ends at once: taking a Python apart costs each rank milliseconds for nothing.
    os._exit(main(sys.argv[1:]))
