"""The areas, sessions and steps of areas.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TIERS = ("test", "all", "release")


@dataclass(frozen=True)
class Area:
    """What is tested together: see areas.yaml."""

    name: str
    what: str
    tests: tuple[str, ...]  # starts of paths below tests/
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    session: str = "here"
    tier: str = "test"  # the first tier that has any of it


@dataclass(frozen=True)
class Step:
    """A command that fails where something does not hold."""

    name: str
    what: str
    command: str
    tiers: tuple[str, ...]  # that have it
    inputs: tuple[str, ...] = ()  # starts of paths, or:
    module: str = ""  # what it starts, whose inputs are the step's
    alone: bool = False  # after the tests, since it measures, or makes images that they run


_FILE = yaml.safe_load(Path(__file__).with_name("areas.yaml").read_text(encoding="utf-8"))


def _lists(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


AREAS = tuple(Area(name, **_lists(row)) for name, row in _FILE["areas"].items())
STEPS = tuple(Step(name, **_lists(row)) for name, row in _FILE["steps"].items())
EVERY_CHANGE: tuple[str, ...] = tuple(_FILE["every_change"])  # what `make test` needs
SESSIONS: dict[str, int] = _FILE["sessions"]  # tests at a time


def area_of(test: str) -> Area:
    """Return the area of a test, by its name or its file's path. Raises KeyError if it has none."""
    path = test.removeprefix("tests/")
    found = [
        (len(start), area)
        for area in AREAS
        for start in area.tests
        if path == start or path.startswith((f"{start}/", f"{start}::"))
    ]
    if not found:
        raise KeyError(test)
    return max(found, key=lambda pair: pair[0])[1]
