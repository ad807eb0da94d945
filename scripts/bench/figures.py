"""What is computed from raw numbers: medians, ratios, intervals, and whether a goal is reached.
Nothing is timed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# by what factor a ratio may be worse than the committed one before `--check` fails
MARGIN = 1.3

# Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom; beyond the table, the
# normal one will do.
_T95 = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
    2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
)  # fmt: skip

Kind = Literal["ratio", "more", "value", "each", "each ratio", "at least", "interval"]
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
    def failed(self) -> list[str]:
        """Why runs failed."""
        return [run for run in self.runs if isinstance(run, str)]

    @property
    def median(self) -> float:
        """Of the runs that did not fail; not a number where all failed."""
        return statistics.median(self.good) if self.good else math.nan


@dataclass(frozen=True)
class Goal:
    """What a row has to reach.

    ratio       median over the median of `beside`
    more        median less the median of `beside`, in the unit of the series
    value       median
    each        the worst run
    each ratio  the worst of the ratios of a run to its neighbour `beside`
    at least    as ratio, but the limit is the least and not the most
    interval    95 % interval of the mean ratio of neighbours: its low end is not over the limit
    """

    case: str
    way: str
    beside: str  # another way of the same case; "" if the number stands alone
    kind: Kind
    limit: float

    def words(self, unit: str) -> str:
        """The limit for readers, such as "at most +0.3 s"."""
        number = f"{self.limit:g}"
        each = ", each run" if self.kind in ("each", "each ratio") else ""
        if self.kind == "more":
            return f"at most +{number} {unit}"
        if self.kind in ("value", "each"):
            return f"at most {f'{number} {unit}'.strip()}{each}"
        if self.kind == "at least":
            return f"at least {number}"
        if self.kind == "interval":
            return "within noise"
        return f"at most {number}{each}"


@dataclass(frozen=True)
class Figure:
    """A goal beside what was measured."""

    value: float  # what is compared with the limit; not a number where there is nothing to compare
    text: str
    held: bool


Data = Mapping[tuple[str, str], Series]


def by_name(series: Sequence[Series]) -> dict[tuple[str, str], Series]:
    """The series by case and way."""
    return {(each.case, each.way): each for each in series}


def pairs(ours: Series, theirs: Series) -> list[float]:
    """The ratio of each run to its neighbour; pairs in which one failed have none."""
    return [
        mine / other
        for mine, other in zip(ours.runs, theirs.runs, strict=False)
        if not isinstance(mine, str) and not isinstance(other, str) and other
    ]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by Student's t. Without two values it is boundless."""
    if len(values) < 2:
        return -math.inf, math.inf
    freedom = len(values) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else 1.96
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def figure(goal: Goal, data: Data) -> Figure:
    """What the runs say about a goal. A failed run of ours, or a series that is not there, never
    reaches it."""
    ours = data.get((goal.case, goal.way))
    theirs = data.get((goal.case, goal.beside)) if goal.beside else None
    if ours is None or (goal.beside and theirs is None):
        return Figure(math.nan, "not measured", False)
    value, text = _value(goal, ours, theirs)
    held = not ours.failed and math.isfinite(value)
    held = held and (value >= goal.limit if goal.kind == "at least" else value <= goal.limit)
    failed = f", {len(ours.failed)} of {len(ours.runs)} runs failed" if ours.failed else ""
    return Figure(value, text + failed, held)


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
    if goal.kind in ("ratio", "at least"):
        ratio = ours.median / theirs.median if theirs.median else math.nan
        return ratio, f"{ratio:.2f}"
    ratios = pairs(ours, theirs)
    if goal.kind == "each ratio":
        good = sum(each <= goal.limit for each in ratios)
        # a run without a neighbour shows nothing
        worst = max(ratios) if len(ratios) == len(ours.runs) else math.nan
        return (
            worst,
            f"{max(ratios, default=math.nan):.2f} at worst, {good} of {len(ours.runs)} within",
        )
    low, high = interval(ratios)
    mean = statistics.fmean(ratios) if ratios else math.nan
    return low, f"{mean:.3f} ({low:.3f} to {high:.3f}, {len(ratios)} pairs)"


def number(value: float, unit: str) -> str:
    """A number with three digits that count, and its unit."""
    if math.isnan(value):
        return "none"
    places = (
        0 if value == 0 or abs(value) >= 100 else max(0, 2 - math.floor(math.log10(abs(value))))
    )
    text = f"{value:.{places}f}"
    return f"{text} {unit}".strip()


def ratio_of(goal: Goal, data: Data) -> float:
    """What `--check` compares: the ratio of medians, of any goal that has a comparison."""
    ours, theirs = data.get((goal.case, goal.way)), data.get((goal.case, goal.beside))
    if not ours or not theirs or not theirs.median or ours.failed:
        return math.nan
    return ours.median / theirs.median


def worse(goal: Goal, now: Data, then: Data) -> tuple[str, bool] | None:
    """A line that compares a ratio with the one before, and whether it is worse by more than the
    margin.

    None if the numbers of then have no such ratio. A ratio that can't be had now is worse. Where
    the goal limits what is added, that has to have grown as well: with a faster engine the ratio
    alone grows.
    """
    before, here = ratio_of(goal, then), ratio_of(goal, now)
    if math.isnan(before):
        return None
    at_least = goal.kind == "at least"
    limit = before / MARGIN if at_least else before * MARGIN
    bad = math.isnan(here) or (here < limit if at_least else here > limit)
    most = "least" if at_least else "most"
    words = (
        f"{goal.case}, {goal.way} over {goal.beside}: {here:.2f}, before {before:.2f}, at {most}"
        f" {limit:.2f}"
    )
    if goal.kind == "more" and not math.isnan(here):
        added, once = figure(goal, now), figure(goal, then)
        bad = bad and added.value > once.value * MARGIN
        words += f"; or {added.text}, before {once.text}"
    return words, bad


def packed(series: Sequence[Series]) -> list[dict[str, Any]]:
    """For the file of raw numbers."""
    return [
        {"case": each.case, "way": each.way, "unit": each.unit, "runs": list(each.runs)}
        for each in series
    ]


def unpacked(given: Sequence[Mapping[str, Any]]) -> list[Series]:
    """From the file of raw numbers."""
    return [Series(each["case"], each["way"], each["unit"], tuple(each["runs"])) for each in given]
