"""Merges the nodes' recordings on the time axis of worker-0.

Each node has its own monotonic clock, which may begin anywhere. A message that worker-0 sent before
a node received it, and one that it received after the node sent it, limit the difference of their
clocks: the estimate is the middle of the limits, and its error half their distance. Wall clocks are
not used.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrypoint.job.messages import Phases
from entrypoint.phases import Phase, Span
from entrypoint.record.content import PeerTimes, Recording
from entrypoint.values import dataclass, replace
from entrypoint.wire import Invalid

# seconds that a login may take: the key exchange, and logins to other nodes at the same time
LOGIN = 1.0
# Received from the node and sent to it, at its start and at its end.
_FIRST = ("answered", "started")
_LAST = ("told", "released")


@dataclass(frozen=True)
class Bar:
    """One node. `phases` are its own, without a gap; `spans` those of its peers and ranks; `note`:
    missing parts.

    `came`: when its sshd listened, or when worker-0 reached it, if that was much later.
    """

    rank: int
    name: str  # what messages call the node
    phases: tuple[Span, ...] = ()
    spans: tuple[Span, ...] = ()
    error: float = 0.0  # largest error of its place on the axis, in seconds
    note: str = ""
    came: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds from its first phase to the end of its last."""
        return self.phases[-1].end - self.phases[0].start if self.phases else 0.0


@dataclass(frozen=True)
class Timeline:
    """The job's nodes, in seconds since the first of them began. `last`: the one that came last,
    None for one node. `began`: that moment in seconds since 1970, by this node's clock; 0 where it
    is not known."""

    job: str
    me: int
    bars: tuple[Bar, ...]
    last: Bar | None
    began: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first node to the end of the last."""
        return max((bar.phases[-1].end for bar in self.bars if bar.phases), default=0.0)


def merge(recording: Recording) -> Timeline:
    """Return the timeline in the file of worker-0, which has all nodes, or of a node that has only
    its own phases.

    Raises Invalid if that node is not in it.
    """
    me = recording.me
    if me >= len(recording.hosts):
        raise Invalid("me: not one of the hosts")
    # An older version's file has no names.
    named = len(recording.names) == len(recording.hosts)
    names = recording.names if named else recording.hosts
    own_bar = _bar(me, names[me], recording, ClockShift())
    if not own_bar.phases:
        raise Invalid("phases: none is the node's own")
    bars = [
        own_bar if rank == me else _peer_bar(rank, name, recording, own_bar)
        for rank, name in enumerate(names)
    ]
    zero = min(bar.phases[0].start for bar in bars if bar.phases)
    moved = tuple(_moved(bar, -zero) for bar in bars)
    arrived = [bar for bar in moved if bar.came is not None]
    last = max(arrived, key=lambda bar: bar.came or 0.0) if len(arrived) > 1 else None
    began = recording.began - moved[me].phases[0].start if recording.began else 0.0
    return Timeline(recording.job, me, moved, last, began)


def _peer_bar(rank: int, name: str, recording: Recording, leader: Bar) -> Bar:
    """Return the bar of a peer; if worker-0 reached it long after its sshd listened, it came only
    then."""
    peer = recording.peers.get(str(rank), PeerTimes())
    if peer.part and (shift := ClockShift.between(vars(peer.part), vars(peer))):
        bar = _bar(rank, name, peer.part, shift)
        if bar.came is None or leader.came is None or not peer.answered:
            return bar
        is_late = peer.answered - max(bar.came, leader.came) > LOGIN
        return replace(bar, came=peer.answered) if is_late else bar
    if recording.alone:
        note = "not in this file: the nodes held no roll call, so each has a file of its own"
    elif recording.me:
        note = "not in this file: worker-0's has all nodes"
    elif peer.answered:
        why = "its clock cannot be compared" if peer.part else peer.why or "it sent nothing"
        note = f"its part did not arrive: {why}"
    else:
        note = f"it never answered: {peer.why or 'not reached'}"
    return Bar(rank, name, note=note, came=peer.answered or None)


def _bar(rank: int, name: str, node: Recording | Phases, shift: ClockShift) -> Bar:
    moved = [
        Span(phase, shift(start), shift(end), about) for phase, start, end, about in node.phases
    ]
    own_phases = tuple(phase for phase in moved if not phase.about)
    spans = tuple(phase for phase in moved if phase.about)
    listened = next(
        (phase.start for phase in own_phases if phase.name == Phase.ROLL_CALL.timeline), None
    )
    return Bar(rank, name, own_phases, spans, shift.error, "", listened)


def _moved(bar: Bar, by: float) -> Bar:
    phases, spans = (
        tuple(replace(phase, start=phase.start + by, end=phase.end + by) for phase in group)
        for group in (bar.phases, bar.spans)
    )
    came = None if bar.came is None else bar.came + by
    return replace(bar, phases=phases, spans=spans, came=came)


@dataclass(frozen=True)
class ClockShift:
    """The shift of a node's clock: `first` at the time `since`, `last` at `until`, linear in
    between."""

    first: float = 0.0
    last: float = 0.0
    since: float = 0.0
    until: float = 0.0
    error: float = 0.0

    def __call__(self, when: float) -> float:
        if self.until <= self.since:
            return when + self.last
        share = min(1.0, max(0.0, (when - self.since) / (self.until - self.since)))
        return when + self.first + share * (self.last - self.first)

    @classmethod
    def between(cls, node: Mapping[str, float], leader: Mapping[str, float]) -> ClockShift | None:
        """Return the shift, from the times that both sides noted for the same messages; None if
        none went both ways.

        Over days two clocks may drift apart. Then the limits at the start and at the end contradict
        each other, and each applies to its own time.
        """
        pairs = [limits for names in (_FIRST, _LAST) if (limits := _limits(node, leader, *names))]
        if not pairs:
            return None
        low = max(low for low, _ in pairs)
        high = min(high for _, high in pairs)
        if low <= high:
            middle = (low + high) / 2
            return cls(middle, middle, error=(high - low) / 2)
        (first, error), (last, other) = (
            ((low + high) / 2, abs(high - low) / 2) for low, high in (pairs[0], pairs[-1])
        )
        return cls(first, last, node["answered"], node["told"], max(error, other))


def _limits(
    node: Mapping[str, float], leader: Mapping[str, float], received: str, sent: str
) -> tuple[float, float] | None:
    """Return the limits of the clocks' difference; None if no message went both ways."""
    if not all(side[name] for side in (node, leader) for name in (received, sent)):
        return None
    return leader[sent] - node[sent], leader[received] - node[received]
