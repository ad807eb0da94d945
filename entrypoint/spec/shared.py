"""What of a job's settings may be written where others can read it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from entrypoint import secret
from entrypoint.secret import is_secret
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.table import fields


@dataclass(frozen=True)
class Given:
    """A setting as variables carry it: the one to set, which is the first, and every one that sets it too."""

    names: tuple[str, ...]
    value: str


def given(spec: JobSpec) -> tuple[Given, ...]:
    """What a user gave, so that a script can give it again: not this node's index, no secret; the spec as its file."""
    return _shared(spec)[0]


def kept_back(spec: JobSpec) -> list[str]:
    """The secrets that `given` leaves out, by name: others may read a script."""
    return _shared(spec)[1]


def left_out(spec: JobSpec) -> list[str]:
    """The secrets that a script which others may read cannot have in it: variables of `env`, and `command`."""
    names = [name for name, value in spec.env.items() if is_secret(name) or secret.masked(value) != value]
    return names + (["command"] if secret.masked_words(spec.command) != list(spec.command) else [])


def _shared(spec: JobSpec) -> tuple[tuple[Given, ...], list[str]]:
    out: list[Given] = []
    files: set[str] = set()
    kept: list[str] = []
    for field in fields():
        source = spec.source(field.path)
        if source.origin == "spec":
            files.add(source.where.rsplit(":", 2)[0])
        elif source.origin in ("flag", "env") and field.path not in ("node_rank", "command"):
            value: Any = functools.reduce(getattr, field.path.split("."), spec)
            if field.kind == "mapping":
                kept += [n for n in value if is_secret(n) and spec.source(f"env.{n}").origin != "spec"]
                value = {name: entry for name, entry in value.items() if not is_secret(name)}
            if isinstance(value, str) and secret.masked(value) != value:
                kept.append(field.path)
            elif value != {}:
                out.append(Given((field.env, *field.aliases), value if isinstance(value, str) else json.dumps(value)))
    return (*(Given(("ENTRYPOINT_SPEC",), file) for file in files), *out), kept
