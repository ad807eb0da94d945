"""The place of an attempt among those of the job: the value that nodes exchange."""

# Without `from __future__ import annotations`: wire.py reads the annotations as values.
from typing import Annotated

from entrypoint.base.values import frozen
from entrypoint.base.wire import Range

_MOST = 1 << 31  # attempts
_Count = Annotated[int, Range(0, _MOST)]


@frozen
class History:
    """The place of an attempt among those of the job.

    attempt: Its number, from 1.
    without_progress: Attempts just before it, one after the other, that made no progress.
    step: The last training step that an earlier attempt has reached; -1 if that is unknown.
    leaves: Attempts before it that ended since a node left: they do not count as restarts.
    earlier: How often the scheduler had started the job again before the first of these attempts.
    """

    attempt: Annotated[int, Range(1, _MOST)] = 1
    without_progress: _Count = 0
    step: Annotated[int, Range(-1, 1 << 53)] = -1
    leaves: _Count = 0
    earlier: _Count = 0

    @property
    def number(self) -> int:
        """The number that users know the attempt by."""
        return self.earlier + self.attempt

    def most(self, other: "History") -> "History":
        """Return the one with more attempts, with more progress in them, and with fewer that do not
        count."""
        return max(
            (self, other), key=lambda it: (it.attempt, -it.without_progress, it.step, -it.leaves)
        )

    def next(
        self, has_started: bool, has_progressed: bool, step: int, has_left: bool = False
    ) -> "History":
        """Return the history of the attempt that follows. One that has started nothing, or that a
        node has left, tells nothing about progress."""
        is_without = has_started and not has_left
        without = 0 if has_progressed else self.without_progress + is_without
        step, leaves = max(self.step, step), self.leaves + has_left
        return History(self.attempt + 1, without, step, leaves, self.earlier)

    def attempts(self, restarts: int) -> int:
        """Return how many attempts the job can have by now, with so many restarts."""
        return restarts + 1 + self.leaves


FIRST = History()
