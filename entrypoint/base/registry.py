"""Adapters are modules: the folder's listing is the registry, the file's name is the adapter's
name."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from os import listdir
from types import ModuleType

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Access, Facts

# kind of adapters -> the package whose modules they are
PACKAGES = {
    "platforms": "entrypoint.platforms",
    "devices": "entrypoint.devices",
    "launchers": "entrypoint.launchers",
    "deploy": "entrypoint.tools.deploy",
}


def _package(kind: str) -> ModuleType:
    return importlib.import_module(PACKAGES[kind])


def _rows(kind: str) -> Mapping[str, ModuleType]:
    """Adapters that are no more than a row of data."""
    return dict(getattr(_package(kind), "rows", dict)())


def names(kind: str) -> list[str]:
    """Names of all adapters of a kind (one of PACKAGES), sorted."""
    files = {file for folder in _package(kind).__path__ for file in listdir(folder)}
    modules = [file[:-3] for file in files if file.endswith(".py") and not file.startswith("_")]
    return sorted([*modules, *_rows(kind)])


def also(kind: str) -> dict[str, str]:
    """Other names that people have for adapters of a kind, such as `gpu` for `nvidia` -> the
    adapter's own name."""
    return {alias: name for name in names(kind) for alias in getattr(load(kind, name), "ALSO", ())}


def access(device: str) -> Access:
    """Return what gives containers the cards of a device; nothing does where its adapter does not
    say."""
    return getattr(load("devices", device), "ACCESS", Access())


def load(kind: str, name: str) -> ModuleType:
    """The adapter of that name.

    Raises ConfigError when there is none.
    """
    available = names(kind)
    if name not in available:
        raise ConfigError(
            f"EP117 no such {kind.rstrip('s')}: {name}", "", f"use one of {', '.join(available)}"
        )
    return _rows(kind).get(name) or importlib.import_module(f"{PACKAGES[kind]}.{name}")


def choose(kind: str, asked: str | None, facts: Facts, fallback: str) -> ModuleType:
    """The adapter asked for; else the first that matches the facts; else `fallback`.

    Raises ConfigError when two of one line match: the message names both and the setting that
    decides.
    """
    if asked is not None:
        return load(kind, asked)
    first = next(filter(None, matching(kind, facts, fallback)), [fallback])
    if len(first) > 1:
        setting = kind.rstrip("s")
        raise ConfigError(
            f"EP200 more than one {setting} matches this container",
            ", ".join(first),
            f"set {setting}: in the spec, or ENTRYPOINT_{setting.upper()}",
        )
    return load(kind, first[0])


def matching(kind: str, facts: Facts, fallback: str) -> Iterator[list[str]]:
    """Names of the adapters that match the facts, for each layer of the package's MARKS; an earlier
    one wins.

    An adapter is loaded when its marks are there and its layer is asked for. One that is in no
    layer is always loaded.
    """
    layers = getattr(_package(kind), "MARKS", {"": {}}).values()
    known = {fallback, *(name for layer in layers for name in layer)}
    others = [name for name in names(kind) if name not in known]
    for layer in layers:
        marked = [name for name, marks in layer.items() if _is_marked(facts, marks)]
        yield [name for name in sorted([*marked, *others]) if _matches(load(kind, name), facts)]
        others = []


def _is_marked(facts: Facts, marks: Iterable[str]) -> bool:
    return any(map(facts.env.get, marks))


def _matches(adapter: ModuleType, facts: Facts) -> bool:
    marks, matches = (getattr(adapter, name, None) for name in ("MARKS", "matches"))
    return (marks is None or _is_marked(facts, marks)) and (matches is None or matches(facts))
