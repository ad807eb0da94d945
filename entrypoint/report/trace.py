"""A timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show: a process for each node, a
thread for itself and for each of its peers and ranks. Source: "Trace Event Format", events X and M."""

from __future__ import annotations

from typing import Any

from entrypoint.report.merge import Timeline


def trace(timeline: Timeline) -> str:
    """The JSON text. Times are whole microseconds since the first node began."""
    import json

    events: list[dict[str, Any]] = []
    for bar in timeline.bars:
        threads = {"": 0}
        about = f"{bar.host} ({bar.note})" if bar.note else bar.host
        events.append(_name("process_name", bar.rank, 0, about))
        events.append(
            {"name": "process_sort_index", "ph": "M", "pid": bar.rank, "tid": 0, "args": {"sort_index": bar.rank}}
        )
        for each in (*bar.phases, *bar.spans):
            thread = threads.setdefault(each.about, len(threads))
            start, end = round(each.start * 1e6), round(each.end * 1e6)
            event = {"name": each.name, "cat": "boot", "ph": "X", "ts": start, "dur": end - start}
            events.append({**event, "pid": bar.rank, "tid": thread})
        events += [_name("thread_name", bar.rank, number, what or "node") for what, number in threads.items()]
    return json.dumps({"displayTimeUnit": "ms", "otherData": {"job": timeline.job}, "traceEvents": events}) + "\n"


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
