"""The rows of the benchmarks, and where their runs are kept while one goes on. A run that fails is
kept as such, with its reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .engine import Engine, Failed, Tree
from .figures import Goal, Run, number

FAILURES = (Failed, AssertionError, OSError, subprocess.SubprocessError, ValueError, LookupError)


def reason(error: BaseException) -> str:
    """Return why a run failed, on one line."""
    return " ".join(str(error).split())[-300:] or type(error).__name__


@dataclass
class Table:
    """The runs of one row, in the order in which they are made; each is printed at once."""

    engine: Engine
    trees: Sequence[Tree]  # what is measured: this checkout, then older ones
    runs: int
    quick: bool = False  # the smallest case alone
    kept: dict[tuple[str, str, str], list[Run]] = field(default_factory=dict)

    def sizes(self, *all_sizes: int) -> tuple[int, ...]:
        """Return all of them, or in a quick run the first alone."""
        return all_sizes[:1] if self.quick else all_sizes

    def add(self, case: str, way: str, unit: str, run: Run) -> None:
        """Keep what one run gave, to the microsecond where it is seconds."""
        run = run if isinstance(run, str) else round(run, 6)
        self.kept.setdefault((case, way, unit), []).append(run)
        shown = f"FAILED: {run}" if isinstance(run, str) else number(run, unit)
        print(f"  {case}, {way}: {shown}", file=sys.stderr, flush=True)

    def take(
        self, units: Mapping[str, str], way: str, run: Callable[..., Sequence[float]], *given: Any
    ) -> None:
        """Make one run, and keep its number of each case. If it fails, all have failed."""
        found: Sequence[Run]
        try:
            found = run(*given)
        except FAILURES as error:
            found = [reason(error)] * len(units)
        for (case, unit), each in zip(units.items(), found, strict=True):
            self.add(case, way, unit, each)

    def series(self) -> list[dict[str, Any]]:
        """Return all runs so far, for the file of raw numbers."""
        return [
            {"case": case, "way": way, "unit": unit, "runs": list(runs)}
            for (case, way, unit), runs in self.kept.items()
        ]


@dataclass(frozen=True)
class Row:
    """One row of the table: how it is measured, how often by default, and what it has to reach.
    docs/performance.md says how it is measured in words."""

    name: str
    measure: Callable[[Table], None]
    runs: int
    goals: tuple[Goal, ...]
    quick: int = 0  # runs in `scripts/bench/run --check`; 0: it has no part in it
