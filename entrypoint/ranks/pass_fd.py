"""Passes a descriptor of a placeholder to the keeper, which starts the rank: Hydra gives each rank
a socket by number (`PMI_FD`), and a socket cannot be opened by its path.

    python -I -S pass_fd.py SOCKET NUMBER
"""

from __future__ import annotations

import _socket
import os
import struct
import sys


def main(path: str, number: int) -> int:
    """Send the descriptor; return 0 once the keeper has it."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", number))
    connection.sendmsg([b"%d\n" % number], [rights])
    return 0 if connection.recv(1) else 71


if __name__ == "__main__":
    os._exit(main(sys.argv[1], int(sys.argv[2])))
