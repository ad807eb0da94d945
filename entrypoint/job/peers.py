"""The workers that have answered, and for how long each has been silent."""

from __future__ import annotations

from entrypoint.base import heartbeat
from entrypoint.base.model import NodeReport, Topology
from entrypoint.base.text import size
from entrypoint.base.values import dataclass

# share of a container's memory from which on its limit may be why a node is lost: between two
# answers a program takes much
_NEARLY_FULL = 0.9


@dataclass
class Peer:
    """A worker that has answered."""

    report: NodeReport
    local: str  # this node's address in its session
    heard: float  # when it last sent something
    lost: bool = False
    # what its container uses and its limit, in bytes, at its last answer to a ping, and when
    memory: tuple[int, int, float] | None = None


class Peers(dict[int, Peer]):
    """Workers by rank. `limit`: the heartbeat timeout (seconds); a peer that is silent for
    `patience` is lost."""

    _due = 0.0  # when we planned to look for silent peers; 0: not yet
    # seconds for which this node itself was suspended last, if peers may have noticed that, and
    # when that ended
    _stood = 0.0
    _stood_until = 0.0

    def __init__(self, limit: float, topology: Topology) -> None:
        super().__init__()
        self.limit = limit
        nodes = len(topology.nodes)
        self.interval = heartbeat.interval(limit, nodes)
        self.patience = heartbeat.patience(limit, nodes)
        self._host = topology.name(topology.me)

    def alive(self) -> list[int]:
        """Those that are not lost."""
        return [node for node, peer in self.items() if not peer.lost]

    def is_alive(self, node: int) -> bool:
        """Return whether it has answered and is not lost."""
        return node in self and not self[node].lost

    def hear(self, node: int, now: float) -> bool:
        """Note that something came from a node. Returns False if it is none of those alive."""
        if is_alive := self.is_alive(node):
            self[node].heard = now
        return is_alive

    def pong(self, node: int, memory: tuple[int, int] | None, now: float) -> None:
        """Note what the answer of a node to a ping says of its memory; this node is no peer."""
        if node in self:
            self[node].memory = memory and (*memory, now)

    def reports(self) -> dict[int, NodeReport]:
        """Return what each has answered."""
        return {node: peer.report for node, peer in self.items()}

    def look(self, now: float) -> list[int]:
        """Those that have been silent for too long."""
        since = now - self.patience
        return [node for node, peer in self.items() if peer.heard < since and not peer.lost]

    def next_look(self, now: float) -> float:
        """Return when to look again: at the next heartbeat, or earlier if a silent peer's time ends
        before that."""
        first = min((peer.heard for peer in self.values() if not peer.lost), default=now)
        end = min(self.interval, first - now + self.patience)
        self._due = now + max(0.05, end)
        return self._due

    def notice_own_gap(self, now: float) -> None:
        """If this node itself was frozen or got no CPU, its peers were not silent for that time."""
        if not self._due or now <= self._due:
            return
        if now - self._due > self.limit - self.interval:
            self._stood = now - self._due
            self._stood_until = now
        for peer in self.values():
            peer.heard = heartbeat.forgiven(peer.heard, self._due, now)
        self._due = now

    def silence(self, node: int, now: float) -> str:
        """Since when nothing was heard of a node, in words; and how full its memory was, if that
        may be why."""
        peer = self[node]
        seconds = now - peer.heard
        words = f"nothing heard of it for {seconds:.0f}s"
        if seconds <= self.limit:
            words = f"its session ended, last message {seconds:.1f}s before"
        used, limit, when = peer.memory or (0, 1, now)
        if used < _NEARLY_FULL * limit:
            return words
        answer = f"at its last answer, {now - when:.1f}s before"
        return f"{words}; its container used {size(used)} of {size(limit)} {answer}"

    def may_be_lost(self, since: float) -> bool:
        """Return whether peers may count this node as lost: it was suspended for nearly as long as
        they wait, by our clock, and that ended at `since` or later."""
        return self._stood > 0 and self._stood_until >= since

    def stood_still(self, now: float) -> str:
        """A sentence, if this node just was suspended for longer than peers wait; else ""."""
        return self.suspension(now - self.limit)

    def suspension(self, since: float) -> str:
        """The same of a suspension that ended at `since` or later."""
        if not self._stood > self.limit or not self.may_be_lost(since):
            return ""
        return (
            f"EP603 {self._host} was suspended for {self._stood:.0f}s, and its peers wait for"
            f" {self.limit:g}s"
        )
