"""Makes the lines of a node's ranks whole again, where several of them write into one pipe (frames.py).

    python -I -S unite.py OPTIONS --stderr FD   stdin: the pipe for stdout; FD: that for stderr

It takes a supervisor's options for lines that no rank sent, and stays until nobody holds the pipes any more.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` takes longer than all the rest together
import os
import select
import sys

if False:  # only for type checkers: importing it is slow
    from re import Pattern

sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # an isolated Python does not find our package

from entrypoint.host.lines import Lines, shape
from entrypoint.host.proc import python_set_locale
from entrypoint.programs.frames import FromMpirun, United
from entrypoint.programs.stream import Stream


def main(argv: list[str]) -> int:
    """Pass lines on until both pipes have ended."""
    if python_set_locale():
        del os.environ["LC_CTYPE"]
    for signum in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2):
        _signal.signal(signum, _signal.SIG_IGN)  # who writes here ends first
    options = dict(zip(argv[::2], argv[1::2]))  # noqa: B905 python 3.9 may run it
    streams = [
        Stream(source, target, b"", bytearray(), None, None, _whole(options, name))
        for source, target, name in ((0, 1, "stdout"), (int(options["--stderr"]), 2, "stderr"))
    ]
    one = os.path.sameopenfile(1, 2)  # then a line that is half-written comes first
    while left := [stream for stream in streams if stream.open or stream.waiting]:
        poll = select.poll()
        by_fd = {}
        for stream in ([each for each in left if each.waiting] if one else []) or left:
            fd = stream.target if stream.waiting else stream.source
            by_fd[fd] = stream
            poll.register(fd, select.POLLOUT if stream.waiting else select.POLLIN)
        for fd, _ in poll.poll():
            by_fd[fd].pass_on()
            if not by_fd[fd].open:
                by_fd[fd].close()
    return 0


def tag(through: str) -> Pattern[bytes] | None:
    """Finds what begins each piece of output where an MPI tags it: as mpirun of Open MPI 4 does with --tag-output and
    hydra.py asks Hydra to, or as prterun of 5 does with --output tag."""
    if through not in ("mpirun", "prterun"):
        return None
    import re  # where no MPI is, nobody needs it

    return re.compile(rb"(\[\d+,\d+\]<std(?:out|err|diag)>:%s)" % (b" " if through == "prterun" else b""))


def _whole(options: dict[str, str], stream: str) -> United | FromMpirun:
    own = Lines(shape(options, stream))
    tags = tag(options.get("--through", ""))
    return FromMpirun(own, tags) if tags else United(own, bytearray())


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
