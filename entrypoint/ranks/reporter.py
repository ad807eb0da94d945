"""A supervisor's reports to the entrypoint. Each rank's supervisor imports this: keep it fast."""

from __future__ import annotations

import os
import select

from entrypoint.system.descriptors import write_all
from entrypoint.system.nodeclient import connect

_LAST = 5.0  # seconds at most until Hydra's daemon ends, once all ranks have left
_ENTRYPOINT_IS_GONE = (104, 111)  # ECONNRESET, ECONNREFUSED
_KILLED = 137


class Reporter:
    """The connection to the entrypoint, which identifies the supervisor that reports.

    Once this exists, the entrypoint has inspected the supervisor. It could not tell whose a
    process was that is killed before, so no program may start earlier.

    Only the entrypoint has the other end, so an error on the connection means that the entrypoint
    is dead. The program does not inherit it, so it can neither write a report nor hold the
    connection open.
    """

    def __init__(self, run_dir: str | None, kind: str, rank: str) -> None:
        # -1 without an entrypoint
        self.fd = -1
        if run_dir is None:
            return
        try:
            self.fd = connect(run_dir, f'["{kind}", {rank}]').detach()
        except OSError as error:
            if error.errno in _ENTRYPOINT_IS_GONE:
                os._exit(_KILLED)  # it was killed before `poll` could notice
            return
        try:
            os.read(self.fd, 1)
        except OSError:
            return  # the same, which `poll` notices

    def tell(self, event: str, value: int | str = 0) -> None:
        """Send a report; the socket buffer holds all reports of a supervisor, so this never
        blocks. A text is JSON."""
        if self.fd >= 0:
            try:
                write_all(self.fd, f'["{event}", {value}]\n'.encode())
            except OSError:
                return  # the entrypoint is dead, which `poll` notices


def keep_open(fd: str) -> None:
    """Keep a socket open in another process until its other side ends, while the other ranks
    leave."""
    if fd.isdigit() and not os.fork():
        os.closerange(0, 3)  # the daemon waits for these to close
        poll = select.poll()
        poll.register(int(fd), 0)  # errors and hang-ups alone
        poll.poll(_LAST * 1000)
        os._exit(0)
