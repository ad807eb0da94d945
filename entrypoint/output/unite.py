"""Merges the lines of a node's ranks, if several of them write into one pipe (framing.py).

    python -I -S unite.py OPTIONS --stderr FD   stdin: the pipe for stdout; FD: that for stderr

It takes a supervisor's options for lines that no rank sent, and runs until nobody holds the pipes
any more, or until
SIGURG: then it reads the available bytes, passes none on, and writes their number to `--lost FD`.
"""

from __future__ import annotations

# The module `signal` takes longer than all the rest together.
import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable
    from re import Pattern

# an isolated Python does not find our package
sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from entrypoint.output.framing import FramedInput, TaggedInput, collapsed
from entrypoint.output.lines import Lines, shape
from entrypoint.output.stream import NEVER, Copies, Framer, Stream
from entrypoint.system.descriptors import CHUNK
from entrypoint.system.proc import python_set_locale

_AHEAD = 1 << 20  # bytes of each stream that are held while nobody reads our output
_TURNS = 256  # reads of a stream at most whose bytes are dropped
_LAST = 2.0  # seconds that the launcher's own output waits for a reader at the end


def main(argv: list[str]) -> int:
    """Pass lines on until both pipes have ended."""
    if python_set_locale():
        del os.environ["LC_CTYPE"]
    for signum in (
        _signal.SIGTERM,
        _signal.SIGINT,
        _signal.SIGHUP,
        _signal.SIGQUIT,
        _signal.SIGUSR1,
        _signal.SIGUSR2,
    ):
        _signal.signal(signum, _signal.SIG_IGN)  # the writers end first
    woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGURG, lambda signum, frame: None)  # it only has to interrupt the wait
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    one = os.path.sameopenfile(1, 2)  # then a half-written line is finished first
    streams = [
        _Output(0, 1, _whole(options, "stdout"), alone=not one),
        _Output(int(options["--stderr"]), 2, _whole(options, "stderr"), alone=False),
    ]
    while needed := [stream for stream in streams if stream.is_needed()]:
        poll = select.poll()
        by_fd: dict[int, Callable[[], object]] = {}
        for stream in ([stream for stream in needed if stream.waiting] if one else []) or needed:
            if stream.waiting:
                by_fd[stream.target] = stream.pass_on
                poll.register(stream.target, select.POLLOUT)
            if stream.has_room():
                by_fd[stream.source] = stream.read if stream.waiting else stream.pass_on
                poll.register(stream.source, select.POLLIN)
        due = min(min(stream.due, stream.until) for stream in needed)
        poll.register(woken, select.POLLIN)
        for fd, _ in poll.poll(None if due == NEVER else max(0, due - time.monotonic()) * 1000):
            if fd == woken:
                os.write(int(options["--lost"]), b"%d" % sum(stream.drop() for stream in streams))
                return 0
            by_fd[fd]()
        for stream in needed:
            stream.pass_late()
    return 0


class _Output(Stream):
    """One of the launcher's two output streams.

    It is read ahead: a launcher such as mpirun, when it prints a warning, would wait for the reader
    of our output.
    """

    def __init__(self, source: int, target: int, whole: Framer, alone: bool) -> None:
        """`alone`: no message of the entrypoint comes between two pieces, so they can be written at
        once."""
        super().__init__(source, target, b"", Copies(bytearray()), whole)
        self._whole = whole
        self._alone = alone
        self.until = NEVER  # when waiting bytes are dropped

    def _wait_for_room(self, pieces: list[bytes]) -> None:
        super()._wait_for_room([b"".join(pieces)] if self._alone and pieces else pieces)

    def has_room(self) -> bool:
        """Return whether to read more."""
        return self.open and sum(map(len, self.waiting)) < _AHEAD

    def is_needed(self) -> bool:
        """Return whether there are bytes to pass on, or may be."""
        return self.open or (bool(self.waiting) and time.monotonic() < self.until)

    def drop(self) -> int:
        """Read the available bytes and drop them; return how many were to be passed on."""
        lost = sum(map(len, self.waiting))
        self.waiting.clear()
        for _ in range(_TURNS if self.open else 0):
            try:
                data = os.read(self.source, CHUNK)
            except OSError:
                break  # no more bytes
            self.open = bool(data)
            if not data:
                break
            lost += sum(map(len, self._whole.take(data)))
        return lost + sum(map(len, self._whole.rest()))

    def read(self) -> int:
        """Read the available bytes. At the end, output of ranks waits for a reader; the launcher's
        own does not."""
        taken = super().read()
        if not self.open:
            self.close()
            self.until = NEVER if self._whole.held else time.monotonic() + _LAST
        return taken


def tag(through: str) -> Pattern[bytes] | None:
    """Return the pattern of an MPI's tags: those of Open MPI 4 with --tag-output and of Hydra as
    hydra.py starts it ("tags"), or those of Open MPI 5 with --output tag ("spaced-tags")."""
    end = {"tags": b"", "spaced-tags": b" "}.get(through)
    if end is None:
        return None
    import re  # slow to import, and only needed with an MPI

    return re.compile(rb"(\[\d+,\d+\]<std(?:out|err|diag)>:%s)" % end)


def _whole(options: dict[str, str], stream: str) -> Framer:
    lines = Lines(shape(options, stream))
    tags = tag(options.get("--through", ""))
    whole = TaggedInput(lines, tags) if tags else FramedInput(lines, bytearray())
    return collapsed(whole, options)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
