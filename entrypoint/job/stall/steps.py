"""The last step of each rank (`stall.line`), as the nodes report it, and which ranks are behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrypoint.base.text import count, duration
from entrypoint.base.values import frozen

NodeName = Callable[[int], str]

_NAMED = 4  # ranks that are named
_LATER = 0.1  # of the limit: ranks whose last lines are closer have stopped together


@frozen
class _Step:
    number: int
    when: float  # when it was printed, by the leader's clock


class StepTable:
    """A node speaks for its own ranks only: what it says replaces what it has said before."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int], _Step] = {}  # (node, rank)
        self._emptied = 0.0  # when no rank with a step was left

    def take(self, node: int, rows: Sequence[tuple[int, int, float]], now: float) -> None:
        """Note the ranks of a node: number, step, and seconds since it was printed."""
        for key in [key for key in self._steps if key[0] == node]:
            del self._steps[key]
        for rank, number, age in rows:
            self._steps[node, rank] = _Step(number, now - max(0.0, age))
        if not self._steps:
            self._emptied = now

    def reached(self) -> int:
        """Return the step that more than half of the ranks have reached, as far as they print any;
        -1 if none does."""
        numbers = sorted((step.number for step in self._steps.values()), reverse=True)
        return numbers[len(numbers) // 2] if numbers else -1

    def idle(self, now: float, since: float) -> float:
        """Return the seconds without a line of that rank which has been silent for the longest;
        `since` is when the programs were started. Once all have ended, the time counts anew."""
        latest = max(since, self._emptied)
        return now - min((step.when for step in self._steps.values()), default=latest)

    def behind(self, limit: float) -> list[tuple[int, int]]:
        """Return the ranks that have stopped at a lower step than others, and before them, those at
        the lowest step first."""
        highest = max((step.number for step in self._steps.values()), default=-1)
        newest = max((step.when for step in self._steps.values()), default=0.0)
        ranks = sorted((step.number, key, step.when) for key, step in self._steps.items())
        return [
            key
            for number, key, when in ranks
            if number < highest and newest - when >= _LATER * limit
        ]

    def words(self, now: float, limit: float, since: float, host: NodeName) -> str:
        """Return which ranks have stalled and which are behind; `host` names a node."""
        total = len(self._steps)
        stalled = sum(now - step.when >= limit for step in self._steps.values())
        few = f"{stalled} of {count(total, 'rank')} printed no line"
        who = "no rank has printed a line" if stalled == total else few
        text = f"{who} that stall.line matches for {duration(self.idle(now, since))}"
        return f"{text}; {self._places(self.behind(limit), host)}" if total else text

    def _places(self, behind: Sequence[tuple[int, int]], host: NodeName) -> str:
        others = [step.number for key, step in self._steps.items() if key not in behind]
        lowest, highest = min(others), max(others)
        if not behind:
            return f"all are at {f'{lowest} to ' * (lowest < highest)}{highest}"
        names = [f"{_who(*key, host)} is at {self._steps[key].number}" for key in behind[:_NAMED]]
        if len(behind) > _NAMED:
            names.append(f"{len(behind) - _NAMED} more are behind")
        return f"{', '.join(names)}; the others are at {highest}"


def _who(node: int, rank: int, host: NodeName) -> str:
    return f"rank {rank} on {host(node)}" if rank >= 0 else f"a rank on {host(node)}"
