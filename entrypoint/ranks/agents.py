"""Answers mpirun's agents (mpirun/agent.sh.j2): mpirun starts one for each daemon that it wants on
another node.

An agent leaves the daemon's command in a file, writes its host's name into one pipe, and waits for
a status in another.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import RunDir
from entrypoint.system.reports import PipeListener

ALL = "agents"  # the pipe with the hosts' names
_LONGEST = 1 << 20  # bytes of a command


class Agents:
    """Listener for agents. `wanted` gets the rank of a node, and the command that starts mpirun's
    daemon there.

    The command is "" if the agent's file is missing: then only the agent of that host ends. Each
    host gets one daemon: if a program wrote the host's name again, a second one would start, and
    mpirun would wait forever.
    """

    def __init__(
        self, run_dir: RunDir, hosts: Mapping[str, int], wanted: Callable[[int, str], None]
    ) -> None:
        self._run_dir = run_dir
        self._hosts = hosts
        self._wanted = wanted
        self._served: set[str] = set()  # hosts whose command was passed on
        # Open from the start, so that an agent never waits for the other side, and notices when
        # this process ends.
        self._replies = {rank: run_dir.pipe(f"agent.{host}") for host, rank in hosts.items()}
        self._requests = PipeListener(run_dir, ALL, self._on_request)

    def _on_request(self) -> None:
        for line in self._requests.take() or ():
            host = line.decode(errors="replace")
            if host in self._hosts and host not in self._served:
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
        self._requests.close()
        for pipe in self._replies.values():
            os.close(pipe)
