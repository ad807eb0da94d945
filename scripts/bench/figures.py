"""What is computed from raw numbers: medians, ratios, and whether a goal is reached. Nothing is
timed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# by what factor a ratio may be worse than the committed one before `--check` fails
MARGIN = 1.3

Kind = Literal["ratio", "more", "value", "each", "at least"]
Run = float | str  # what one run gave; a text is a run that failed, and why


@dataclass(frozen=True)
class Series:
    """The runs of one way to do one case, in the order in which they were made."""

    case: str  # such as "8 nodes"
    way: str  # such as "bare mpirun"
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


Data = Mapping[tuple[str, str], Series]  # by case and way


def by_name(series: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Series]:
    """Return the series of a row of performance.json by case and way."""
    made = [Series(each["case"], each["way"], each["unit"], tuple(each["runs"])) for each in series]
    return {(each.case, each.way): each for each in made}


@dataclass(frozen=True)
class Goal:
    """What a row has to reach.

    ratio     median over the median of `beside`
    more      median less the median of `beside`, in the unit of the series
    value     median
    each      the worst run
    at least  as ratio, but the limit is the least and not the most
    """

    case: str
    way: str
    beside: str  # another way of the same case; "" if the number stands alone
    kind: Kind
    limit: float

    def words(self, unit: str) -> str:
        """Return the limit for readers, such as "at most +0.3 s"."""
        if self.kind in ("ratio", "at least"):
            return f"{'at least' if self.kind == 'at least' else 'at most'} {self.limit:g}"
        sign = "+" if self.kind == "more" else ""
        each = ", each run" if self.kind == "each" else ""
        return f"at most {sign}{self.limit:g} {unit}".rstrip() + each


@dataclass(frozen=True)
class Figure:
    """A goal beside what was measured."""

    value: float  # what is compared with the limit; not a number where there is nothing to compare
    text: str
    held: bool


def figure(goal: Goal, data: Data) -> Figure:
    """Return what the runs say about a goal. A failed run of ours, or a series that is not there,
    never reaches it."""
    ours = data.get((goal.case, goal.way))
    theirs = data.get((goal.case, goal.beside)) if goal.beside else None
    if ours is None or (goal.beside and theirs is None):
        return Figure(math.nan, "not measured", False)
    value, text = _value(goal, ours, theirs)
    held = value >= goal.limit if goal.kind == "at least" else value <= goal.limit
    failed = f", {ours.failed} of {len(ours.runs)} runs failed" if ours.failed else ""
    return Figure(value, text + failed, held and not failed and math.isfinite(value))


def _value(goal: Goal, ours: Series, theirs: Series | None) -> tuple[float, str]:
    if goal.kind == "value":
        return ours.median, number(ours.median, ours.unit)
    if goal.kind == "each":
        worst = max(ours.good, default=math.nan)
        return worst, f"{number(worst, ours.unit)} at worst"
    assert theirs is not None
    if goal.kind == "more":
        more = ours.median - theirs.median
        return more, f"{'+' if more >= 0 else '-'}{number(abs(more), ours.unit)}"
    ratio = ours.median / theirs.median if theirs.median else math.nan
    return ratio, f"{ratio:.2f}"


def number(value: float, unit: str) -> str:
    """Return a number with three digits that count, and its unit."""
    if math.isnan(value):
        return "none"
    whole = value == 0 or abs(value) >= 100
    places = 0 if whole else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f} {unit}".strip()


def ratio_of(goal: Goal, data: Data) -> float:
    """Return what `--check` compares: the ratio of medians, of any goal that has a comparison."""
    ours, theirs = data.get((goal.case, goal.way)), data.get((goal.case, goal.beside))
    if not ours or not theirs or not theirs.median or ours.failed:
        return math.nan
    return ours.median / theirs.median


def worse(goal: Goal, now: Data, then: Data) -> tuple[str, bool] | None:
    """Return a line that compares a ratio with the one before, and whether it is worse by more than
    the margin.

    None if the numbers of then have no such ratio. A ratio that can't be had now is worse. Where
    the goal limits what is added, that has to have grown as well: with a faster engine the ratio
    alone grows.
    """
    before, here = ratio_of(goal, then), ratio_of(goal, now)
    if math.isnan(before):
        return None
    bad = not here <= before * MARGIN
    words = (
        f"{goal.case}, {goal.way} over {goal.beside}: {here:.2f}, before {before:.2f}, at most"
        f" {before * MARGIN:.2f}"
    )
    if goal.kind == "more" and not math.isnan(here):
        added, once = figure(goal, now), figure(goal, then)
        bad = bad and added.value > once.value * MARGIN
        words += f"; or {added.text}, before {once.text}"
    return words, bad
