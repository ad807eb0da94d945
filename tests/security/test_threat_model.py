"""docs/explanation/security.md names a test for every line: those tests are there, and none of ours
is left out."""

from __future__ import annotations

import re

from tests import TREE

TEXT = (TREE / "docs/explanation/security.md").read_text()


def _defined(folder: str) -> set[str]:
    return {
        name
        for path in (TREE / folder).rglob("test_*.py")
        for name in re.findall(r"(?m)^(?:async )?def (test_\w+)", path.read_text())
    }


def test_every_threat_names_a_test_that_is_there() -> None:
    """Each test that the threat model names exists, and each of tests/security is named in it."""
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert named - _defined("tests") == set()
    assert _defined("tests/security") - named == {
        "test_every_threat_names_a_test_that_is_there",
        "test_every_package_has_a_reason",
    }


def test_every_package_has_a_reason() -> None:
    """Each package of the lock is named in the threat model with why it is needed, and no other
    is."""
    locked = set(
        re.findall(r"(?m)^([a-z0-9-]+)==", (TREE / "scripts/image/toolkit.lock").read_text())
    )
    table = TEXT[TEXT.index("| package | why |") :]
    named = {
        name for row in re.findall(r"(?m)^\| ([a-z][^|]*) \|", table) for name in row.split(", ")
    } - {"package"}
    assert named == locked
