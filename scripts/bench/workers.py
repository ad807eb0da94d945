"""Simulated workers: one process that answers as many workers' sshd and control endpoints do, over
real ssh.

    python -m scripts.bench.workers KEYS PORT FIRST LAST

Worker FIRST to worker LAST, each with its own address, from 127.1.0.1 to 127.1.255.250. A worker
answers the roll call's question, and pings; on SIGUSR1 all say that their program has ended; on
SIGUSR2 the first that has a session says nothing more; a release is answered and ends the session.
Nothing else of a node is there: no process, no sshd, no name to look up. Prints "ready", and at its
end (SIGTERM) how many of what it has seen, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from entrypoint.job import messages
from entrypoint.session import codec

from .ssh_server import Server, public_bytes

_BACKLOG = 16


def address(worker: int) -> str:
    """Of a simulated worker, 1 and up."""
    return f"127.1.{worker // 250}.{1 + worker % 250}"


class Workers:
    """All of them. Who says what, counted."""

    def __init__(self, keys: Path) -> None:
        host, client = (
            load_ssh_private_key((keys / name).read_bytes(), None) for name in ("host", "client")
        )
        assert isinstance(host, Ed25519PrivateKey)
        assert isinstance(client, Ed25519PrivateKey)
        self._host, self._client = host, public_bytes(client.public_key())
        self._intakes: dict[Server, codec.Intake] = {}
        self._silent: Server | None = None
        self.counts: Counter[str] = Counter()

    def connection(self) -> Server:
        """The server of a new connection."""
        self.counts["connections"] += 1
        return Server(self._host, self._client, self._begun, self._heard, self._lost)

    def _begun(self, server: Server) -> None:
        self.counts["sessions"] += 1
        self._intakes[server] = codec.Intake(codec.BY_LEADER, codec.TO_WORKER, time.monotonic())

    def _heard(self, server: Server, data: bytes) -> None:
        if server is self._silent:
            return
        for message in self._intakes[server].feed(data, time.monotonic()):
            self.counts[type(message).__name__] += 1
            self._answer(server, message)

    def _answer(self, server: Server, message: object) -> None:
        if isinstance(message, messages.Hello):
            facts = messages.NodeInfo(
                slots=1, mpi="4.1.4", toolkit=message.toolkit, clock=time.time(), attempt=1,
                not_ready=None, interface=None, interfaces=(),
            )  # fmt: skip
            server.send(codec.pack(facts))
        elif isinstance(message, messages.Ping):
            server.send(codec.pack(messages.Pong(idle=0.0, number=message.number)))
        elif isinstance(message, messages.Stop):
            server.send(codec.pack(messages.Stopped()))
        elif isinstance(message, messages.Release):
            server.send(codec.pack(messages.Goodbye()))
            server.end()

    def _lost(self, server: Server) -> None:
        self._intakes.pop(server, None)

    def finish(self) -> None:
        """Every worker's program has ended well."""
        ended = messages.Ended(status=0, what="program", reason="", tail=(), last=True)
        for server in self._intakes:
            server.send(codec.pack(ended))

    def silence(self) -> None:
        """One worker is cut off."""
        self._silent = next(iter(self._intakes))


async def serve(keys: Path, port: int, numbers: range) -> None:
    """Until SIGTERM."""
    workers, loop, over = Workers(keys), asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, workers.finish)
    loop.add_signal_handler(signal.SIGUSR2, workers.silence)
    loop.add_signal_handler(signal.SIGTERM, over.set)
    for worker in numbers:
        listener = socket.create_server((address(worker), port), backlog=_BACKLOG)
        await loop.create_server(workers.connection, sock=listener)
    print("ready", flush=True)
    await over.wait()
    print(json.dumps(workers.counts), flush=True)


def main() -> None:
    """As the command line says."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    numbers = range(int(sys.argv[3]), int(sys.argv[4]) + 1)
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), numbers))


if __name__ == "__main__":
    main()
