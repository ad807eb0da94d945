"""Supervises one program: its environment, its output, its last lines, and the report of its end.

Run alone and isolated, for each rank and each program of a node:

    python supervise.py OPTIONS -- PROGRAM

    --cwd      directory to start the program in
    --run-dir  tell the entrypoint there, through a socket, of the program's start and end
    --kind     what the socket is told that this is; `rank` where not given
    --number   by this number, which is a rank's own where it has one; 0 where not given
    --linger   seconds between SIGTERM and SIGKILL for what the program leaves running and that
               does not end by itself; apart: end at once; another process passes on its output,
               and somebody else must end it
    --hold     yes: if the program failed, stay until the entrypoint sends SIGURG, then end with
               0. If it ended with 0 after SIGTERM, the same, but for --linger seconds at most
    --keep-open  variable with the number of a socket that is to stay open after that, until its
               other side ends
    --group    own: lead a process group, so that a signal for this program reaches no other;
               apart: the same, in a process that the launcher does not know, so that it cannot
               end the program before the grace is over
    --nested   the rank's number among all, `{rank}` in it is --number: if it is not 0, end the
               program with 78 where a launcher starts below it (nested.py); node N: where one
               starts below it for this node alone
    --signals  group: SIGTERM, SIGUSR1 and SIGUSR2 are for the program's process group alone,
               since it is a launcher, which tells the others; where not given, this passes them
               on to what is in other groups
    --env      file of NAME=VALUE entries, each ended by NUL: any name, any byte; secrets stay off
               the command line
    --each     NAME=VARIABLE,...: after --env, set NAME to the value of VARIABLE unless NAME is set
    --colons   escaped: a lone colon has a backslash before it, which is removed; mpirun would
               take the colon itself
    --last-output  file to write the time into when the program prints, once a second at most
    --steps    the text of lines that show progress: note their steps (output/steps.py)
    --label    begin every line that the program prints with this
    --log      file that gets what the program prints, too; `{rank}` in it is the number
    --log-max-size  bytes after which the next one is begun; --log-max-files: how many are kept,
               with that
    --lines    whole: pass on whole lines, as they are; text or json: each as these ask for
               (output/lines.py); --collapse yes: lines of ranks that are alike become one
    --node, --rank, --prefix, --timestamps  the node's name; the rank's number, where it has one,
               `{rank}` in it is the number; what begins each line, where not --label; yes: the
               time does
    --show     ranks whose output is printed, such as 0,8-15: this program's is not, if --rank is
               not one of them
    --job, --host  the job's name and the node's host name, for JSON lines
    --through  how lines reach the one who prints them (framing.py). pipe: in pieces that others'
               do not mix with; tags, spaced-tags: as an MPI cuts and tags them; ranks: others'
               pieces come here, and go on as lines

Its status is the program's, 128+n for signal n, 126 or 127 where it could not be started. It
imports what is built in.
"""

from __future__ import annotations

# The module `signal` takes longer than all the rest together.
import _signal  # type: ignore[import-not-found]
import os
import select
import time

from entrypoint.launchers._daemons import DAEMONS
from entrypoint.output.stream import NEVER, Copies, Stream
from entrypoint.ranks.below import Below, cut_message
from entrypoint.ranks.reporter import Reporter, keep_open
from entrypoint.system.descriptors import read_regular, write_all
from entrypoint.system.prctl import CHILD_SUBREAPER, PDEATHSIG, prctl
from entrypoint.system.proc import (
    descendants,
    execute,
    hold_standard_streams,
    kill,
    python_set_locale,
    script,
    stat,
    undo_launcher,
    why_not_started,
)

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable

    from entrypoint.output.framing import Framer
    from entrypoint.output.rotate import RotatingFile
    from entrypoint.output.steps import StepWatch
    from entrypoint.ranks.nested import NestedLaunchers

# seconds without output until leftovers get SIGTERM; `tee`, for example, ends with its input
_BY_ITSELF = 0.5
_STUCK = 5.0  # seconds after a failure until output that nobody reads is dropped
# seconds after the start until nested launchers are looked for, and at most between two looks
_FIRST_LOOK = 0.1
_PAUSE = 1.0
_ENVIRONMENT = 64 << 20  # bytes of the file of --env; the kernel takes fewer
_TERM = 15
_KILL = 9
# Exit statuses as in entrypoint/base/errors.py.
_OS_ERROR = 71
_CANT_CREATE = 73
_RETRY = 75
_NESTED = 78
_EAGAIN = 11  # limit on processes reached
# from the process that the launcher knows: the launcher has sent it SIGTERM
_LAUNCHER_ENDS = _signal.SIGRTMIN
# The program gets the signals of its process group itself; this process waits, to report how the
# program ended.
_IGNORED = (
    _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT,
    _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGURG,
)  # fmt: skip

