"""Reports how a container is recognized, for `entrypoint facts`: which platforms match, the site of
the one that is taken, and the variables that it read.

A report in tests/platforms/NAME/CASE/recognized.yaml is a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from entrypoint.base import registry
from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Facts, Site
from entrypoint.base.secret import HIDDEN, hides
from entrypoint.base.values import fields, replace
from entrypoint.plan.env import installed
from entrypoint.plan.topology import site_of


class _Read(Mapping[str, str]):
    """An environment that records which of its variables were read."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.names = set[str]()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._env[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


def recognize(facts: Facts, asked: str | None) -> dict[str, Any]:
    """Return the report: all platforms that match, the one that is taken, its site or error, and
    the facts that they read.

    A secret's value is not in it. Without an explicit choice, two that match are an error here too.
    """
    env = _Read(facts.env)
    watched = replace(facts, env=env)
    report: dict[str, Any] = {
        "matches": [
            name for line in registry.matching("platforms", watched, "local") for name in line
        ]
    }
    if asked:
        report["asked"] = asked
    try:
        platform = registry.choose("platforms", asked, watched, "local")
        report["platform"] = platform.__name__.rpartition(".")[2]
        report["site"] = site(site_of(asked, watched))
    except EntrypointError as error:
        report |= {"error": str(error), "status": error.status}
    values = {
        name: HIDDEN if hides(name, value) else value
        for name in sorted(env.names)
        if (value := facts.env.get(name)) is not None
    }
    report["facts"] = {"hostname": facts.hostname, "env": values}
    if facts.files:
        report["facts"]["files"] = dict(facts.files)
    if facts.scripts:
        report["facts"]["scripts"] = list(facts.scripts)
    return report


def mpi(facts: Facts) -> dict[str, Any]:
    """Return which MPI was found, where, and the variables with which it runs; nothing if there is
    none."""
    report: dict[str, Any] = {}
    for name in ("mpirun", "mpiexec.hydra"):
        if path := facts.programs.get(name):
            report[name] = {"path": path}
            if env := {variable.name: variable.value for variable in installed(facts, name)}:
                report[name]["env"] = env
    if facts.mpi:
        report["version"] = f"Open MPI {facts.mpi}"
    return {"mpi": report} if report else {}


def site(site: Site) -> dict[str, Any]:
    """Return a site's fields that differ from their defaults, as plain lists and mappings."""
    default = Site(site.platform)
    values = {field.name: getattr(site, field.name) for field in fields(Site)}
    set_values = {name: value for name, value in values.items() if value != getattr(default, name)}
    return json.loads(json.dumps(set_values))  # type: ignore[no-any-return]


def text(report: Mapping[str, Any]) -> str:
    """Return a report as YAML."""
    return yaml.safe_dump(dict(report), sort_keys=False, allow_unicode=True, width=120)
