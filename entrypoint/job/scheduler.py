"""The scheduler that all parts of a node's machine share: the current time, the deadlines, and the
list of actions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Outcome
from entrypoint.job import actions

Then = Callable[[], object]


class Scheduler:
    """Collects actions while one event is handled, and keeps deadlines (seconds on its driver's
    clock)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[object, tuple[float, Then]] = {}
        self._numbers = count()
        self._actions: list[Any] = []
        self._over = False

    @property
    def wake(self) -> float:
        """Return when the first deadline is; infinity where there is none."""
        return min([when for when, _ in self._due.values()], default=math.inf)

    def step(self, deal: Then, give_up: Callable[[Outcome], None], now: float) -> list[Any]:
        """Run `deal`, then everything that is due; an error in it goes to `give_up`. Returns the
        actions."""
        if self._over:
            return []
        self.now = now
        self._actions = []
        then: Then | None = deal
        while then is not None:
            try:
                then()
            except EntrypointError as error:
                give_up(error.outcome)
            then = self._next()
        return self._actions

    def _next(self) -> Then | None:
        """Take the first deadline that has come; None if none has."""
        if self.wake > self.now:
            return None
        first = min(self._due, key=lambda name: self._due[name][0])
        return self._due.pop(first)[1]

    def act(self, action: Any) -> None:
        """Have this done."""
        self._actions.append(action)

    def log(self, text: str) -> None:
        """Queue a log line."""
        self.act(actions.Log(text))

    def at(self, when: float, then: Then, name: object = None) -> None:
        """Have `then` called at that time. A named deadline replaces the one of that name, and can
        be dropped."""
        self._due[next(self._numbers) if name is None else name] = (when, then)

    def after(self, seconds: float, then: Then, name: object = None) -> None:
        """Have `then` called after that time."""
        self.at(self.now + seconds, then, name)

    def drop(self, name: object) -> None:
        """Cancel a named deadline."""
        self._due.pop(name, None)

    def end(self, outcome: Outcome) -> None:
        """The last action; nothing is due any more."""
        self._over = True
        self._due.clear()
        self.act(actions.EndNode(outcome))
