"""The kinds of fields of a probe, with their limits: what a node reads travels to worker-0."""

from __future__ import annotations

from typing import Annotated, TypeVar

from entrypoint.base.values import frozen
from entrypoint.base.wire import Length, Range

_MOST = 1 << 62
_T = TypeVar("_T")

String = Annotated[str, Length(500)]
Strings = Annotated[tuple[String, ...], Length(64)]
Number = Annotated[int, Range(-_MOST, _MOST)] | None
Decimal = Annotated[float, Range(-_MOST, _MOST)] | None
Rows = Annotated[tuple[_T, ...], Length(300)]


@frozen
class Named:
    """A name and what belongs to it."""

    name: String = ""
    value: String = ""
