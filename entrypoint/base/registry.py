"""Adapters are modules: the folder's listing is the registry, the file's name is the adapter's
name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from os import listdir
from types import ModuleType

from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Access, Facts

# name of an adapter -> variables, one of which is set where it is the one
Marks = dict[str, tuple[str, ...]]

# kind of adapters -> the package whose modules they are
PACKAGES = {
    "platforms": "entrypoint.platforms",
    "devices": "entrypoint.devices",
    "launchers": "entrypoint.launchers",
    "deploy": "entrypoint.tools.deploy",
}


def _package(kind: str) -> ModuleType:
    return importlib.import_module(PACKAGES[kind])


def names(kind: str) -> list[str]:
    """Names of all adapters of a kind (one of PACKAGES), sorted."""
    files = {file for folder in _package(kind).__path__ for file in listdir(folder)}
    return sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_"))


def also(kind: str) -> dict[str, str]:
    """Other names that people have for adapters of a kind, such as `gpu` for `nvidia` -> the
    adapter's own name."""
    return {alias: name for name in names(kind) for alias in getattr(load(kind, name), "ALSO", ())}


def access(device: str) -> Access:
    """What gives containers the cards of a device; nothing does where its adapter does not say."""
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
    return importlib.import_module(f"{PACKAGES[kind]}.{name}")


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
    """Names of the adapters that match the facts, for each line of the package's MARKS; an earlier
    line wins.

    An adapter is loaded when its marks are there and its line is asked for.
    """
    lines: tuple[Marks, ...] = getattr(_package(kind), "MARKS", ({},))
    unmarked = [
        name for name in names(kind) if name != fallback and not any(name in line for line in lines)
    ]
    for line in lines:
        marked = [name for name, marks in line.items() if any(map(facts.env.get, marks))]
        found = sorted([*marked, *unmarked])
        yield [name for name in found if getattr(load(kind, name), "matches", bool)(facts)]
        unmarked = []
