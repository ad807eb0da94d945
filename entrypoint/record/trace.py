"""Writes a timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

Each node is a process, with a thread for itself and for each of its peers and ranks. Source: "Trace
Event Format", events X and M.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from entrypoint.record.merge import Timeline


def trace(timeline: Timeline) -> str:
    """Return the JSON text. Times are whole microseconds since the first node began."""
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
    return (
        json.dumps(
            {"displayTimeUnit": "ms", "otherData": {"job": timeline.job}, "traceEvents": events}
        )
        + "\n"
    )


def _named(kind: str, process: int, thread: int, **args: str | int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}
