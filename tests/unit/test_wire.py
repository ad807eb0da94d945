"""JSON of another process -> values: what the annotations allow, and where what they do not allow
stands."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

import entrypoint
from entrypoint.base.text import from_json
from entrypoint.base.values import frozen, is_dataclass
from entrypoint.base.wire import Invalid, Length, Range, _checks, one_of, read, to_json
from tests import table

TABLE = table("tests/tables/wire.yaml")

Name = Annotated[str, Length(8)]


@frozen
class Inner:
    name: Name = ""
    sizes: Annotated[tuple[Annotated[int, Range(0, 9)], ...], Length(3)] = ()


@frozen
class Outer:
    colour: Annotated[str, one_of("red", "blue")]
    share: Annotated[float, Range(-1, 1)] | None
    on: bool
    pair: tuple[Name, Annotated[int, Range(1, 2)]] | None = None
    inner: Inner = Inner()
    rows: Annotated[tuple[Inner, ...], Length(2)] = ()
    by_name: Annotated[Mapping[Name, Inner], Length(2)] | None = None


GOOD: dict[str, Any] = {"colour": "red", "share": None, "on": True}


def test_what_is_written_is_read_as_it_was() -> None:
    inner = Inner("a", (1, 2))
    value = Outer("blue", 0.5, False, ("b", 2), inner, (inner, Inner()), {"c": inner})
    assert read(Outer, from_json(to_json(value))) == value
    assert read(Outer, {**GOOD, "of_a_later_version": []}) == Outer("red", None, True)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [*TABLE["refused"], ({"share": 10**400}, "share: not a number from -1 to 1")],
)
def test_what_is_not_allowed_is_refused_with_its_path(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(Outer, GOOD | change)
    assert str(caught.value) == wrong
    with pytest.raises(Invalid) as caught:
        read(Outer, GOOD | change, "record")
    assert str(caught.value) == f"record.{wrong}"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(Invalid, match=r"^share: is missing$"):
        read(Outer, {"colour": "red"})
    with pytest.raises(Invalid, match=r"^record: not an object$"):
        read(Outer, "x", "record")


def test_a_text_is_one_line_and_cut() -> None:
    assert read(Inner, {"name": "a\nb\x1b[2J\x07" + "c" * 100}).name == "a b\ufffdc..."
    assert list(read(Outer, GOOD | {"by_name": {"a\nb": {}}}).by_name or ()) == ["a b"]


@pytest.mark.parametrize(
    "kind", [int, float, str, tuple[Name, ...], Mapping[str, Name], list[Name], Any]
)
def test_a_field_without_a_limit_is_an_error_of_ours(kind: Any) -> None:
    @frozen
    class Open:
        field: int

    Open.__annotations__["field"] = kind
    with pytest.raises((AttributeError, KeyError)):
        read(Open, {"field": 1})


def test_every_class_that_arrives_from_elsewhere_has_limits() -> None:
    """Those of a module that uses wire.py: none waits for its first message to show that it has
    none."""
    checked = 0
    for module in pkgutil.walk_packages(entrypoint.__path__, "entrypoint."):
        if module.name.endswith(("__main__", "wire")):
            continue
        names = vars(importlib.import_module(module.name))
        limits = [each for value in names.values() for each in getattr(value, "__metadata__", ())]
        uses_wire = names.get("Range") is Range or names.get("Length") is Length
        if uses_wire or any(isinstance(each, Range | Length) for each in limits):
            for each in names.values():
                if isinstance(each, type) and each.__module__ == module.name and is_dataclass(each):
                    assert _checks(each).keys() == each.__annotations__.keys()
                    checked += 1
    assert checked > 40
