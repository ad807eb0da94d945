"""Questions to all members, and who has answered which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from entrypoint.job.machine import Machine
from entrypoint.job.peers import Peers


@dataclass
class _Round:
    waiting: set[int]  # nodes that still owe the answer
    then: Callable[[], None]


class Rounds:
    """Questions to this node and all its peers. An answer also counts if it comes before `begin`."""

    def __init__(self, machine: Machine, me: int, peers: Peers) -> None:
        self._machine, self._me, self._peers = machine, me, peers
        self._open: dict[str, _Round] = {}
        self._said: set[tuple[int, str]] = set()

    def begin(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Have `then` called once every node has answered or is lost, or after that time."""
        waiting = {node for node in (self._me, *self._peers.alive()) if (node, name) not in self._said}
        self._open[name] = _Round(waiting, then)
        self._machine.after(seconds if waiting else 0, lambda: self.end(name), name)

    def note(self, node: int, name: str) -> None:
        """A node has answered."""
        self._said.add((node, name))
        self._strike(node, name)

    def has_said(self, node: int, name: str) -> bool:
        """Whether it has answered."""
        return (node, name) in self._said

    def lose(self, node: int) -> None:
        """A node will answer nothing any more."""
        for name in list(self._open):
            self._strike(node, name)

    def forget(self, *, node: int | None = None, name: str | None = None) -> None:
        """Forget a node's answers, or all answers to one question: it will be asked again."""
        self._said = {said for said in self._said if said[0] != node and said[1] != name}

    def is_open(self, name: str) -> bool:
        """Whether an answer is awaited."""
        return name in self._open

    def end(self, name: str) -> None:
        """Wait no longer."""
        if name in self._open:
            self._machine.drop(name)
            self._open.pop(name).then()

    def _strike(self, node: int, name: str) -> None:
        if name in self._open:
            self._open[name].waiting.discard(node)
            if not self._open[name].waiting:
                self.end(name)