# Set by sshd, ssh and the login shell; ranks on mpirun's own node do not have these, so no rank
# should.
_OF_LOGINS = (
    "SSH_CLIENT", "SSH_CONNECTION", "USER", "LOGNAME", "HOME", "MAIL",
    "SHELL", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "_",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the program of this command line and return its status."""
    options, program = _read(argv)
    hold_standard_streams()
    # Hold signals until the program has started: one must not end this process without a report.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _IGNORED)
    launcher = os.getppid()
    if options.get("--group") == "apart":
        _hide_from_launcher()
    if "--group" in options and os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    reporter = Reporter(
        options.get("--run-dir"), options.get("--kind", "rank"), options["--number"]
    )
    tail = bytearray()
    supervised = None
    try:
        if python_set_locale():
            del os.environ["LC_CTYPE"]
        undo_launcher()
        if "--env" in options:
            _load(options["--env"], options.get("--each", ""))
        if "--signals" not in options:
            _tell_program(program, reporter)
        supervised = _start(program, options, tail, reporter, mask)
        supervised.launcher = launcher
        supervised.everywhere = "--signals" not in options
        supervised.by_mpi = "--hold" in options
        status = supervised.end(options.get("--nested", ""))
    except OSError as error:  # report it, so that it does not look like a kill
        status = _report_error(program[0], error, options, tail)
        if status == _CANT_CREATE:
            reporter.tell("log", error.errno or 0)
    if status:
        reporter.tell("tail", f'"{tail.hex()}"')
    # Under an MPI that ends, the entrypoint has it wait for the ends of its ranks.
    is_over = bool(status or (supervised and supervised.by_mpi and supervised.terminated))
    if is_over:
        reporter.tell("end", status)
    if supervised is None:
        reporter.tell("done")
        return status
    return _leave(supervised, status, options, reporter, is_over)


def _read(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options and the program of a command line."""
    end = argv.index("--")
    options = dict(zip(argv[:end:2], argv[1:end:2], strict=True))
    program = argv[end + 1 :]
    rank = options.setdefault("--number", "0")
    for name in {"--log", "--rank", "--nested"} & options.keys():
        options[name] = options[name].replace("{rank}", rank)
    if "--colons" in options:
        program = [
            argument[1:] if argument[:1] == "\\" and argument.lstrip("\\") == ":" else argument
            for argument in program
        ]
    return options, program


def _report_error(program: str, error: OSError, options: dict[str, str], tail: bytearray) -> int:
    """Print why the program cannot be started or supervised, and return the status."""
    text = (
        f"cannot keep {program} |"
        f" {f'{error.filename}: ' if error.filename else ''}{error.strerror}\n"
    )
    tail += text.encode("utf-8", "surrogateescape")
    try:  # noqa: SIM105  importing contextlib is slow
        write_all(2, bytes(tail))
    except OSError:
        pass  # there is no reader, or the disk is full
    if error.errno == _EAGAIN:
        return _RETRY
    return _CANT_CREATE if error.filename == options.get("--log", "") else _OS_ERROR


def _leave(
    supervised: Supervised, status: int, options: dict[str, str], reporter: Reporter, is_over: bool
) -> int:
    """Pass on the remaining output, report the end, if it was not, and return the exit status."""
    linger = options.get("--linger", "")
    apart = linger == "apart" and supervised.passes_on()
    if not apart:
        if linger not in ("", "apart"):
            supervised.linger(float(linger))
        if lost := supervised.flush(_STUCK if is_over else NEVER):
            reporter.tell("lost", lost)
        if late := supervised.late():
            reporter.tell("late", late)
    if not is_over:
        reporter.tell("end", status)
    reporter.tell("done")
    if apart and not os.fork():
        supervised.pass_on()
    if "--hold" in options and (status or supervised.terminated):
        supervised.hold(NEVER if status else float(linger))
        keep_open(os.environ.get(options.get("--keep-open", ""), ""))
        return 0
    return status


def _hide_from_launcher() -> None:
    """Continue in a child. This process, which the launcher knows, waits for it and ends with its
    status.

    If Open MPI itself ends a job, for example after MPI_Abort, it sends SIGTERM and, a second
    later, SIGKILL. The child is notified of the first, and the entrypoint gives ranks their grace.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_LAUNCHER_ENDS, _signal.SIGCHLD))
    child = os.fork()
    if not child:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGCHLD,))
        return
    while True:
        if _signal.sigwait((_signal.SIGTERM, _signal.SIGCHLD)) == _signal.SIGTERM:
            os.kill(child, _LAUNCHER_ENDS)
        pid, wait = os.waitpid(child, os.WNOHANG)
        if pid:
            os._exit(_exit_status(wait))


def _exit_status(wait: int) -> int:
    return os.WEXITSTATUS(wait) if os.WIFEXITED(wait) else 128 + os.WTERMSIG(wait)


def _load(file: str, aliases: str) -> None:
    """Load this node's environment; variables that mpirun's -x set by value (named in
    `ENTRYPOINT_KEEP`) stay.

    `aliases` is the value of --each.
    """
    keep = os.environ.pop("ENTRYPOINT_KEEP", "").split()
    set_names = set(keep)
    for name in _OF_LOGINS:
        if name not in keep:
            os.environ.pop(name, None)
    for entry in read_regular(file, _ENVIRONMENT).split(b"\0")[:-1]:
        variable, _, value = entry.partition(b"=")
        set_names.add(os.fsdecode(variable))
        if os.fsdecode(variable) not in keep:
            os.environb[variable] = value
    for name, _, source in (pair.partition("=") for pair in aliases.split(",")):
        if source in os.environ and name not in set_names:
            os.environ[name] = os.environ[source]


def _tell_program(program: list[str], reporter: Reporter) -> None:
    """Report the command and its environment, for `entrypoint rerun`."""
    words = (b"%d" % len(program), *map(os.fsencode, program))
    data = b"\0".join((*words, *map(b"=".join, os.environb.items())))
    if len(data) <= 64 << 10:  # twice as many bytes fit into the socket
        reporter.tell("program", f'"{data.hex()}"')


def _copy(options: dict[str, str], reporter: Reporter) -> RotatingFile:
    from entrypoint.output.rotate import RotatingFile

    size = int(options.get("--log-max-size", "0"))
    count = int(options.get("--log-max-files", "1"))
    return RotatingFile(options["--log"], size, count, lambda error: reporter.tell("copy", error))


def _steps(options: dict[str, str]) -> StepWatch | None:
    if "--steps" not in options:
        return None
    from entrypoint.output.steps import opened

    return opened(options["--steps"], options["--run-dir"], options["--number"])


def _is_shown(options: dict[str, str]) -> bool:
    """Return whether the program's output is printed."""
    if "--show" not in options:
        return True
    rank = int(options["--rank"])
    ranges = [each.partition("-") for each in options["--show"].split(",")]
    return any(int(first) <= rank <= int(last or first) for first, _, last in ranges)


def _lines(options: dict[str, str], fd: int, tail: bytearray) -> Framer | None:
    """Return what shapes the lines of a stream; None for all bytes, or if they get only a label."""
    if "--lines" not in options or ("--label" in options and options["--lines"] == "whole"):
        return None
    from entrypoint.output import framing
    from entrypoint.output.lines import Lines, shape

    through = options.get("--through")
    # for example with torchrun --redirects
    if has_own_file := through == "pipe" and os.stat(fd).st_mode & 0o170000 == 0o100000:
        options.pop("--collapse", None)
    lines = Lines(shape(options, "stdout" if fd == 1 else "stderr"))
    if through == "pipe" and not has_own_file:
        return framing.marked(lines, fd)
    if through in ("tags", "spaced-tags"):
        return framing.for_mpirun(lines)
    if through != "ranks":
        return framing.Framer(lines, framing.batches)
    return framing.collapsed(framing.FramedInput(lines, tail), options)


def _start(
    program: list[str], options: dict[str, str], tail: bytearray, reporter: Reporter, mask: set[int]
) -> Supervised:
    label = os.fsencode(options.get("--label", ""))
    log = _copy(options, reporter) if "--log" in options else None
    one = os.path.sameopenfile(1, 2)  # then a common pipe keeps the order of both
    passed = {1: 1, 2: 1 if one else 2}
    pipes = {fd: _pair(fd) for fd in set(passed.values())}
    woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    if options.get("--linger", "apart") != "apart":
        prctl(CHILD_SUBREAPER, 1)  # orphans of the program stay below this process
    child = os.fork()
    if child == 0:
        _become(
            program, options.get("--cwd", ""), {fd: pipes[to][1] for fd, to in passed.items()}, mask
        )
    _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for signum in (*_IGNORED, _signal.SIGCHLD, _LAUNCHER_ENDS):
        _signal.signal(signum, lambda signum, frame: None)  # it only has to interrupt the wait
    for signum in _signal.sigpending() - {_LAUNCHER_ENDS}:
        os.kill(child, signum)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    is_shown = _is_shown(options)
    streams = []
    for fd, (source, sink) in pipes.items():
        os.close(sink)
        # The common tail would contain pieces of other ranks.
        last = bytearray() if options.get("--through") == "ranks" else tail
        copies = Copies(last, log, options.get("--last-output", ""), _steps(options))
        lines = _lines(options, fd, tail)
        streams.append(Stream(source, fd, label, copies, lines, is_shown))
    return Supervised(child, streams, reporter, woken)


def _pair(target: int) -> tuple[int, int]:
    """Return this process's end and the program's end of a stream.

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


class Supervised:
    """A running program, and the processes that it leaves behind."""

    _printed = False  # whether the first output was reported
    _status: int | None = None
    _alone = False  # whether no process is left below this one
    _is_released = False
    terminated = False  # whether SIGTERM was received
    _passed: int | None = None  # bytes passed on when the launcher began to end
    _launchers: NestedLaunchers | None = None  # below the program, if it may have none
    _nested = False  # whether the program was killed because a launcher ran below it
    # whether signals are passed on to processes in other groups than ours
    everywhere = True
    by_mpi = False  # whether an MPI has started this supervisor
    launcher = 0  # pid of the process that has started this supervisor

    def __init__(self, child: int, streams: list[Stream], reporter: Reporter, woken: int) -> None:
        self._child = child
        self._streams = streams
        self._reporter = reporter
        self._woken = woken
        self._below = Below()

    def _step(self, limit: float = NEVER) -> None:
        """Wait until something happens, or until the time `limit`, and handle it."""
        by_fd: dict[int, Callable[[], object]] = {}
        poll = select.poll()
        for stream in self._streams:
            if stream.waiting:
                by_fd[stream.target] = stream.pass_on
                poll.register(stream.target, select.POLLOUT)
            if stream.open and (not stream.waiting or self.terminated):
                # A program that saves must not wait for a launcher that ends, and reads no more.
                by_fd[stream.source] = stream.read_ahead if stream.waiting else stream.pass_on
                poll.register(stream.source, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        if self._reporter.fd >= 0:
            poll.register(self._reporter.fd, 0)  # errors alone
        due = min([limit, *(stream.due for stream in self._streams)])
        ready = poll.poll(None if due == NEVER else max(0, due - time.monotonic()) * 1000)
        for fd, _ in ready:
            if fd == self._reporter.fd:
                _die(self.launcher)
            elif fd == self._woken:
                signals = os.read(fd, 512)
                self._is_released |= _signal.SIGURG in signals
                self._pass_on_signals(signals)
            else:
                by_fd[fd]()
        for stream in self._streams:
            stream.pass_late()
        self._tell_output()
        if not ready or any(fd == self._woken for fd, _ in ready):  # SIGCHLD has come
            self._reap()

    def _pass_on_signals(self, signals: bytes) -> None:
        """Pass signals for the rank's process group on to its processes in other groups."""
        if _LAUNCHER_ENDS in signals and self._passed is None:
            self._reporter.tell("launcher", self.launcher)
            self._passed = sum(stream.passed for stream in self._streams)
        if _signal.SIGTERM in signals:
            self.terminated = True
            self._below.terminate(self.everywhere)
        for signum in {_signal.SIGUSR1, _signal.SIGUSR2} & {*signals} if self.everywhere else ():
            self._below.tell_user_signal(signum)

    def _reap(self) -> None:
        while not self._alone:
            try:
                pid, wait = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                return
            if not pid:
                return
            if pid == self._child:
                self._status = _exit_status(wait)

    def end(self, nested: str = "") -> int:
        """Return the program's status, once it has ended and all of its output is read.

        `nested` is that of --nested: unless it is "" or 0, no launcher may start below the program.
        """
        self._reap()  # it may have ended before its signal was watched for
        start = time.monotonic()
        next_look = start + _FIRST_LOOK if nested.strip("0") else NEVER
        while self._status is None:
            self._step(next_look)
            if time.monotonic() >= next_look:
                self._end_nested(nested)
                next_look += min(_PAUSE, next_look - start)
        for stream in self._streams:
            stream.take_rest()
        self._tell_output()
        return _NESTED if self._nested else self._status

    def _end_nested(self, rank: str) -> None:
        """Kill the program if a launcher runs below it, and print why."""
        from entrypoint.ranks.nested import NestedLaunchers, message

        self._launchers = self._launchers or NestedLaunchers(self._child, rank)
        if not self._nested and (name := self._launchers.found()):
            self._nested = True
            kill(descendants(os.getpid()), _KILL)
            for stream in self._streams:
                stream.take_rest()
            self._streams[-1].say(os.fsencode(message(name, rank)))

    def _tell_output(self) -> None:
        if Stream.took and not self._printed:
            self._printed = True
            self._reporter.tell("output")

    def linger(self, grace: float) -> None:
        """Wait for the processes that the program left running; end them if they stay long."""
        limit = time.monotonic() + (0 if self.terminated else _BY_ITSELF)
        last = time.monotonic() + grace
        signals = [_TERM, _KILL]
        while not self._alone or self.passes_on():
            if signals[1:]:
                limit = max(limit, min(Stream.took + _BY_ITSELF, last))
            if time.monotonic() >= limit:
                if self._alone or not signals:
                    break  # the stream is held by no process of this program
                if signals[0] == _TERM:
                    if not self.terminated and time.monotonic() < Stream.took + _BY_ITSELF:
                        self._streams[-1].say(cut_message(grace))
                    self._below.tell_the_rest()
                else:
                    kill(descendants(os.getpid()), _KILL)
                limit = time.monotonic() + (grace if signals.pop(0) == _TERM else 1)
            self._step(limit)
        for stream in self._streams:
            stream.take_rest()

    def flush(self, patience: float = NEVER) -> int:
        """Pass on the remaining output; give up if nobody reads any of it for `patience` seconds.

        Returns the number of lost bytes, also of those lost before.
        """
        lost = sum(stream.lost for stream in self._streams)
        remaining = -1
        limit = NEVER
        for stream in self._streams:
            stream.open = False
            stream.close()
        while size := sum(len(piece) for stream in self._streams for piece in stream.waiting):
            if size != remaining:
                remaining = size
                limit = time.monotonic() + patience
            elif time.monotonic() >= limit:
                return size + lost
            self._step(limit)
        return lost

    def late(self) -> int:
        """Return the bytes that an MPI may not pass on: since it began to end, or not read."""
        late = sum(stream.unread for stream in self._streams) if self.by_mpi else 0
        if self._passed is not None:
            late += sum(stream.passed for stream in self._streams) - self._passed
        return late

    def passes_on(self) -> bool:
        """Return whether processes that the program left running may still print."""
        return any(stream.open for stream in self._streams)

    def pass_on(self) -> None:
        """Pass output on until no process can print any more."""
        while self.passes_on():
            self._step()
        self.flush()

    def hold(self, seconds: float) -> None:
        """Stay until the entrypoint reports that the other ranks have ended, for so many seconds at
        most."""
        limit = time.monotonic() + seconds
        while not self._is_released and time.monotonic() < limit:
            self._step(limit)


def _die(launcher: int) -> None:
    """Kill this rank and all below it, also in other sessions (torchrun's ranks), and mpirun's
    daemon.

    The entrypoint was killed, and no other process here could end them.
    """
    try:
        daemon = [launcher] if stat(launcher)[0] in DAEMONS else []
    except OSError:
        daemon = []  # it has ended
    kill((*daemon, *descendants(os.getpid())), _KILL)
    if os.getpgrp() == os.getpid():
        os.killpg(0, _KILL)
    os._exit(128 + _KILL)


def _become(program: list[str], cwd: str, fds: dict[int, int], mask: set[int]) -> None:
    status = 126
    try:
        prctl(PDEATHSIG, _KILL)  # the program ends if the supervisor is killed
        for fd, pipe in fds.items():
            os.dup2(pipe, fd)
        for signum in (*_IGNORED, _signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(signum, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        if cwd:
            os.chdir(cwd)
        if (file := script(program)) and not os.access(file, os.R_OK):
            # Python would exit with 2, as for a wrong option.
            kind = 13 if os.path.exists(file) else 2
            raise OSError(kind, os.strerror(kind), file)
        execute(program, os.environ)
    except OSError as error:
        status = 127 if isinstance(error, FileNotFoundError) else 126
        from entrypoint.base.text import escaped

        reason = why_not_started(program, error, os.environ)
        text = escaped(f"EP440 cannot start {program[0]}: {reason}")
        write_all(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)
