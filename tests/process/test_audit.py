"""`make test-audit`: only an answer about every package is a good one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]
KNOWN = {"name": "invoke", "version": "3.0.3", "vulns": []}
BAD = {
    "name": "jinja2",
    "version": "3.1.6",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.7"]}],
}
SKIPPED = {"name": "pyyaml", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def audit(folder: Path, text: str) -> tuple[int, str]:
    """Status and words where pip-audit prints this text."""
    (folder / "pip_audit.py").write_text(f"print({text!r})\n")
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, TREE / "scripts/audit.py"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.promise(
    "the audit of our packages is good only if its service knew all of them",
    control="the packages with a vulnerability",
)
@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([KNOWN], 0, "[audit] 1 packages, none with a known vulnerability"),
        ([KNOWN, BAD], 1, "[audit] jinja2 3.1.6: PYSEC-1, fixed in 3.1.7"),
        ([SKIPPED, BAD], 1, "[audit] jinja2 3.1.6: PYSEC-1, fixed in 3.1.7"),
        (
            [KNOWN, SKIPPED],
            75,
            "[audit] NOT RUN: pip-audit's service cannot be asked | it does not know pyyaml | ",
        ),
        ([], 75, "[audit] NOT RUN: pip-audit's service cannot be asked | it does not answer | "),
    ],
)
def test_status(packages: list[dict[str, Any]], status: int, words: str, tmp_path: Path) -> None:
    """0 where every package is known and good, 1 where one has a vulnerability, 75 where nobody
    knows."""
    got, said = audit(tmp_path, json.dumps({"dependencies": packages}))
    assert (got, said.startswith(words)) == (status, True), said


@pytest.mark.control("the audit of our packages is good only if its service knew all of them")
def test_no_answer_at_all_is_unknown(tmp_path: Path) -> None:
    assert audit(tmp_path, "a traceback")[0] == 75


def test_lint_does_not_speak_for_the_audit() -> None:
    """It passes without an answer of the service, so it must not name it; the target of its own
    does."""
    assert "pip-audit" not in (TREE / "scripts/lint").read_text()
    makefile = (TREE / "Makefile").read_text()
    assert "\nlint:  ## ruff, mypy --strict, shellcheck, hadolint\n" in makefile
    assert "scripts/audit.py" in makefile.partition("\ntest-audit:")[2].partition("\n\n")[0]
