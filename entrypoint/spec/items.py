"""Items: plain values that know where they stand, and the ProblemList that gathers what is wrong with them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from entrypoint.errors import Problem, SpecError
from entrypoint.model import Origin, Source
from entrypoint.secret import HIDDEN, hides
from entrypoint.text import escaped, quoted
from entrypoint.values import dataclass

_ORIGINS: tuple[Origin, ...] = ("spec", "env", "flag")  # by Place.group


@dataclass(frozen=True)
class Place:
    """Where a value stands. Its fields sort as problems are listed: files, then variables, then flags."""

    group: int  # 0 the spec file, 1 the environment, 2 the flags
    line: int = 0  # 0 outside the file
    column: int = 0
    where: str = ""  # what people read: `job.yaml:4:3`, `ENTRYPOINT_SLOTS`, `--slots`

    @property
    def source(self) -> Source:
        return Source(_ORIGINS[self.group], self.where)


@dataclass(frozen=True)
class Item:
    """A value with its place: text, None for nothing, or a list or dict of Items."""

    value: Any
    place: Place
    key: Place | None = None  # where the key stands, in a mapping

    @property
    def seen(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.value, str):
            return quoted(self.value)
        return {type(None): "nothing", list: "a list", dict: "a mapping"}[type(self.value)]


class ProblemList:
    """The problems found so far, one for each mistake."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Place, Problem]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, place: Place, path: str, what: str, seen: str = "", do: str = "", id: str = "EP100") -> None:
        """Note one problem, with its message id; what was seen at a path that names a secret is left out."""
        if hides(path, seen):
            seen = HIDDEN if seen else ""
        where, what = escaped(place.where, 200), f"{id} {what}"
        problem = Problem(where, escaped(path, 120), what, escaped(seen, 200), escaped(do, 600))
        # A mistake under an anchor is met again at every alias, each time at the same place in the file.
        mistake = (place, what) if place.group == 0 else (place, path, what, seen)
        self._found.setdefault(mistake, (place, problem))

    def error(self) -> SpecError:
        """Every problem at once, sorted by place."""
        return SpecError(
            [problem for _, problem in sorted(self._found.values(), key=lambda it: list(vars(it[0]).values()))]
        )
