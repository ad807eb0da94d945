"""The last step of each rank (`stall.line`), as the nodes report it, and which ranks are behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrypoint.text import count, duration
from entrypoint.values import dataclass

_NAMED = 4  # ranks that are named
_DIGITS = 15  # of a step that is compared as a number


@dataclass(frozen=True)
class _Step:
    text: str
    when: float  # when it was printed, by the leader's clock

    @property
    def number(self) -> int | None:
        """Return the step as a number, if it is one."""
        return step_number(self.text)


def step_number(text: str) -> int | None:
    """Return a step as a number, if it is one."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return int(text) if is_number else None


class StepTable:
    """A node speaks for its own ranks only: what it says replaces what it has said before.

    `furthest` is the highest step of the attempt as a number, `printed` the time of the last line,
    by the clock of the machine; both are None if no rank has printed one.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[int, int], _Step] = {}  # (node, rank)
        self._emptied = 0.0  # when no rank with a step was left
        self.furthest: int | None = None
        self.printed: float | None = None

    def take(self, node: int, rows: Sequence[tuple[int, str, float]], now: float) -> None:
        """Note the ranks of a node: number, step, and seconds since it was printed."""
        for key in [key for key in self._steps if key[0] == node]:
            del self._steps[key]
        for rank, text, age in rows:
            step = _Step(text, now - max(0.0, age))
            self._steps[node, rank] = step
            self.printed = max(step.when, self.printed or step.when)
            if step.number is not None:
                self.furthest = max(step.number, self.furthest or 0)
        if not self._steps:
            self._emptied = now

    def lose(self, node: int, now: float) -> None:
        """Forget the ranks of a node."""
        self.take(node, (), now)

    def idle(self, now: float, since: float) -> float:
        """Return the seconds without a line of that rank which has been silent for the longest;
        `since` is when the programs were started. Once all have ended, the time counts anew."""
        latest = max(since, self._emptied)
        return now - min((step.when for step in self._steps.values()), default=latest)

    def words(self, now: float, limit: float, since: float, host: Callable[[int], str]) -> str:
        """Return which ranks have stalled and which are behind; `host` names a node."""
        idle = duration(self.idle(now, since))
        if not self._steps:
            return f"no rank has printed a line that stall.line matches for {idle}"
        stalled = [key for key, step in self._steps.items() if now - step.when >= limit]
        total = len(self._steps)
        if len(stalled) == total:
            text = f"no rank has printed a line that stall.line matches for {idle}"
        else:
            text = (
                f"{len(stalled)} of {count(total, 'rank')} printed no line that stall.line matches"
                f" for {idle}"
            )
        is_text = any(step.number is None for step in self._steps.values())
        behind = self._behind() or (stalled if is_text and len(stalled) < total else ())
        return f"{text}; {self._named(behind, host)}"

    def _behind(self) -> list[tuple[int, int]]:
        """Return the ranks whose step is a lower number than that of others."""
        numbers = {key: step.number for key, step in self._steps.items()}
        highest = max((number for number in numbers.values() if number is not None), default=None)
        if highest is None:
            return []
        return [key for key, number in numbers.items() if number is not None and number < highest]

    def _named(self, behind: Sequence[tuple[int, int]], host: Callable[[int], str]) -> str:
        last = self._steps[max(self._steps, key=self._progress)].text
        if not behind:
            return f"all are at {last}"
        by_progress = sorted(behind, key=lambda key: (self._progress(key), key))
        names = [
            f"{_who(*key, host)} is at {self._steps[key].text}" for key in by_progress[:_NAMED]
        ]
        if len(behind) > _NAMED:
            names.append(f"{len(behind) - _NAMED} more are behind")
        others = f"; the others are at {last}" if len(behind) < len(self._steps) else ""
        return f"{', '.join(names)}{others}"

    def _progress(self, key: tuple[int, int]) -> tuple[int, float]:
        step = self._steps[key]
        return (-1 if step.number is None else step.number, step.when)


def _who(node: int, rank: int, host: Callable[[int], str]) -> str:
    return f"rank {rank} on {host(node)}" if rank >= 0 else f"a rank on {host(node)}"
