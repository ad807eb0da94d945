"""The timeline of a boot: all nodes' phases on the time axis of worker-0; as a table, or as trace
events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

Each node has its own monotonic clock, which may begin anywhere. A message that worker-0 sent before
a node received it, and one that it received after the node sent it, limit the difference of their
clocks: the estimate is the middle of the limits, and its error half their distance. Wall clocks are
not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from entrypoint.base.phases import DNS, MEANING, Phase, Span
from entrypoint.base.text import columns, duration, escaped
from entrypoint.base.values import frozen
from entrypoint.base.wire import Invalid
from entrypoint.features.record import ettr
from entrypoint.features.record.content import PeerTimes, Record, Recording, Row, TimeSpent

# seconds that a login may take: the key exchange, and logins to other nodes at the same time
_LOGIN = 1.0
# Received from the node and sent to it, at its start and at its end.
_FIRST = ("answered", "started")
_LAST = ("reported", "released")
_BEFORE = tuple(MEANING)[: tuple(MEANING).index(Phase.ROLL_CALL.timeline)]


@frozen
class Bar:
    """One node. `phases` are its own, without a gap; `spans` those of its peers and ranks; `note`:
    missing parts.

    `arrived`: when its sshd listened, or when worker-0 reached it, if that was much later.
    """

    rank: int
    name: str  # what messages call the node
    phases: tuple[Span, ...] = ()
    spans: tuple[Span, ...] = ()
    error: float = 0.0  # largest error of its place on the axis, in seconds
    note: str = ""
    arrived: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds from its first phase to the end of its last."""
        return self.phases[-1].end - self.phases[0].start if self.phases else 0.0

    @property
    def totals(self) -> dict[str, float]:
        """The seconds of each of its own phases; one that came more than once is summed."""
        sums: dict[str, float] = {}
        for phase in self.phases:
            sums[phase.name] = sums.get(phase.name, 0.0) + phase.seconds
        return {name: sums[name] for name in MEANING if name in sums}


