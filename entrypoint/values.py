"""Dataclasses that cost nothing to define: as the standard library's, to people, to mypy and to its own functions.

The standard library compiles up to six functions for each class, and imports `inspect`: for our hundred classes that is
50 ms of every start. Here all classes share the same few functions. Inheritance is not supported, since we use none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, is_dataclass, replace
else:
    _MISSING = object()
    _FIELDS = "__entrypoint_fields__"

    class _Field:
        """What the class says of one of its fields."""

        __slots__ = ("compare", "default", "default_factory", "metadata", "name", "repr")

        def __init__(
            self,
            default: Any,
            default_factory: Callable[[], Any] | None = None,
            repr: bool = True,
            compare: bool = True,
            metadata: Mapping[str, Any] | None = None,
        ) -> None:
            self.name = ""
            self.default, self.default_factory = default, default_factory
            self.repr, self.compare, self.metadata = repr, compare, metadata or {}

    def field(*, default: Any = _MISSING, **options: Any) -> Any:
        """A field's default or `default_factory`, its metadata, and whether `repr` and `compare` count it."""
        return _Field(default, **options)

    def fields(value: Any) -> tuple[_Field, ...]:
        """The fields of a class, or of its instance, in order."""
        return getattr(value, _FIELDS)

    def is_dataclass(value: Any) -> bool:
        """Whether it is one, or an instance of one."""
        return hasattr(value, _FIELDS)

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy with these fields changed."""
        return type(value)(**{each.name: getattr(value, each.name) for each in fields(value)} | changes)

    def dataclass(made: type | None = None, /, *, frozen: bool = False) -> Any:
        """Make a class one: with `__init__`, `__repr__` and `__eq__`; if frozen, it has a hash and never changes."""
        if made is None:
            return lambda made: dataclass(made, frozen=frozen)
        own = tuple(_field(made, name) for name in made.__annotations__)
        setattr(made, _FIELDS, own)
        made.__match_args__ = tuple(each.name for each in own)
        made.__dataclass_fields__ = _StandardFields()
        made.__init__, made.__repr__, made.__eq__ = _init, _repr, _eq
        made.__hash__ = _hash if frozen else None
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse, _refuse
        return made

    def _field(owner: type, name: str) -> _Field:
        given = vars(owner).get(name, _MISSING)
        made = given if isinstance(given, _Field) else _Field(given)
        made.name = name
        if isinstance(made.default, (list, dict, set)):
            raise ValueError(f"{name}: all instances would share one {type(made.default).__name__}")
        if made.default is not _MISSING:
            setattr(owner, name, made.default)
        elif given is not _MISSING:
            delattr(owner, name)
        return made

    def _init(self: Any, *args: Any, **given: Any) -> None:
        own, put = fields(self), object.__setattr__  # which a frozen class cannot refuse
        if len(args) > len(own):
            raise TypeError(f"{type(self).__qualname__} takes {len(own)} values, {len(args)} were given")
        for each, value in zip(own, args):  # noqa: B905  # the others follow
            put(self, each.name, value)
        for each in own[len(args) :]:
            if each.name in given:
                value = given.pop(each.name)
            elif each.default is not _MISSING:
                value = each.default
            elif each.default_factory is not None:
                value = each.default_factory()
            else:
                raise TypeError(f"{type(self).__qualname__} needs a value for {each.name!r}")
            put(self, each.name, value)
        if given:
            raise TypeError(f"{type(self).__qualname__} takes no value, or no second one, for {next(iter(given))!r}")
        if check := getattr(self, "__post_init__", None):
            check()

    def _compared(value: Any) -> tuple[Any, ...]:
        return tuple([getattr(value, each.name) for each in fields(value) if each.compare])

    def _repr(self: Any) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({shown})"

    def _eq(self: Any, other: object) -> Any:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def _hash(self: Any) -> int:
        return hash(_compared(self))

    def _refuse(self: Any, name: str, *value: Any) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot change field {name!r}")

    class _StandardFields:
        """For the standard library's own functions: its fields of a class, made when one of them asks."""

        def __get__(self, _: object, owner: type) -> Any:
            import dataclasses

            def of(each: _Field) -> Any:
                options = {name: getattr(each, name) for name in ("repr", "compare", "metadata")}
                if each.default is not _MISSING:
                    options["default"] = each.default
                elif each.default_factory is not None:
                    options["default_factory"] = each.default_factory
                return dataclasses.field(**options)

            rows = [(each.name, owner.__annotations__[each.name], of(each)) for each in fields(owner)]
            standard = dataclasses.make_dataclass(owner.__name__, rows, kw_only=True)
            owner.__dataclass_fields__ = standard.__dataclass_fields__
            return owner.__dataclass_fields__


__all__ = ["dataclass", "field", "fields", "is_dataclass", "replace"]
