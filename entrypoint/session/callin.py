"""Nodes that call in: each logs in to worker-0 by ssh, says which node it is, and is answered with
the list of all.

The login proves the job's secret on both sides, as the roll call's does. The session is open until
the list is complete, so worker-0 knows which callers are alive.
"""

# Annotations are no texts here, as in job/messages.py.

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Outcome, Topology
from entrypoint.base.text import count
from entrypoint.base.values import dataclass
from entrypoint.base.wire import Length
from entrypoint.job.messages import MAX_RANKS, Label, Rank, Release, kind_of
from entrypoint.plan.callin import Place, names, places
from entrypoint.session import codec

Host = Annotated[str, Length(300)]


@dataclass(frozen=True)
class CallIn:
    """From a node: its host name, and its index if it was given one."""

    name: Host
    index: Rank | None


@dataclass(frozen=True)
class CalledIn:
    """From worker-0: the name and address of each host in rank order, and the caller's index. The
    address of worker-0 is "": the caller has its own way there."""

    hosts: Annotated[tuple[tuple[Host, Label], ...], Length(MAX_RANKS)]
    index: Rank


CALLS: codec.Kinds = {kind_of(CallIn): CallIn}
ANSWERS: codec.Kinds = {kind_of(message): message for message in (CalledIn, Release)}


class Desk:
    """Worker-0's side: who has called in, and once all have, which place each has."""

    def __init__(
        self,
        topology: Topology,
        changed: Callable[[int], None] = lambda callers: None,
        failed: Callable[[Outcome], None] = lambda outcome: None,
        moved: Callable[[int, str], None] = lambda rank, address: None,
        is_here: Callable[[int], bool] = lambda rank: False,
    ) -> None:
        """`changed` is called with the number of callers, `failed` if they cannot be of one job;
        `moved` once a node has another address;
        `is_here` returns whether a node has a session of the roll call."""
        self._topology = topology
        self._changed = changed
        self._failed = failed
        self._moved = moved
        self._is_here = is_here
        self._callers: dict[Any, Place] = {}  # by their sessions
        self.hosts: tuple[tuple[str, str], ...] = ()  # name and address of each, once all are known
        self.complete = asyncio.Event()
        self.empty = asyncio.Event()

    @classmethod
    def of(cls, topology: Topology, **callbacks: Any) -> "Desk":
        """Return the desk of a job whose nodes have called in: those that start again do so
        again."""
        desk = cls(topology, **callbacks)
        desk.hosts = tuple((node.host, node.address or "") for node in topology.nodes)
        return desk

    @property
    def callers(self) -> list[str]:
        """The host names of those that have called in and wait."""
        return [place.name for place in self._callers.values()]

    def take(self, call: CallIn, session: Any) -> None:
        """A node calls. It is answered now, or once the list is complete."""
        place = Place(call.index, call.name, session.caller)
        if self.hosts:
            self._answer_late(place, session)
            return
        nodes = len(self._topology.nodes)
        if place.index is not None and place.index >= nodes:
            self._refuse(session, _beyond(f"index {place.index}", nodes))
            return
        own = Place(0, self._topology.this.host, "")
        if (place.index, place.name) == (own.index, own.name):  # it has called itself
            return
        for other, rival in ((None, own), *self._callers.items()):
            if rival == place:  # it starts again, and its old session has not ended yet
                del self._callers[other]
                break
            if rival.index is not None and rival.index == place.index:
                self._refuse(session, _two(place, rival))
                self._failed(_two(place, rival).outcome)
                return
        self._callers[session] = place
        self._changed(len(self._callers))
        if len(self._callers) == nodes - 1:
            self._close_list(own)

    def leave(self, session: Any) -> None:
        """A session has ended."""
        if self._callers.pop(session, None) and not self.hosts:
            self._changed(len(self._callers))
        if not self._callers:
            self.empty.set()

    def end(self, outcome: Outcome) -> None:
        """No list will be complete: all callers end with this outcome."""
        for session in self._callers:
            session.send(codec.pack(_release(outcome)))

    def _close_list(self, own: Place) -> None:
        callers = [own, *self._callers.values()]
        given = {place.index: place for place in callers if place.index is not None}
        ordered = places(given, [place for place in callers if place.index is None])
        self.hosts = tuple(zip(names(ordered), (place.address for place in ordered), strict=True))
        for session, place in self._callers.items():
            session.send(codec.pack(CalledIn(self.hosts, ordered.index(place))))
        self.complete.set()

    def _answer_late(self, place: Place, session: Any) -> None:
        """Answer a node that starts again, maybe elsewhere; it keeps its place."""
        rank = place.index
        if rank is None:
            named = [
                rank
                for key, own in ((0, place.name), (1, place.address))
                for rank, host in enumerate(self.hosts)
                if host[key] == own
            ]
            rank = named[0] if named else -1
        if not 0 <= rank < len(self.hosts):
            self._refuse(session, _beyond(f"{place.name} at {place.address}", len(self.hosts)))
            return
        known = Place(rank, *self.hosts[rank])
        if rank == 0 or (self._is_here(rank) and place.address != known.address):
            self._refuse(session, _two(Place(rank, place.name, place.address), known))
            return
        if place.address != known.address:
            self._moved(rank, place.address)
            moved = (known.name, place.address)
            self.hosts = (*self.hosts[:rank], moved, *self.hosts[rank + 1 :])
        session.send(codec.pack(CalledIn(self.hosts, rank)))

    def _refuse(self, session: Any, error: ConfigError) -> None:
        session.send(codec.pack(_release(error.outcome)))


def _release(outcome: Outcome) -> Release:
    return Release(outcome.status, outcome.reason, outcome.program, again=False)


def _two(one: Place, other: Place) -> ConfigError:
    seen = " and ".join(f"{it.name} at {it.address}".removesuffix(" at ") for it in (other, one))
    return ConfigError(
        f"EP504 two nodes have index {one.index}",
        seen,
        "give each node an index of its own, and only worker-0 the address of worker-0",
    )


def _beyond(who: str, nodes: int) -> ConfigError:
    return ConfigError(
        "EP203 this node is beyond the last node of the job",
        f"{who}; {count(nodes, 'node')}, spares included, and all others have their places",
        "count from 0, or set nodes and spares to the number of nodes that start",
    )
