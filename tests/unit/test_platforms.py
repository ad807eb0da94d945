"""Platforms: each folder tests/platforms/<name>/<case> holds a container's facts and the Site that
they are.

expect.yaml: `chosen` (who is recognised; the folder's platform where not given), and either the
fields of the Site, all of them but those that have their default, or `error` with its exact text
and `status`. Instead of both files, recognized.yaml holds what `entrypoint facts` printed in such a
container.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError
from entrypoint.base.model import Site
from entrypoint.cli.recognition import recognize, text
from entrypoint.platforms._clues import read
from tests.unit.cases import as_facts, chosen, collect, read_expected, read_facts


@pytest.mark.parametrize(("name", "folder"), collect("platforms"))
def test_case(name: str, folder: Path) -> None:
    if (folder / "recognized.yaml").exists():
        expected = yaml.safe_load((folder / "recognized.yaml").read_text(encoding="utf-8"))
        assert recognize(as_facts(expected["facts"]), expected.get("asked")) == expected
        return
    facts, expected = read_facts(folder), read_expected(folder)
    assert chosen("platforms", facts, "local") == expected.pop("chosen", name)
    platform = registry.load("platforms", name)
    if "error" in expected:
        with pytest.raises(ConfigError) as caught:
            read(platform, facts)
        assert {"error": str(caught.value), "status": caught.value.status} == expected
    else:
        assert read(platform, facts) == as_site(name, expected)


def test_a_report_names_the_matches_before_the_platform_and_what_it_read() -> None:
    report = recognize(as_facts({}), None)
    assert list(yaml.safe_load(text(report))) == ["matches", "platform", "site", "facts"]


def as_site(name: str, fields: dict[str, Any]) -> Site:
    for many in ("hosts", "tasks", "ports"):
        fields[many] = tuple(fields.get(many, ()))
    fields["unknown"] = {field: tuple(error) for field, error in fields.get("unknown", {}).items()}
    return Site(platform=name, **fields)
