"""Describes a timeline as text: the last node and the cause, and a table of nodes and phases; or as
trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from entrypoint.phases import DNS, MEANING, Phase
from entrypoint.record.merge import LOGIN, Bar, Timeline
from entrypoint.text import columns, duration

_BEFORE = tuple(MEANING)[: tuple(MEANING).index(Phase.ROLL_CALL.timeline)]


def totals(bar: Bar) -> dict[str, float]:
    """Return the seconds of each of the node's own phases; one that came more than once is
    summed."""
    sums: dict[str, float] = {}
    for phase in bar.phases:
        sums[phase.name] = sums.get(phase.name, 0.0) + phase.seconds
    return {name: sums[name] for name in MEANING if name in sums}


def who_was_last(timeline: Timeline) -> str:
    """Return a sentence that names the node that came last, how much later than the others, and
    why."""
    last = timeline.last
    if last is None or last.came is None:
        return ""
    others = [bar for bar in timeline.bars if bar.rank != last.rank]
    behind = duration(last.came - max(bar.came for bar in others if bar.came is not None))
    sentence = (
        f"{last.name} was last: it was there at {duration(last.came)}, {behind} after the others"
    )
    others_took = [totals(bar) for bar in others if bar.phases]
    if not last.phases or not others_took:
        return f"{sentence}."
    starts = (phase for bar in timeline.bars for phase in bar.phases[:9])
    listened = [phase.start for phase in starts if phase.name == Phase.ROLL_CALL.timeline]
    if last.came - max(listened, default=0.0) > LOGIN:
        calls = timeline.bars[timeline.me].spans
        dns = sum(call.seconds for call in calls if (call.name, call.about) == (DNS, last.name))
        part = f", {duration(dns)} of that for DNS" if dns >= 0.0005 else ""
        return (
            f"{sentence}; worker-0 reached it {duration(last.came - max(listened))} after its sshd"
            f" listened{part}."
        )
    begun = min(bar.phases[0].start for bar in others if bar.phases)
    late = last.phases[0].start - begun
    took = totals(last)
    more = {
        name: took[name] - min(other.get(name, 0.0) for other in others_took)
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
        for name, seconds in totals(bar).items()
        if name != Phase.RUNNING.timeline
    ]
    if not rows:
        return ""
    seconds, phase, node = max(rows)
    return (
        f"The longest phase apart from the run: {phase} on {node}, {duration(seconds)}"
        f" ({MEANING[phase]})."
    )


def table(timeline: Timeline, outcome: str, command: str = "") -> str:
    """Return a table of nodes with the seconds of each phase, and what is missing. `outcome`: how
    the job ended; `command`: what was started."""
    taken = [totals(bar) for bar in timeline.bars]
    names = [name for name in MEANING if any(took.get(name, 0) >= 0.0005 for took in taken)]
    heads = ["seconds", "begun", *names, "sum"]
    rows = [heads]
    for bar, took in zip(timeline.bars, taken, strict=True):
        seconds = [f"{took[name]:.3f}" if name in took else "-" for name in names]
        begun, whole = (
            (f"{bar.phases[0].start:.3f}", f"{bar.seconds:.3f}") if bar.phases else ("-", "-")
        )
        rows.append([bar.name, begun, *seconds, whole])
    lines = [
        f"job {timeline.job}, {duration(timeline.seconds)}{f', {outcome}' if outcome else ''}",
        *([f"command: {command}"] if command else []),
        "",
    ]
    lines += columns(rows, range(1, len(heads)))
    lines += [
        "",
        *(line for line in (who_was_last(timeline), longest(timeline), *notes(timeline)) if line),
    ]
    return "\n".join(lines) + "\n"


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
