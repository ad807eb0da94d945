"""JSON <-> frozen values: the annotations of the fields say what another process may send.

    @frozen
    class RankEnd:
        rank: Annotated[int, Range(0, 1023)]
        tail: Annotated[tuple[Annotated[str, Length(1000)], ...], Length(20)]
        node: Named | None = None

A field without a default is required; names that a class does not have are ignored. Every number,
text and list has a limit, and JSON is read no deeper than the classes nest. Annotations are
resolved when a class is read for the first time, so that a start pays only for those that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from entrypoint.base.text import one_line
from entrypoint.base.values import frozen, is_dataclass

T = TypeVar("T")
Check = Callable[[Any], Any]  # a JSON value -> the value of the field; raises Invalid


class Invalid(Exception):
    """Raised for data from another process that is not as expected. Safe to print: nothing of the
    data is in it but in `value`."""

    def __init__(self, why: str, value: Any = None) -> None:
        super().__init__(why)
        self.why = why
        self.value = value
        self.path = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.why}" if self.path else self.why


@frozen
class Range:
    """The limits of an int or a float."""

    least: float
    most: float


@frozen
class Length:
    """The most items of a tuple or a Mapping, or characters of a str, which is made one line and
    cut."""

    most: int


def read(kind: type[T], value: Any, name: str = "") -> T:
    """Return a JSON value as one of this kind. Raises Invalid; its path begins with `name`."""
    try:
        made: T = _object(kind, value)
    except Invalid as error:
        error.path = f"{name}{error.path}".removeprefix(".")
        raise
    return made


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, in which values of our classes may be anywhere."""
    text: str = _encoder(indent).encode(value)
    return text


@cache
def _encoder(indent: int | None) -> Any:
    """Return an encoder, which takes longer to make than to encode a short message."""
    import json  # slow to import, and most starts write none

    return json.JSONEncoder(default=vars, indent=indent)


# --------------------------------------------------------------------------------------------------
# Checks, which stand in an annotation instead of limits where those do not suffice: Annotated[str,
# one_of("a", "b")]


def require(why: str, holds: Callable[[Any], Any]) -> Check:
    """Return a check that takes a value for which this `holds` as it is; `why` others are
    refused."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise Invalid(why, value)
        return value

    return check


json_object = require("not an object", lambda value: isinstance(value, dict))  # a check, too


def one_of(*names: str) -> Check:
    """Return a check that takes these names."""
    return require(f"none of {', '.join(names)}", lambda value: value in names)


def _whole(limit: Range) -> Check:
    wrong = f"not a whole number from {limit.least} to {limit.most}"
    return require(wrong, lambda value: type(value) is int and limit.least <= value <= limit.most)


def _number(limit: Range) -> Check:
    wrong = f"not a number from {limit.least:g} to {limit.most:g}"  # as NaN is, too
    return require(
        wrong, lambda value: type(value) in (int, float) and limit.least <= value <= limit.most
    )


def _text(limit: Length) -> Check:
    is_text, most = require("not a text", lambda value: isinstance(value, str)), limit.most
    return lambda value: one_line(is_text(value), most)


def _truth(_: None) -> Check:
    return require("neither true nor false", lambda value: isinstance(value, bool))


_SCALARS: Mapping[type, Callable[[Any], Check]] = {
    int: _whole,
    float: _number,
    str: _text,
    bool: _truth,
}


def _list(check: Check, limit: Length) -> Check:
    return _items(f"at most {limit.most}", lambda number: number <= limit.most, repeat(check))


def _row(checks: tuple[Check, ...]) -> Check:
    return _items(str(len(checks)), lambda number: number == len(checks), checks)


def _mapping(name: Check, check: Check, limit: Length) -> Check:
    pairs = _list(_row((name, check)), limit)
    return lambda value: dict(pairs(list(json_object(value).items())))


def _items(most: str, fits: Callable[[int], bool], checks: Iterable[Check]) -> Check:
    """Return the check of a list of so many items, of which `checks` has one each."""
    is_list = require(
        f"not a list of {most}", lambda value: isinstance(value, (list, tuple)) and fits(len(value))
    )

    def check(value: Any) -> tuple[Any, ...]:
        items = is_list(value)
        taken: list[Any] = []
        try:
            for check_item, item in zip(checks, items):  # noqa: B905  # one may be for all
                taken.append(check_item(item))
        except Invalid as error:
            error.path = f"[{len(taken)}]{error.path}"
            raise
        return tuple(taken)

    return check


def _object(kind: Any, value: Any) -> Any:
    taken: dict[str, Any] = {}
    entries, name = json_object(value), ""
    try:
        for name, check in _checks(kind).items():
            if name in entries:
                taken[name] = check(entries[name])
            elif not hasattr(kind, name):
                raise Invalid("is missing", entries)
    except Invalid as error:
        error.path = f".{name}{error.path}"
        raise
    return kind(**taken)


@cache
def _checks(kind: type) -> dict[str, Check]:
    return {name: _check(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _check(hint: Any, limit: Any = None) -> Check:
    """Return the check of what is annotated so."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        return _check(*parts)
    if kind is Literal:
        return one_of(*parts)
    if callable(limit):
        check: Check = limit
        return check
    if kind in (Union, UnionType):
        (check,) = (_check(part) for part in parts if part is not NoneType)
        return lambda value: None if value is None else check(value)
    if kind is tuple and parts[-1] is not ...:
        return _row(tuple(map(_check, parts)))
    if kind is tuple:
        return _list(_check(parts[0]), limit)
    if kind is Mapping:
        return _mapping(_check(parts[0]), _check(parts[1]), limit)
    return partial(_object, kind) if is_dataclass(kind) else _SCALARS[kind](limit)