@frozen
class Timeline:
    """The job's nodes, in seconds since the first of them began. `last`: the one that came last,
    None for one node. `began`: that moment in seconds since 1970, by this node's clock. `outcome`:
    how the job ended, "" if it has not; `command`: what was started."""

    job: str
    me: int
    bars: tuple[Bar, ...]
    last: Bar | None
    began: float
    outcome: str
    has_failed: bool
    command: str
    spent: TimeSpent | None  # over all attempts; worker-0 knows it

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first node to the end of the last."""
        return max((bar.phases[-1].end for bar in self.bars if bar.phases), default=0.0)


# --------------------------------------------------------------------------------------------------
# One axis


@frozen
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
        pairs = [
            (leader[sent] - node[sent], leader[received] - node[received])
            for received, sent in (_FIRST, _LAST)
            if all(side[name] for side in (node, leader) for name in (received, sent))
        ]
        if not pairs:
            return None
        low, high = max(low for low, _ in pairs), min(high for _, high in pairs)
        if low <= high:
            pairs = [(low, high)]
        (first, error), (last, other) = (
            ((low + high) / 2, abs(high - low) / 2) for low, high in (pairs[0], pairs[-1])
        )
        return cls(first, last, node["answered"], node["reported"], max(error, other))


def merge(record: Record) -> Timeline:
    """Return the timeline of worker-0, which has all nodes, or of a node that has only its own
    phases.

    Raises OSError if the record has none, Invalid if that node is not in it.
    """
    if not (recording := record.timeline):
        raise OSError(0, "no attempt has ended")
    me = recording.me
    if me >= len(recording.names):
        raise Invalid("me: not one of the names")
    if not recording.phases or recording.phases[0][3]:
        raise Invalid("phases: none is the node's own")
    parts = {me: (recording.phases, ClockShift())}
    ranks = range(len(recording.names))
    for rank in ranks:
        peer = recording.peers.get(str(rank), PeerTimes())
        if peer.part and (shift := ClockShift.between(vars(peer.part), vars(peer))):
            parts[rank] = peer.part.phases, shift
    zero = min(shift(rows[0][1]) for rows, shift in parts.values() if rows)
    here = _bar(me, recording, parts, zero)
    bars = tuple(
        here if rank == me else _bar(rank, recording, parts, zero, here.arrived) for rank in ranks
    )
    arrivals = [bar for bar in bars if bar.arrived is not None]
    last = max(arrivals, key=lambda bar: bar.arrived or 0.0) if len(arrivals) > 1 else None
    result, outcome = record.result or {}, ""
    if result:
        outcome = f"ended with {result['status']}: {escaped(result['reason'])}"
    if "text" in result:
        outcome += f"; cause: {escaped(result['text'])}"
    return Timeline(
        recording.job,
        me,
        bars,
        last,
        began=recording.began - recording.phases[0][1] + zero,
        outcome=outcome,
        has_failed=bool(result.get("status")),
        command=escaped(record.command),
        spent=record.status.spent if record.status else None,
    )


def _bar(
    rank: int,
    recording: Recording,
    parts: Mapping[int, tuple[Sequence[Row], ClockShift]],
    zero: float,
    listened: float | None = None,
) -> Bar:
    """Return the bar of a node. `listened`: when worker-0's sshd did; if it reached the node long
    after both listened, the node came only then."""
    name, peer = recording.names[rank], recording.peers.get(str(rank), PeerTimes())
    reached = peer.answered - zero  # below 0 if it never was
    if rank not in parts:
        arrived = reached if peer.answered else None
        return Bar(rank, name, note=_note(recording, peer), arrived=arrived)
    rows, shift = parts[rank]
    spans = [
        Span(phase, shift(start) - zero, shift(end) - zero, about)
        for phase, start, end, about in rows
    ]
    own = tuple(span for span in spans if not span.about)
    arrived = next((span.start for span in own if span.name == Phase.ROLL_CALL.timeline), None)
    if arrived is not None and listened is not None and reached - max(arrived, listened) > _LOGIN:
        arrived = reached
    others = tuple(span for span in spans if span.about)
    return Bar(rank, name, own, others, shift.error, arrived=arrived)


def _note(recording: Recording, peer: PeerTimes) -> str:
    """Return why a node's part is missing."""
    if recording.alone:
        return "not in this file: the nodes held no roll call, so each has a file of its own"
    if recording.me:
        return "not in this file: worker-0's has all nodes"
    if peer.answered:
        why = "its clock cannot be compared" if peer.part else peer.why or "it sent nothing"
        return f"its part did not arrive: {why}"
    return f"it never answered: {peer.why or 'not reached'}"


# --------------------------------------------------------------------------------------------------
# As text


def who_was_last(timeline: Timeline) -> str:
    """Return a sentence that names the node that came last, how much later than the others, and
    why."""
    last = timeline.last
    if last is None or last.arrived is None:
        return ""
    others = [bar for bar in timeline.bars if bar.rank != last.rank]
    behind = duration(last.arrived - max(bar.arrived for bar in others if bar.arrived is not None))
    sentence = (
        f"{last.name} was last: it was there at {duration(last.arrived)}, {behind} after the others"
    )
    others = [bar for bar in others if bar.phases]
    if not last.phases or not others:
        return f"{sentence}."
    spans = ((bar.rank, span) for bar in timeline.bars for span in reversed(bar.phases))
    # The first roll call of each node.
    starts = {rank: span.start for rank, span in spans if span.name == Phase.ROLL_CALL.timeline}
    listened = max(starts.values(), default=0.0)
    if last.arrived - listened > _LOGIN:
        calls = timeline.bars[timeline.me].spans
        dns = sum(call.seconds for call in calls if (call.name, call.about) == (DNS, last.name))
        part = f", {duration(dns)} of that for DNS" if dns >= 0.0005 else ""
        return (
            f"{sentence}; worker-0 reached it {duration(last.arrived - listened)} after its sshd"
            f" listened{part}."
        )
    late = last.phases[0].start - min(bar.phases[0].start for bar in others)
    took = last.totals
    more = {
        name: took[name] - min(bar.totals.get(name, 0.0) for bar in others)
        for name in _BEFORE
        if name in took
    }
    name = max(more, key=lambda name: more[name], default="")
    if name and more[name] > late:
        return (
            f"{sentence}; {name} took {duration(took[name])} there, {duration(more[name])} more"
            " than on the fastest."
        )
    return f"{sentence}; its container or entrypoint started {duration(late)} after the first."


