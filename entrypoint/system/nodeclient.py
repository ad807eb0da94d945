"""Connects to the socket of this node's entrypoint (nodesocket.py). Each rank's supervisor imports
this: keep it fast."""

from __future__ import annotations

import _socket  # `socket`, which wraps it, takes longer to import than all the rest together
import os

NAME = "node"  # of the socket in the run directory


def connect(run_dir: str, first: str, timeout: float | None = None) -> _socket.socket:
    """Return a connection on which the first line, which names the sender's kind, is sent.

    With `timeout`, no later call waits longer than so many seconds. Raises OSError.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0)
    connection.settimeout(timeout)
    # A socket address has at most 107 bytes; the path of a run directory may have more.
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{NAME}")  # blocks while the backlog is full
    finally:
        os.close(folder)
    connection.sendall(f"{first}\n".encode())
    return connection
