"""`make lint`: only an answer about every package is a good one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import TREE
from tests.command import captured

KNOWN = {"name": "invoke", "version": "3.0.3", "vulns": []}
BAD = {
    "name": "jinja2",
    "version": "3.1.6",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.7"]}],
}
SKIPPED = {"name": "pyyaml", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def audit(folder: Path, text: str, least: str = "") -> tuple[int, str]:
    """Status and words where pip-audit prints this text, and of the least versions `least`."""
    fake = (
        f"import sys\nprint({text!r} if '--require-hashes' in sys.argv else {(least or text)!r})\n"
    )
    (folder / "pip_audit.py").write_text(fake)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = captured([sys.executable, TREE / "scripts/audit.py"], env=env)
    return done.returncode, done.stderr


@pytest.mark.promise(
    "the audit of our packages is good only if its service knew all of them",
    control="the packages with a vulnerability, and no answer at all",
)
@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([KNOWN], 0, "[audit] 2 versions, none with a known vulnerability"),
        ([KNOWN, BAD], 1, "[audit] jinja2 3.1.6: PYSEC-1, fixed in 3.1.7"),
        ([SKIPPED, BAD], 1, "[audit] jinja2 3.1.6: PYSEC-1, fixed in 3.1.7"),
        ([KNOWN, SKIPPED], 75, "[audit] NOT RUN: pip-audit's service cannot be asked | it does not know pyyaml | "),
        ([], 75, "[audit] NOT RUN: pip-audit's service cannot be asked | it does not answer | "),
    ],
)  # fmt: skip
def test_status(packages: list[dict[str, Any]], status: int, words: str, tmp_path: Path) -> None:
    """0 where every package is known and good, 1 where one has a vulnerability, 75 where nobody
    knows."""
    got, said = audit(tmp_path, json.dumps({"dependencies": packages}))
    assert (got, said.startswith(words)) == (status, True), said
    assert audit(tmp_path, "a traceback")[0] == 75


@pytest.mark.parametrize(("least", "status"), [([KNOWN], 0), ([BAD], 1), ([], 75)])
def test_the_least_versions_are_asked_about(
    least: list[dict[str, Any]], status: int, tmp_path: Path
) -> None:
    texts = (json.dumps({"dependencies": packages}) for packages in ([KNOWN], least))
    assert audit(tmp_path, *texts)[0] == status


def test_each_package_that_runs_has_a_least_version() -> None:
    folder = str(TREE / "scripts")
    words = [sys.executable, "-c", "import audit; print(audit.least_versions())"]
    listed = captured(words, cwd=folder, check=True).stdout.split()
    assert [line.partition("==")[0] for line in listed] == [
        "jinja2", "pyyaml", "paramiko", "greenlet", "cryptography",
    ]  # fmt: skip
