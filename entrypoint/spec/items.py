"""Items: plain values with their places, and the ProblemList that collects their problems."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from entrypoint.base.errors import Problem, SpecError
from entrypoint.base.model import Origin, Source
from entrypoint.base.secret import HIDDEN, hides
from entrypoint.base.text import escaped, quoted
from entrypoint.base.values import frozen

_ORIGINS: tuple[Origin, ...] = ("spec", "env", "flag")  # by Place.group


@frozen
class Place:
    """The place of a value. Its fields sort problems as they are listed: files, then variables,
    then flags."""

    group: int  # 0 the spec file, 1 the environment, 2 the flags
    line: int = 0  # 0 outside the file
    column: int = 0
    where: str = ""  # in messages: `job.yaml:4:3`, `ENTRYPOINT_SLOTS`, `--slots`

    @property
    def source(self) -> Source:
        return Source(_ORIGINS[self.group], self.where)


@frozen
class Item:
    """A value with its place: text, None for nothing, or a list or dict of Items."""

    value: Any
    place: Place
    key: Place | None = None  # the place of the key, in a mapping

    @property
    def shown(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.value, str):
            return quoted(self.value)
        return {type(None): "nothing", list: "a list", dict: "a mapping"}[type(self.value)]


class ProblemList:
    """The problems so far, one for each mistake."""

    def __init__(self) -> None:
        self._problems: dict[Hashable, tuple[Place, Problem]] = {}

    def __bool__(self) -> bool:
        return bool(self._problems)

    def add(
        self,
        place: Place,
        path: str,
        summary: str,
        detail: str = "",
        hint: str = "",
        id: str = "EP100",
    ) -> None:
        """Add a problem with its message id; the detail at a path that names a secret is hidden."""
        if hides(path, detail):
            detail = HIDDEN if detail else ""
        where = escaped(place.where, 200)
        summary = f"{id} {summary}"
        problem = Problem(
            where, escaped(path, 120), summary, escaped(detail, 200), escaped(hint, 600)
        )
        # A mistake under an anchor occurs again at every alias, each time at the same place in the
        # file.
        mistake = (place, summary) if place.group == 0 else (place, path, summary, detail)
        self._problems.setdefault(mistake, (place, problem))

    def error(self) -> SpecError:
        """Return the error with every problem, sorted by place."""
        entries = sorted(self._problems.values(), key=lambda entry: list(vars(entry[0]).values()))
        return SpecError([problem for _, problem in entries])
