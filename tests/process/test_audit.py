"""`make lint`: only an answer about every package is a good one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import captured

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
    done = captured([sys.executable, TREE / "scripts/audit.py"], env=env)
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


@pytest.mark.parametrize(
    ("audit", "env", "status", "line"),
    [
        (0, {"CI": "true"}, 0, "[lint] audit: ok"),
        (75, {}, 0, "[lint] audit: NOT RUN, which would fail in CI"),
        (75, {"CI": "false"}, 0, "[lint] audit: NOT RUN, which would fail in CI"),
        (75, {"CI": "true"}, 1, "[lint] audit: NOT RUN, so CI fails; WITHOUT=audit leaves it out"),
        (75, {"CI": "true", "WITHOUT": "audit"}, 0, "[lint] audit: left out by WITHOUT"),
        (1, {}, 1, "[lint] audit: FAILED"),
        (1, {"CI": "true"}, 1, "[lint] audit: FAILED"),
    ],
)
def test_lint_says_what_the_audit_says(
    audit: int, env: dict[str, str], status: int, line: str, tmp_path: Path
) -> None:
    """Without an answer lint fails in CI, and says so elsewhere; it never speaks for the audit."""
    dev, bin = tmp_path / "scripts/dev", tmp_path / "venv/bin"
    dev.mkdir(parents=True)
    bin.mkdir(parents=True)
    shutil.copy(TREE / "scripts/lint", tmp_path / "scripts/lint")
    shutil.copy(TREE / "scripts/dev/common", dev)
    programs = {dev / "venv": f"echo {tmp_path}/venv", bin / "python": f"exit {audit}"}
    for name in ("ruff", "mypy", "shellcheck", "hadolint"):
        programs[bin / name] = "exit 0"
    for path, text in {**programs, dev / "need": "exit 0"}.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "WITHOUT")}
    done = captured(
        [tmp_path / "scripts/lint"], env={**clean, "PATH": f"{bin}:{clean['PATH']}", **env}
    )
    assert (done.returncode, line in done.stderr) == (status, True), done.stderr
    assert done.stderr.count("audit: ok") == (audit == 0)
