"""Dataclasses that cost nothing to define: what we use of the standard library's, with one set of
functions for all.

The standard library compiles up to six functions for each class and imports `inspect`, which took
each start of a worker 36 ms of CPU. mypy sees the standard library's; its own functions, such as
asdict(), do not know these classes.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing it from `typing` is slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, field, fields, is_dataclass, replace
    from typing import Any, TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def frozen(made: type[T]) -> type[T]:
        """Make a class one whose fields stay as they are."""
        return made
else:
    _MISSING = object()
    _FIELDS = "__entrypoint_fields__"

    class _Field:
        """The options of one field of a class."""

        def __init__(
            self,
            *,
            default: Any = _MISSING,
            default_factory: Callable[[], Any] | None = None,
            repr: bool = True,
        ) -> None:
            if isinstance(default, (list, dict, set)):
                raise ValueError(
                    f"all instances would share one {type(default).__name__}: use default_factory"
                )
            self.name = ""
            self.default = default
            self.default_factory = default_factory
            self.repr = repr

        def value(self) -> Any:
            """Return what the field holds where nothing was given."""
            if self.default_factory is not None:
                return self.default_factory()
            if self.default is _MISSING:
                raise TypeError(f"{self.name} has no default: it needs a value")
            return self.default

    field = _Field

    def fields(value: Any) -> tuple[_Field, ...]:
        """The fields of a class, or of its instance, in order."""
        return getattr(value, _FIELDS)

    def is_dataclass(value: Any) -> bool:
        """Return whether it is one, or an instance of one."""
        return hasattr(value, _FIELDS)

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy with these fields changed."""
        return type(value)(**vars(value) | changes)

    def dataclass(made: type) -> Any:
        """Make a class one: with `__init__`, `__repr__` and `__eq__`, but without a hash."""
        declared = []
        for name in made.__annotations__:
            default = vars(made).get(name, _MISSING)
            declared.append(default if isinstance(default, _Field) else _Field(default=default))
            declared[-1].name = name
        setattr(made, _FIELDS, tuple(declared))
        made.__match_args__ = tuple(made.__annotations__)
        made.__init__, made.__repr__, made.__eq__ = _init, _repr, _eq
        made.__hash__ = None
        return made

    def frozen(made: type) -> Any:
        """Make a class one whose instances never change, and have a hash."""
        made = dataclass(made)
        made.__hash__ = _hash
        made.__setattr__, made.__delattr__ = _refuse, _refuse
        return made

    def _init(self: Any, *args: Any, **named: Any) -> None:
        # written to directly, since a frozen class refuses its attributes
        attributes = vars(self)
        if len(args) == len(self.__match_args__) and not named:  # quickly: most messages are so
            attributes.update(zip(self.__match_args__, args, strict=True))
        else:
            _fill(self, attributes, args, named)
        if check := getattr(self, "__post_init__", None):
            check()

    def _fill(self: Any, attributes: dict[str, Any], args: tuple[Any, ...], named: Any) -> None:
        declared = fields(self)
        for item, value in zip(declared, args, strict=False):  # the others follow
            attributes[item.name] = value
        for item in declared[len(args) :]:
            attributes[item.name] = named.pop(item.name) if item.name in named else item.value()
        if named or len(args) > len(declared):
            actual = f"{len(args)} values{''.join(f', and {name}' for name in named)}"
            raise TypeError(
                f"{type(self).__qualname__} takes {', '.join(self.__match_args__)}, once each; not"
                f" {actual}"
            )

    def _compared(value: Any) -> tuple[Any, ...]:
        return tuple([getattr(value, item.name) for item in fields(value)])

    def _repr(self: Any) -> str:
        shown = ", ".join(
            f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr
        )
        return f"{type(self).__qualname__}({shown})"

    def _eq(self: Any, other: object) -> Any:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def _hash(self: Any) -> int:
        return hash(_compared(self))

    def _refuse(self: Any, name: str, *value: Any) -> None:
        raise AttributeError(f"{type(self).__qualname__}.{name} never changes")
