"""So many ssh sessions of paramiko and nothing else: what its threads cost while nobody says
anything.

    python -m scripts.bench.floor KEYS PORT COUNT

Prints "ready" once all are open, and holds them until it is killed.
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

from .workers import address


def main() -> None:
    """As the command line says."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    keys, port, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    key = paramiko.Ed25519Key.from_private_key_file(str(keys / "client"))

    def session(worker: int) -> tuple[paramiko.Transport, paramiko.Channel]:
        client = paramiko.Transport(socket.create_connection((address(worker), port), timeout=30))
        client.start_client(timeout=30)
        client.auth_publickey("bench", key)
        channel = client.open_session(timeout=30)
        channel.exec_command("true")
        return client, channel

    with ThreadPoolExecutor(16) as pool:
        held = list(pool.map(session, range(1, count + 1)))
    print("ready", len(held), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
