"""What `entrypoint facts` prints: which platforms match this container, what the winner says, and by which variables.

In tests/platforms/NAME/CASE/seen.yaml this text is a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from entrypoint import registry
from entrypoint.errors import EntrypointError
from entrypoint.model import Facts, Site
from entrypoint.secret import HIDDEN, hides
from entrypoint.values import fields, replace


class _Read(Mapping[str, str]):
    """An environment that notes which of its variables were looked at."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env, self.names = env, set[str]()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._env[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


def seen(facts: Facts, asked: str | None) -> dict[str, Any]:
    """What platforms say: all that match, the one that is taken, its site or error, and the facts that they looked at.

    A secret's value is not in it. Without an explicit choice, two that match are an error here too.
    """
    env = _Read(facts.env)
    watched = replace(facts, env=env)
    found: dict[str, Any] = {
        "matches": [name for line in registry.matching("platforms", watched, "local") for name in line]
    }
    if asked:
        found["asked"] = asked
    try:
        platform = registry.choose("platforms", asked, watched, "local")
        found["platform"] = platform.__name__.rpartition(".")[2]
        found["site"] = site(platform.site(watched))
    except EntrypointError as error:
        found |= {"error": str(error), "status": error.status}
    used = {
        name: HIDDEN if hides(name, facts.env[name]) else facts.env[name]
        for name in sorted(env.names)
        if name in facts.env
    }
    found["facts"] = {"hostname": facts.hostname, "env": used}
    if facts.files:
        found["facts"]["files"] = dict(facts.files)
    if facts.scripts:
        found["facts"]["scripts"] = list(facts.scripts)
    return found


def site(found: Site) -> dict[str, Any]:
    """A site's fields that differ from what they are where a platform says nothing, as plain lists and mappings."""
    known = {each.name: getattr(found, each.name) for each in fields(Site)}
    plain = Site(platform=found.platform, hostname=found.hostname)
    said = {name: value for name, value in known.items() if value != getattr(plain, name)}
    return json.loads(json.dumps(said))  # type: ignore[no-any-return]


def text(found: Mapping[str, Any]) -> str:
    """What `seen` gives, as YAML."""
    return yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True, width=120)
