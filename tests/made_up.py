"""Made-up results, for pages and their tests."""

from __future__ import annotations

from typing import Any

from entrypoint.base.phases import MEANING
from entrypoint.base.wire import read
from entrypoint.features.record.content import Record, Recording
from entrypoint.features.record.page import page
from entrypoint.features.record.timeline import Timeline, merge

SECONDS = {"facts": 0.2, "keys": 0.01, "sshd": 0.03, "roll call": 0.1, "files": 0.01}
END = {"end": 0.2, "release": 0.1}


def recorded(
    late: float = 15.0, run: float = 40.0, nodes: int = 4, lost: tuple[int, ...] = ()
) -> dict[str, Any]:
    """What worker-0 writes: the last node came `late` seconds late, and each has a clock of its
    own."""
    peers: dict[str, Any] = {}
    leader = _rows(
        1000.0,
        {**SECONDS, "roll call": late, "launch": 0.2, "first output": 3.0, "run": run, **END},
    )
    start = 1000.0 + 0.25 + late
    for rank in range(1, nodes):
        own, begun = -5000.0 * rank, 1000.0 + (late if rank == nodes - 1 else rank / 10)
        waits = {"others": max(start - begun - sum(SECONDS.values()), 0.001)}
        rows = _rows(
            begun + own, {**SECONDS, **waits, "launch": 0.2, "first output": 3.0, "run": run, **END}
        )
        answered, released = _end(rows, "files"), _end(rows, "end")
        began = _end(rows, "others")
        told = {
            "answered": answered,
            "started": began,
            "released": released,
            "reported": released + 0.001,
        }
        rows += [
            ("first output", began + 0.2, began + 3.2, f"rank {rank}"),
            ("run", began + 3.2, released, f"rank {rank}"),
        ]
        leader += [
            ("DNS", 1000.24, 1000.25, f"worker-{rank}"),
            ("roll call", 1000.25, answered - own, f"worker-{rank}"),
        ]
        peers[str(rank)] = {
            "part": None if rank in lost else {"phases": rows, **told},
            "answered": answered - own + 0.002, "started": began - own - 0.002, "released": released - own - 0.002,
            "reported": told["reported"] - own + 0.002, "why": "its session ended" if rank in lost else "",
        }  # fmt: skip
    names = [f"worker-{rank}" for rank in range(nodes)]
    return {
        "job": "resnet-50",
        "names": names,
        "me": 0,
        "alone": False,
        "phases": leader,
        "peers": peers,
        "began": 1795000000.0,
    }


def _rows(begun: float, seconds: dict[str, float]) -> list[tuple[str, float, float, str]]:
    rows = []
    for name in (each for each in MEANING if each in seconds):
        rows.append((name, begun, begun + seconds[name], ""))
        begun += seconds[name]
    return rows


def _end(rows: list[tuple[str, float, float, str]], name: str) -> float:
    return next(end for each, _, end, about in rows if each == name and not about)


def timeline(result: dict[str, Any] | None = None, **how: Any) -> Timeline:
    """The same, on one axis, of a job with this result."""
    return merged(recorded(**how), result)


def merged(given: dict[str, Any], result: dict[str, Any] | None = None) -> Timeline:
    """What is in a file of these values."""
    return merge(Record(1, "", result, timeline=read(Recording, given)))


def timeline_page() -> str:
    """A page with four nodes: one was late, one was lost."""
    result = {"status": 75, "reason": "worker-2 is lost: its session ended"}
    return page(timeline(result, lost=(2,)))
