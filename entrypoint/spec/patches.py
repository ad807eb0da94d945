"""Patches of rendered objects as they are written: mappings of any shape that JSON has, each with its place.

What a patch means is its target's to say: entrypoint/deploy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from entrypoint.spec.items import Item, Odd, ProblemList, one_line
from entrypoint.values import dataclass


@dataclass(frozen=True)
class Patch:
    """One patch: what it says, and where it stands, such as `job.yaml:12:7`."""

    value: Mapping[str, Any]
    where: str


def read(text: str, file: str) -> tuple[Patch, ...]:
    """The patches of a file: each document is one, or a list of them.

    Raises SpecError with every problem.
    """
    from entrypoint.spec import yamlfile  # here, as in loading: PyYAML takes 10 ms

    report = ProblemList()
    documents = yamlfile.read_all(text, file, report) or []
    items = [each for item in documents for each in (item.value if isinstance(item.value, list) else [item])]
    found = patches(items, "", report)
    if report:
        raise report.error()
    return found


def patches(items: list[Item], path: str, report: ProblemList) -> tuple[Patch, ...]:
    """The patches of a list; what is none of them is in the report."""
    found = []
    for i, item in enumerate(items):
        inner = f"{path}.{i}" if path else ""
        if isinstance(item.value, dict):
            found.append(Patch(_plain(item, inner, report), item.place.where))
        elif item.value is not Odd.REPORTED:
            do = "give it a kind, or a target and a patch"
            report.add(item.place, inner, "a patch is a mapping", item.seen, do)
    return tuple(found)


def _plain(item: Item, path: str, report: ProblemList) -> Any:
    """The value without places. true, false and the octal numbers of file modes are those of Kubernetes' own YAML."""
    value = item.value
    if isinstance(value, list):
        return [_plain(each, f"{path}.{i}", report) for i, each in enumerate(value)]
    if isinstance(value, dict):
        return {name: _plain(each, f"{path}.{name}" if path else name, report) for name, each in value.items()}
    if value is Odd.MISREAD and item.written.lower() in ("true", "false"):
        return item.written.lower() == "true"
    if value is Odd.MISREAD and re.fullmatch("0[0-7]+", item.written):
        return int(item.written, 8)
    if value is Odd.MISREAD:
        do = f'quote it: "{one_line(item.written)}", or write true or false'
        report.add(item.place, path, "text, a number, true or false is needed", item.seen, do)
    elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        report.add(item.place, path, "text must be valid UTF-8", item.seen, "fix the encoding")
    elif isinstance(value, float) and not isfinite(value):
        report.add(item.place, path, "JSON has no such number", item.seen, "write another value, or quote it")
    return None if isinstance(value, Odd) else value
