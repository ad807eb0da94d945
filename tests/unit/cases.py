"""A folder is a case: tests/<kind>/<adapter>/<case>/facts.yaml and expect.yaml, collected, no code
for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint.base import registry
from entrypoint.base.model import Device, Facts, Plan, Site
from entrypoint.base.values import replace
from entrypoint.plan import settle, topology
from entrypoint.spec import load

ROOT = Path(__file__).parents[1]
FACTS = Facts({}, "a", "/job", 1000, "ma-user", "/home/ma-user")  # node 0 of the hosts a, b


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


def planned(
    text: str, env: Mapping[str, str] | None = None, cards: int = 0, here: Facts = FACTS
) -> Plan:
    """The plan of a job on one node of no platform; its command is train.py if none is given."""
    text += "" if "command:" in text else "\ncommand: [train.py]\n"
    spec, here = load(text, "job.yaml", env or {}, {}), replace(here, env=env or here.env)
    device = Device("nvidia" if cards else "cpu", cards, f"{cards} cards")
    return settle(spec, here, topology.build(spec, here, Site("local"), device))