def longest(timeline: Timeline) -> str:
    """Return a sentence that names the longest phase before the run, and its node."""
    rows = [
        (seconds, name, bar.name)
        for bar in timeline.bars
        for name, seconds in bar.totals.items()
        if name != Phase.RUNNING.timeline
    ]
    if not rows:
        return ""
    seconds, phase, node = max(rows)
    return (
        f"The longest phase apart from the run: {phase} on {node}, {duration(seconds)}"
        f" ({MEANING[phase]})."
    )


def table(timeline: Timeline) -> str:
    """Return a table of nodes with the seconds of each phase, and what is missing."""
    used = {name for bar in timeline.bars for name, time in bar.totals.items() if time >= 0.0005}
    names = [name for name in MEANING if name in used]
    rows = [["seconds", "begun", *names, "sum"]]
    for bar in timeline.bars:
        took = bar.totals
        cells = [f"{took[name]:.3f}" if name in took else "-" for name in names]
        begun, whole = (
            (f"{bar.phases[0].start:.3f}", f"{bar.seconds:.3f}") if bar.phases else ("-", "-")
        )
        rows.append([bar.name, begun, *cells, whole])
    title = (f"job {timeline.job}", duration(timeline.seconds), timeline.outcome)
    lines = [
        ", ".join(filter(None, title)),
        *([f"command: {timeline.command}"] if timeline.command else []),
        "",
        *columns(rows, range(1, len(names) + 3)),
        "",
        *sentences(timeline),
        *notes(timeline),
        *(["", *ettr.lines(timeline.spent)] if timeline.spent else []),
    ]
    return "\n".join(lines) + "\n"


def sentences(timeline: Timeline) -> list[str]:
    """Return the sentences on the last node and on the longest phase, as far as there are any."""
    return [text for text in (who_was_last(timeline), longest(timeline)) if text]


def notes(timeline: Timeline) -> list[str]:
    """Return notes on single nodes: those whose part is missing, and the one whose place is least
    exact."""
    missing = [f"{bar.name}: {bar.note}." for bar in timeline.bars if bar.note]
    vague = max(timeline.bars, key=lambda bar: bar.error)
    if vague.error >= 0.0005:
        missing.append(
            f"Each node's place is exact to {duration(vague.error)} ({vague.name}) or better."
        )
    return missing


def trace(timeline: Timeline) -> str:
    """Return the timeline as JSON, by "Trace Event Format", events X and M: each node is a process,
    with a thread for itself and for each of its peers and ranks. Times are whole microseconds since
    the first node began."""
    import json

    events: list[dict[str, Any]] = []
    # As on Linux: no number is 0 (for Perfetto the idle process), no two threads share one, and a
    # process has that of its first thread.
    numbers = count(1)
    for bar in timeline.bars:
        process = next(numbers)
        threads = {"": process}
        about = f"{bar.name} ({bar.note})" if bar.note else bar.name
        events.append(_named("process_name", process, process, name=about))
        events.append(_named("process_sort_index", process, process, sort_index=bar.rank))
        for phase in (*bar.phases, *bar.spans):
            if phase.about not in threads:
                threads[phase.about] = next(numbers)
            start = round(phase.start * 1e6)
            end = round(phase.end * 1e6)
            event = {"name": phase.name, "cat": "boot", "ph": "X", "ts": start, "dur": end - start}
            events.append({**event, "pid": process, "tid": threads[phase.about]})
        events += [
            _named("thread_name", process, number, name=name or "node")
            for name, number in threads.items()
        ]
    head = {"displayTimeUnit": "ms", "otherData": {"job": timeline.job}}
    return json.dumps({**head, "traceEvents": events}) + "\n"


def _named(kind: str, process: int, thread: int, **args: str | int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}
