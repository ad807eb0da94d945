"""What the nodes recorded, on worker-0's axis.

Each node has a monotonic clock of its own, which may begin anywhere. What worker-0 said before a node heard it, and
what it heard after the node said it, are limits to the difference; the estimate is their middle, and half their
distance its error. Wall clocks count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrypoint.errors import NoInputError
from entrypoint.phases import Phase, Span
from entrypoint.text import escaped, from_json
from entrypoint.values import dataclass

VERSION = 1
_NAME = 300  # characters of a name
_EVER = 1e12  # seconds
LOGIN = 1.0  # seconds that a login may take: the key exchange, and others that are logged in to at the same time
_FIRST, _LAST = ("answered", "started"), ("told", "released")  # heard of the node, said to it: at its start, at its end


@dataclass(frozen=True)
class Bar:
    """One node. `phases` are its own, without a gap; `spans` those of its peers and ranks; `note`: what is missing."""

    rank: int
    host: str
    phases: tuple[Span, ...] = ()
    spans: tuple[Span, ...] = ()
    error: float = 0.0  # seconds that its place on the axis may be wrong by
    note: str = ""
    came: float | None = (
        None  # when it was there: when its sshd listened, or when worker-0 reached it, if that was late
    )

    @property
    def seconds(self) -> float:
        """How long it was there."""
        return self.phases[-1].end - self.phases[0].start if self.phases else 0.0


@dataclass(frozen=True)
class Timeline:
    """The job's nodes, in seconds since the first of them began. `last`: the one that came last, None for one alone."""

    job: str
    me: int
    bars: tuple[Bar, ...]
    last: Bar | None

    @property
    def seconds(self) -> float:
        """From the first node's begin to the last one's end."""
        return max((bar.phases[-1].end for bar in self.bars if bar.phases), default=0.0)


def parse(text: str, file: str) -> Timeline:
    """The timeline that a node has written. Raises NoInputError where the text is none."""
    try:
        given = from_json(text)
        if given["version"] != VERSION:
            seen = f"its form is {escaped(str(given['version']), 20)}, this toolkit knows {VERSION}"
            raise NoInputError(f"EP042 {file} is of another version", seen, "use the toolkit that the job ran with")
        return merge(given)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError):
        do = "give the run directory of a node whose job has ended, or its file ...-timeline.json"
        raise NoInputError(f"EP042 {file} is no timeline", "another text", do) from None


def merge(given: Mapping[str, Any]) -> Timeline:
    """What is in the file of worker-0, or of another node that has only its own."""
    me, hosts, peers = int(given["me"]), [escaped(host, _NAME) for host in given["hosts"]], given["peers"]
    own = _bar(me, hosts[me], _phases(given["phases"]), ClockShift())
    bars = []
    for rank, host in enumerate(hosts):
        peer = peers.get(str(rank), {})
        bars.append(own if rank == me else _reached(_of_peer(rank, host, peer, given), own, peer.get("answered")))
    zero = min(bar.phases[0].start for bar in bars if bar.phases)
    placed = tuple(_moved(bar, -zero) for bar in bars)
    there = [bar for bar in placed if bar.came is not None]
    last = max(there, key=lambda bar: bar.came or 0.0) if there[1:] else None
    return Timeline(escaped(given["job"], _NAME), me, placed, last)


def _of_peer(rank: int, host: str, peer: Mapping[str, Any], given: Mapping[str, Any]) -> Bar:
    part = peer.get("part")
    shift = ClockShift.between(part, peer) if part else None
    if part and shift:
        return _bar(rank, host, _phases(part["phases"]), shift)
    if given["alone"]:
        note = "not in this file: the nodes held no roll call, so each has a file of its own"
    elif given["me"]:
        note = "not in this file: worker-0's has all nodes"
    elif peer.get("answered"):
        why = "its clock cannot be compared" if part else escaped(peer["why"]) or "it told nothing"
        note = f"its part did not arrive: {why}"
    else:
        note = f"it never answered: {escaped(peer.get('why') or 'not reached')}"
    return Bar(rank, host, note=note, came=peer.get("answered") or None)


def _reached(bar: Bar, own: Bar, answered: float | None) -> Bar:
    """A node whose sshd listened, and that worker-0 reached much later than that, was there only then."""
    if bar.came is not None and own.came is not None and answered and answered - max(bar.came, own.came) > LOGIN:
        return Bar(bar.rank, bar.host, bar.phases, bar.spans, bar.error, bar.note, answered)
    return bar


def _phases(rows: list[Any]) -> tuple[Span, ...]:
    return tuple(
        Span(escaped(name, _NAME), _time(start), _time(end), escaped(about, _NAME)) for name, start, end, about in rows
    )


def _time(given: float) -> float:
    """Seconds on some node's clock. Raises ValueError for a number that no clock has."""
    if not abs(seconds := float(given)) < _EVER:
        raise ValueError("no time")
    return seconds


def _bar(rank: int, host: str, phases: tuple[Span, ...], shift: ClockShift) -> Bar:
    placed = [Span(each.name, shift(each.start), shift(each.end), each.about) for each in phases]
    own, spans = ([each for each in placed if bool(each.about) == other] for other in (False, True))
    opened = next((each.start for each in own if each.name == Phase.ROLL_CALL.timeline), None)
    return Bar(rank, host, tuple(own), tuple(spans), shift.error, "", opened)


def _moved(bar: Bar, by: float) -> Bar:
    own, spans = (
        tuple(Span(each.name, each.start + by, each.end + by, each.about) for each in phases)
        for phases in (bar.phases, bar.spans)
    )
    return Bar(bar.rank, bar.host, own, spans, bar.error, bar.note, None if bar.came is None else bar.came + by)


@dataclass(frozen=True)
class ClockShift:
    """What to add to a node's clock: `first` at the time `since`, `last` at `until`, and in proportion between."""

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
    def between(cls, theirs: Mapping[str, float], mine: Mapping[str, float]) -> ClockShift | None:
        """From what both sides noted of the same messages; None where none went both ways.

        Over days two clocks may drift apart. Then the limits at the start and at the end contradict each other, and
        each holds for its own time.
        """
        pairs = [limits for names in (_FIRST, _LAST) if (limits := _limits(theirs, mine, *names))]
        if not pairs:
            return None
        low, high = max(low for low, _ in pairs), min(high for _, high in pairs)
        if low <= high:
            return cls(error=(high - low) / 2, first=(low + high) / 2, last=(low + high) / 2)
        (first, error), (last, other) = (((low + high) / 2, abs(high - low) / 2) for low, high in (pairs[0], pairs[-1]))
        return cls(first, last, theirs["answered"], theirs["told"], max(error, other))


def _limits(
    theirs: Mapping[str, float], mine: Mapping[str, float], heard: str, said: str
) -> tuple[float, float] | None:
    """The least and the most that the difference can be; None where a message did not go both ways."""
    if not all(side[name] for side in (theirs, mine) for name in (heard, said)):
        return None
    return mine[said] - theirs[said], mine[heard] - theirs[heard]
