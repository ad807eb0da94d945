"""Our dataclasses against the standard library's: the same class made by both does the same."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest

import entrypoint
from entrypoint.base import values


def make(by: Any, frozen: bool) -> Any:
    ours = values.frozen if frozen else values.dataclass
    decorator = ours if by is values else by.dataclass(frozen=frozen)

    @decorator
    class Point:
        """A point."""

        x: int
        y: int = 2
        tags: list[str] = by.field(default_factory=list, repr=False)
        where: str = by.field(default="")

        def __post_init__(self) -> None:
            assert self.x >= 0

    return Point


DEEDS: dict[str, Callable[[Any, Any], Any]] = {
    "positions": lambda by, P: vars(P(1, 3, ["a"], "here")),
    "names": lambda by, P: vars(P(where="here", x=1)),
    "defaults": lambda by, P: vars(P(1)),
    "order of fields": lambda by, P: list(vars(P(y=3, x=1))),
    "a default of its own": lambda by, P: P(1).tags is not P(1).tags,
    "a default on the class": lambda by, P: (P.y, hasattr(P, "x")),
    "repr": lambda by, P: repr(P(1)).rpartition(".")[2],
    "equal": lambda by, P: (P(1) == P(1), P(1) == P(2), P(1, where="a") == P(1), P(1) == (1, 2, [], "")),
    "hash": lambda by, P: hash(P(1, tags=())),
    "set": lambda by, P: setattr(P(1), "x", 2),
    "delete": lambda by, P: delattr(P(1), "x"),
    "replace": lambda by, P: vars(by.replace(P(1, where="a"), y=5)),
    "replace an unknown one": lambda by, P: by.replace(P(1), z=5),
    "is one": lambda by, P: (by.is_dataclass(P), by.is_dataclass(P(1)), by.is_dataclass(int)),
    "fields": lambda by, P: [each.name for each in by.fields(P(1))],
    "match": lambda by, P: P.__match_args__,
    "copy": lambda by, P: vars(copy.deepcopy(P(1, tags=["a"]))),
    "too few": lambda by, P: P(),
    "too many": lambda by, P: P(1, 2, [], "", 5),
    "unknown": lambda by, P: P(1, z=5),
    "twice": lambda by, P: P(1, x=1),
    "checked": lambda by, P: P(-1),
}  # fmt: skip


def seen(deed: Callable[[Any, Any], Any], by: Any, frozen: bool) -> Any:
    try:
        return deed(by, make(by, frozen))
    except AttributeError:
        return AttributeError  # the standard library's FrozenInstanceError is one
    except (TypeError, AssertionError) as error:
        return type(error)


@pytest.mark.promise(
    "our dataclasses do what the standard library's do",
    control="the standard library, in the same test",
)
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("deed", DEEDS)
def test_it_does_what_the_standard_library_s_does(deed: str, frozen: bool) -> None:
    expected = seen(DEEDS[deed], dataclasses, frozen)
    assert seen(DEEDS[deed], values, frozen) == expected


def test_a_default_that_all_instances_would_share_is_refused() -> None:
    for by in (dataclasses, values):
        with pytest.raises(ValueError, match="list"):

            @by.dataclass  # type: ignore[attr-defined]
            class Shared:
                names: list[str] = []  # noqa: RUF012


def test_a_value_survives_pickling() -> None:
    from entrypoint.base.model import Outcome

    assert pickle.loads(pickle.dumps(Outcome(75, "lost"))) == Outcome(75, "lost")


def test_none_of_ours_inherits_or_needs_what_is_not_supported() -> None:
    checked = 0
    for module in pkgutil.walk_packages(entrypoint.__path__, "entrypoint."):
        if module.name.endswith("__main__"):
            continue
        for name, each in vars(importlib.import_module(module.name)).items():
            if (
                isinstance(each, type)
                and each.__module__ == module.name
                and values.is_dataclass(each)
            ):
                checked += 1
                above = [base for base in each.__mro__[1:] if values.is_dataclass(base)]
                assert not above, f"{module.name}.{name} inherits fields"
                kinds = " ".join(map(str, vars(each)["__annotations__"].values()))
                assert not re.search("ClassVar|InitVar|KW_ONLY", kinds), f"{module.name}.{name}"
                written = [
                    "__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__",
                ]  # fmt: skip
                own = {it for it in written if it in vars(each)}
                theirs = {
                    it for it in own if getattr(vars(each)[it], "__module__", "") == module.name
                }
                assert not theirs, f"{module.name}.{name} has its own, which would be replaced"
    assert checked > 80
