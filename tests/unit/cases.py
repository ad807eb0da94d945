"""A folder is a case: tests/<kind>/<adapter>/<case>/facts.yaml and expect.yaml, collected, no code
for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint import registry
from entrypoint.model import Facts

ROOT = Path(__file__).parents[1]


def collect(kind: str) -> list[Any]:
    """One parameter set for each folder: adapter, folder."""
    return [
        pytest.param(folder.parent.name, folder, id=f"{folder.parent.name}/{folder.name}")
        for folder in sorted((ROOT / kind).glob("*/*"))
        if folder.is_dir()
    ]


def read_facts(folder: Path) -> Facts:
    """The Facts of facts.yaml; what it leaves out is a plain container."""
    return as_facts(yaml.safe_load((folder / "facts.yaml").read_text(encoding="utf-8")) or {})


def as_facts(given: dict[str, Any]) -> Facts:
    """The Facts with these fields; what is left out is a plain container."""
    given = dict(given)
    env = given.pop("env", {})
    assert all(isinstance(value, str) for value in env.values()), "quote the values in facts.yaml"
    for many in ("device_files", "scripts"):
        given[many] = tuple(given.get(many, ()))
    plain = {
        "hostname": "container",
        "cwd": "/job",
        "uid": 1000,
        "user": "ma-user",
        "home": "/home/ma-user",
    }
    return Facts(**{**plain, **given}, env=env)


def read_expected(folder: Path) -> dict[str, Any]:
    """What expect.yaml says."""
    expected: dict[str, Any] = yaml.safe_load((folder / "expect.yaml").read_text(encoding="utf-8"))
    return expected


def chosen(kind: str, facts: Facts, fallback: str) -> str:
    """The adapter that the registry takes for these facts when nobody asked for one."""
    return registry.choose(kind, None, facts, fallback).__name__.rpartition(".")[2]
