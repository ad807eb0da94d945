"""The relay from an ssh session to the control endpoint: standard streams to its socket, and back.

Run as a file, alone and isolated, so that it starts in milliseconds on a node that is busy starting.
"""

import _socket  # of which `socket` is a layer that takes 1 MB and 5 ms
import os
import select
import sys


def main(path: str) -> None:
    """Pass bytes both ways between standard streams and the socket at `path`, until either side is gone."""
    peer = _socket.socket(_socket.AF_UNIX)
    peer.connect(path)
    routes = {0: peer.fileno(), peer.fileno(): 1}
    while True:
        for source in select.select(list(routes), [], [])[0]:
            data = os.read(source, 65536)
            if not data:  # either side is gone, so the session is over
                return
            while data:
                data = data[os.write(routes[source], data) :]


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.exit(f"relay: {error}")
