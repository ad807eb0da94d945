"""Schedules whose end is known: named.yaml lists them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.simulation.gates import AWAITED, Gate
from tests.simulation.invariants import check
from tests.simulation.schedule import MOVED, Fault, Schedule
from tests.simulation.world import World

LATE = Gate(AWAITED + 2, healthy=False)


@dataclass(frozen=True)
class Named:
    """A schedule, and how its nodes end: their statuses (None: killed, and gone), by when, and what
    the leader says."""

    schedule: Schedule
    statuses: tuple[int | None, ...]
    by: float = 100.0  # seconds
    reason: str = ""
    attempts: int = 1


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _named(
    ends: list[int | None], by: float = 100.0, reason: str = "", attempts: int = 1, **how: Any
) -> Named:
    nothing = (0.0,) * how["nodes"]
    faults = tuple(Fault(*row) for row in how.pop("faults", ()))
    gates = tuple(LATE if row == "late" else Gate(*row) for row in how.pop("gates", ()))
    rest = {
        "starts": nothing,
        "save": nothing,
        **{name: _tuples(value) for name, value in how.items()},
    }
    return Named(Schedule(faults=faults, gates=gates, **rest), tuple(ends), by, reason, attempts)  # fmt: skip


_LIST = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
NAMED = {name: _named(**row) for name, row in yaml.safe_load(_LIST).items()}


def differences(named: Named) -> tuple[World, list[str]]:
    """Simulate it. Return the world at its end, and what is not as it is known to be."""
    world, wrong = check(named.schedule, keep_log=True)
    if wrong:
        return world, wrong
    ends = [
        None if each.killed or not each.boots else each.outcomes[-1] for each in world.containers
    ]
    when, reason = max(end[0] for end in ends if end), next(end[1].reason for end in ends if end)
    killed = sum(fault.node == 0 for fault in named.schedule.of("kill", "reboot", MOVED))
    attempts = world.containers[0].boots - killed + (ends[0] is None)
    statuses = tuple(end[1].status if end else None for end in ends)
    if statuses != named.statuses:
        wrong.append(f"the nodes end with {statuses}, not with {named.statuses}")
    if when >= named.by:
        wrong.append(f"the last node ends at {when:.1f} s, not by {named.by:.1f} s")
    if named.reason not in reason:
        wrong.append(f"the reason is {reason!r}, without {named.reason!r}")
    if attempts != named.attempts:
        wrong.append(f"there are {attempts} attempts, not {named.attempts}")
    return world, wrong
