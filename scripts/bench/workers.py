"""Simulated workers: one process that answers as many workers' sshd and control endpoints do, over
real ssh by asyncssh.

    PYTHONPATH=TREE python scripts/bench/workers.py KEYS PORT <ADDRESSES

One worker for each address, a line each, which speaks as the toolkit of that tree. A worker
answers the roll call's question, and pings; on SIGUSR1 all say that their program has ended; on
SIGUSR2 the first that has a session says nothing more; a release is answered and ends the session,
unless another attempt follows.
Nothing else of a node is there: no process, no sshd, no name to look up. Prints "ready", and at its
end (SIGTERM) how many messages of each kind it has received, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time
from collections import Counter
from typing import Any

import asyncssh

from entrypoint.base.history import FIRST
from entrypoint.job import messages
from entrypoint.session import codec


class Worker(asyncssh.SSHServerSession[bytes]):
    """The session of one worker."""

    def __init__(self, all_workers: set[Worker], counts: Counter[str]) -> None:
        self._all = all_workers
        self._counts = counts
        self._intake = codec.Intake(codec.BY_LEADER, codec.TO_WORKER, time.monotonic())
        self.silent = False

    def connection_made(self, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = channel
        self._all.add(self)
        self._counts["sessions"] += 1

    def connection_lost(self, error: Exception | None) -> None:
        self._all.discard(self)

    def exec_requested(self, command: str) -> bool:
        return True

    def data_received(self, data: bytes, datatype: Any) -> None:
        if not self.silent:
            for message in self._intake.feed(data, time.monotonic()):
                self._counts[type(message).__name__] += 1
                self._answer(message)

    def _answer(self, message: object) -> None:
        if isinstance(message, messages.Hello):
            self._send(
                messages.NodeInfo(
                    slots=1, mpi="4.1.4", toolkit=message.toolkit, clock=time.time(), history=FIRST,
                    not_ready=None, interface=None, interfaces=(),
                )
            )  # fmt: skip
        elif isinstance(message, messages.Ping):
            self._send(messages.Pong(idle=0.0, number=message.number))
        elif isinstance(message, messages.Stop):
            self._send(messages.Stopped())
        elif isinstance(message, messages.Release):
            self._send(messages.Goodbye())
            if not message.again:  # else it is asked again in this session
                self._channel.exit(0)

    def _send(self, message: Any) -> None:
        self._channel.write(codec.pack(message))

    def finish(self) -> None:
        """Say that this worker's program has ended well."""
        self._send(messages.Ended(status=0, what="program", reason="", tail=(), last=True))


async def serve(keys: str, port: int, addresses: list[str]) -> None:
    """Answer for these workers until SIGTERM."""
    sessions: set[Worker] = set()
    counts: Counter[str] = Counter()
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    class Server(asyncssh.SSHServer):
        def session_requested(self) -> Worker:
            return Worker(sessions, counts)

    def finish() -> None:
        for session in sessions:
            session.finish()

    def silence() -> None:
        next(iter(sessions)).silent = True

    loop.add_signal_handler(signal.SIGUSR1, finish)
    loop.add_signal_handler(signal.SIGUSR2, silence)
    loop.add_signal_handler(signal.SIGTERM, over.set)
    options = asyncssh.SSHServerConnectionOptions(
        server_factory=Server, server_host_keys=[f"{keys}/host"], encoding=None,
        authorized_client_keys=f"{keys}/client.pub", gss_host=None, allow_scp=False,
    )  # fmt: skip
    for address in addresses:
        await asyncssh.listen(address, port, options=options, backlog=16)
    print("ready", flush=True)
    await over.wait()
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.stdin.read().split()))
