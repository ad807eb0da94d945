"""Answers mpirun's agents (agent.py): mpirun starts one for each daemon that it wants on another
node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from entrypoint.system.nodesocket import Connection, NodeSocket, ignore, unpacked


class Agents:
    """The agents of this job. `wanted` gets the rank of a node, and the command that starts
    mpirun's daemon there.

    Only a process of the launcher is an agent (`is_launcher` gets its pid), and each host gets one
    daemon: if a second one started, mpirun would wait forever.
    """

    def __init__(
        self,
        node: NodeSocket,
        hosts: Mapping[str, int],
        wanted: Callable[[int, str], None],
        is_launcher: Callable[[int], bool],
    ) -> None:
        self._hosts = hosts
        self._wanted = wanted
        self._is_launcher = is_launcher
        self._agents: dict[int, Connection] = {}
        node.kinds["agent"] = self._begin

    def _begin(self, agent: Connection, wanted: Any) -> None:
        host, _, command = unpacked(wanted).decode(errors="surrogateescape").partition(" ")
        rank = self._hosts.get(host)
        if rank is None or rank in self._agents or not self._is_launcher(agent.pid):
            agent.send(b"null\n")
            return
        agent.handler = ignore
        self._agents[rank] = agent
        self._wanted(rank, command)

    def answer(self, rank: int, status: int) -> None:
        """Make the agent of a node end with this status."""
        if rank in self._agents:
            self._agents[rank].send(b"%d\n" % status)
