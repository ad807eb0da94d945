"""Answers mpirun's agents (mpirun/agent.sh.j2): mpirun starts one for each daemon that it wants on another node.

An agent leaves the daemon's command in a file, writes its host's name into one pipe, and waits for a status in another.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from entrypoint.system.files import RunDir
from entrypoint.system.pipes import PipeListener

ALL = "agents"  # the pipe with the hosts' names


class Agents:
    """Listens for agents. `wanted` gets the rank of a node, and the command that starts mpirun's daemon there.

    Without a file the command is "": a word in the pipe that is no agent's ends nothing but that agent. A host gets one
    daemon: a program that writes its name once more would have a second one started, and mpirun would wait forever.
    """

    def __init__(self, run_dir: RunDir, hosts: Mapping[str, int], wanted: Callable[[int, str], None]) -> None:
        self._run_dir = run_dir
        self._hosts = hosts
        self._wanted = wanted
        self._served: set[str] = set()  # hosts whose command is passed on
        # Open from the start, so that an agent never waits for us to open one, and notices our end.
        self._replies = {rank: run_dir.pipe(f"agent.{host}") for host, rank in hosts.items()}
        self._asks = PipeListener(run_dir, ALL, self._asked)

    def _asked(self) -> None:
        for line in self._asks.take() or ():
            host = line.decode(errors="replace")
            if host in self._hosts and host not in self._served:
                command = ""
                with contextlib.suppress(OSError):
                    command = (self._run_dir.path / f"agent.{host}.command").read_text(errors="surrogateescape")
                if command:
                    self._served.add(host)
                self._wanted(self._hosts[host], command)

    def answer(self, rank: int, status: int) -> None:
        """Have the agent of that node end with this status."""
        with contextlib.suppress(BlockingIOError):  # full: nobody reads what was answered before
            os.write(self._replies[rank], b"%d\n" % status)

    def close(self) -> None:
        """Whoever still waits gets no answer."""
        self._asks.close()
        for pipe in self._replies.values():
            os.close(pipe)
