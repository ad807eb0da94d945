"""A supervisor's reports to the entrypoint. Each rank's supervisor imports this: keep it fast."""

from __future__ import annotations

import _socket  # `socket`, which wraps it, takes longer to import than all the rest together
import os

_ENTRYPOINT_IS_GONE = (104, 111)  # ECONNRESET, ECONNREFUSED
_KILLED = 137


class Reporter:
    """The connection to the entrypoint, which knows by it whose reports these are.

    Only the entrypoint has the other end, so an error on the connection means that the entrypoint is dead. The
    program has none of it: it can neither write a report nor hold the connection open.
    """

    def __init__(self, run_dir: str | None, name: str, rank: str) -> None:
        # -1 where nobody is told
        self.fd = -1
        self._rank = rank
        if run_dir is None:
            return
        try:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0)
            # The name of a socket may have 107 bytes; a run directory's own may have more.
            folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            connection.connect(f"/proc/self/fd/{folder}/{name}")  # waits while too many others wait
            os.close(folder)
            self.fd = connection.detach()
        except OSError as error:
            if error.errno in _ENTRYPOINT_IS_GONE:
                os._exit(_KILLED)  # it was killed before this process could see it

    def tell(self, event: str, value: int) -> None:
        """Write one line; there is room for all lines of a supervisor, whether they are read or not."""
        if self.fd >= 0:
            try:
                os.write(self.fd, f"{event} {self._rank} {value}\n".encode())
            except OSError:
                return  # the entrypoint is dead, which `poll` notices

    def await_heard(self) -> None:
        """Return when the entrypoint has looked at this process, which it could not once that is gone."""
        if self.fd >= 0:
            try:
                os.read(self.fd, 1)
            except OSError:
                return  # the entrypoint is dead
