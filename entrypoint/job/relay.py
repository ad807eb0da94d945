"""Passes user signals on to the ranks of every node: a part of the leader."""

from __future__ import annotations

from entrypoint.job.messages import Signal
from entrypoint.job.outbox import Part, Shared

_AT_ONCE = 1.0  # seconds within which the nodes get a signal that was sent to all of them


class SignalRelay(Part):
    """A signal that reaches several nodes at once, as Slurm's do, is passed on once."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        # signal -> when it was new, and the nodes that have had it
        self._last: dict[str, tuple[float, set[int]]] = {}

    def is_new(self, name: str, node: int, now: float) -> bool:
        """False if this is the same signal that another node got just before `now` (seconds)."""
        since, nodes = self._last.get(name, (now, {node}))
        if now - since < _AT_ONCE and node not in nodes:
            nodes.add(node)
            return False
        self._last[name] = (now, {node})
        return True

    def relay(self, node: int, message: Signal) -> None:
        """A node has got this signal, which is for the ranks."""
        if not self.is_new(message.name, node, self._scheduler.now):
            return
        if not self._state.plan.launch.takes_signals:
            why = f"since it would end {self._state.plan.launcher}"
            self._scheduler.log(f"EP614 {message.name}: not passed on, {why}")
            return
        where = " of every node" if self._peers else ""
        by = f" of {self._topology.name(node)}" if self._peers else ""
        self._scheduler.log(f"{message.name}{by}: passed on to the ranks{where}")
        self._outbox.tell_all(message)
