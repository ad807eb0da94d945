"""Figures computed from raw numbers: medians, and whether a goal is reached or a figure has become
worse. Nothing is timed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

OURS = "entrypoint"  # the way that has goals
MARGIN = 1.3  # by what factor a figure may be worse than the one that it is compared with

Kind = Literal["value", "ratio", "added"]
Run = float | str  # what one run gave; a text is a run that failed, and why


@dataclass(frozen=True)
class Series:
    """The runs of one way to do one case, in the order in which they were made."""

    unit: str  # such as "s"
    runs: tuple[Run, ...]

    @property
    def good(self) -> list[float]:
        """The numbers of the runs that did not fail."""
        return [run for run in self.runs if not isinstance(run, str)]

    @property
    def failed(self) -> int:
        return len(self.runs) - len(self.good)

    @property
    def median(self) -> float:
        """Of the runs that did not fail; not a number where all failed."""
        return statistics.median(self.good) if self.good else math.nan

    @property
    def text(self) -> str:
        """The median with three digits and its unit."""
        return number(self.median, self.unit)


Data = Mapping[tuple[str, str], Series]  # by case, such as "8 nodes", and way, such as OURS


def data_of(row: Mapping[str, Any]) -> Data:
    """Return the series of a row of performance.json."""
    return {
        (each["case"], each["way"]): Series(each["unit"], tuple(each["runs"]))
        for each in row["series"]
    }


@dataclass(frozen=True)
class Goal:
    """The most that the toolkit's median of a case may be: by itself (`value`), divided by that of
    another way (`ratio`), or after its subtraction (`added`)."""

    case: str
    kind: Kind
    most: float
    baseline: str = ""  # the other way

    def words(self, unit: str) -> str:
        """Return the limit for readers, such as "at most +0.3 s"."""
        if self.kind == "ratio":
            return f"at most {self.most:g}"
        return f"at most {'+' if self.kind == 'added' else ''}{self.most:g} {unit}"


def number(value: float, unit: str, sign: str = "") -> str:
    """Return a number with three digits that count, and its unit."""
    return f"{value:{sign}{'.0f' if abs(value) >= 100 else '#.3g'}} {unit}"


def result(goal: Goal, data: Data) -> tuple[str, bool]:
    """Return what was measured, for readers, and whether it reaches the goal. A series that is not
    there, or one of this toolkit with a run that failed, never does."""
    ours, other = data.get((goal.case, OURS)), data.get((goal.case, goal.baseline))
    if ours is None or (other is None and goal.kind != "value"):
        return "not measured", False
    value, text = ours.median, ours.text
    if other and goal.kind == "ratio":
        value /= other.median
        text = f"{value:.2f}"
    elif other and goal.kind == "added":
        value -= other.median
        text = number(value, ours.unit, "+")
    if ours.failed:
        text += f", {ours.failed} of {len(ours.runs)} runs failed"
    return text, value <= goal.most and not ours.failed


def expected(goal: Goal, data: Data, before: Data) -> float | None:
    """Return what the toolkit's median would be on this machine if it were as before, by that of
    the other way now: the larger of the same ratio and the same addition, since with a faster
    engine the ratio alone grows. None if there is nothing to compare with."""
    ways = (goal.case, OURS), (goal.case, goal.baseline)
    if any(way not in series for way in ways for series in (data, before)):
        return None
    ours, other, now = before[ways[0]].median, before[ways[1]].median, data[ways[1]].median
    return max(ours / other * now, now + ours - other)


def compared(case: str, ours: Series, other: float) -> tuple[str, bool]:
    """Return a line that compares this toolkit's median with another one, and whether it is worse
    by more than the margin. A run of the toolkit that failed is worse."""
    worse = not ours.median <= other * MARGIN or bool(ours.failed)
    return f"{case}: {ours.text}, at most {number(other * MARGIN, ours.unit)}", worse
