"""Answers mpirun's agents (mpirun/agent.sh.j2): mpirun starts one for each daemon that it wants on
another node.

An agent is a shell, which starts in a tenth of a Python's time but cannot use the node's socket. It
leaves the daemon's command in a file, writes its host's name into one pipe, and waits for a status
in another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from entrypoint.system.descriptors import CHUNK, read_regular
from entrypoint.system.files import RunDir

ALL = "agents"  # the pipe with the hosts' names
_LONGEST = 1 << 20  # bytes of a command


class Agents:
    """The agents of this job. `wanted` gets the rank of a node, and the command that starts
    mpirun's daemon there.

    The command is "" if the agent's file is missing: then only the agent of that host ends. Each
    host gets one daemon: if a program wrote the host's name again, a second one would start, and
    mpirun would wait forever.

    Raises CantCreateError if a pipe cannot be created.
    """

    def __init__(
        self, run_dir: RunDir, hosts: Mapping[str, int], wanted: Callable[[int, str], None]
    ) -> None:
        self._run_dir = run_dir
        self._hosts = hosts
        self._wanted = wanted
        self._served: set[str] = set()  # hosts whose command was passed on
        self._rest = b""  # the beginning of the next name
        self._pipes = contextlib.ExitStack()
        # Open from the start, so that an agent never waits for the other side, and notices when
        # this process ends.
        self._replies = {rank: self._pipe(f"agent.{host}") for host, rank in hosts.items()}
        if not hosts:
            return
        self._names = self._pipe(ALL)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._names, self._read)
        self._pipes.callback(loop.remove_reader, self._names)

    def _pipe(self, name: str) -> int:
        pipe = self._run_dir.pipe(name)
        self._pipes.callback(self._end, pipe, name)
        return pipe

    def _end(self, pipe: int, name: str) -> None:
        # an agent that opened it afterwards would wait forever
        with contextlib.suppress(OSError):
            (self._run_dir.path / name).unlink()
        os.close(pipe)

    def _read(self) -> None:
        *lines, rest = (self._rest + os.read(self._names, CHUNK)).split(b"\n")
        self._rest = rest[:CHUNK]
        for line in lines:
            host = line.decode(errors="replace")
            if host in self._hosts and host not in self._served:
                self._serve(host)

    def _serve(self, host: str) -> None:
        command = ""
        with contextlib.suppress(OSError):
            file = self._run_dir.path / f"agent.{host}.command"
            command = read_regular(file, _LONGEST).decode(errors="surrogateescape")
        if command:
            self._served.add(host)
        self._wanted(self._hosts[host], command)

    def answer(self, rank: int, status: int) -> None:
        """Make the agent of a node end with this status."""
        # the pipe is full: nobody has read the earlier answers
        with contextlib.suppress(BlockingIOError):
            os.write(self._replies[rank], b"%d\n" % status)

    def close(self) -> None:
        """Close the pipes: agents that still wait get no answer."""
        self._pipes.close()
