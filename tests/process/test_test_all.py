"""`make test-all` runs every target that tests, goes on after a failure and never passes over one that did not run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TREE = Path(__file__).parents[2]
# Targets that leave a line in `ran`.
MAKEFILE = """\
help:
\t@echo help
golden:
\t@echo never >>ran
good:
\t@echo good >>ran; printf '===== 3 passed, 1 skipped in 0.10s =====\\n2 passed, 9 deselected in 75.00s (0:01:15)\\n'
bad:
\t@echo bad >>ran; echo oh no >&2; echo '1 failed, 4 passed, 1 error in 0.20s'; exit 3
unknown:
\t@echo unknown >>ran; echo '[unknown] NOT RUN'; exit 75
late:
\t@echo late >>ran
"""


def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("test_all", str(TREE / "scripts/test-all"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of its own with that Makefile, all of it committed."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(TREE / "scripts/test-all", tmp_path / "scripts")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".gitignore").write_text("build/\nran\n")
    for words in ("init -q", "add -A", "-c user.name=t -c user.email=t@t commit -qm x"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    return tmp_path


def run(tree: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, tree / "scripts/test-all", *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def ran(tree: Path) -> list[str]:
    """What was run since the last call."""
    file = tree / "ran"
    words = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return words


def test_every_target_is_run_or_is_no_test_by_name() -> None:
    """A new target is run without further ado; what is named as no test is there, and is not called test."""
    module, makefile = script(), (TREE / "Makefile").read_text()
    declared = set(re.findall(r"(?m)^\.PHONY: (\S+)$", makefile))
    assert {*module.targets(makefile), *module.NO_TEST} == declared
    assert [name for name in module.NO_TEST if name.startswith("test")] == ["test-all"]
    assert "brand-new" in module.targets(f"{makefile}\nbrand-new:  ## a target\n\t@true\n")


def test_all_are_run_and_a_failure_stops_nobody(tree: Path) -> None:
    status, out, err = run(tree)
    assert (status, ran(tree)) == (1, ["good", "bad", "unknown", "late"])
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["target", "result", "passed", "failed", "skipped", "seconds", "log"]
    assert rows[1][:5] == ["good", "passed", "5", "0", "1"]
    assert rows[2][:5] == ["bad", "failed", "4", "2", "0"]
    assert rows[3][:3] == ["unknown", "not", "run"]
    assert rows[4][:2] == ["late", "passed"]
    last = out.splitlines()[5]
    assert re.fullmatch(
        r"4 targets: 2 passed, 1 failed \(bad\), 1 not run \(unknown\); commit [0-9a-f]{10}; 0 min \d s in all", last
    )
    assert (tree / "build/test-all/bad.log").read_text().startswith("oh no\n")
    assert (tree / "build/test-all/table.txt").read_text() == out
    assert "[test-all] bad: failed\noh no\n" in err


def test_what_could_not_be_run_is_no_success_unless_it_is_left_out_by_name(tree: Path) -> None:
    assert run(tree, "good", "unknown")[0] == 1
    status, out, _ = run(tree, "good", "unknown", "--skip", "unknown")
    assert (status, "1 skipped (unknown)" in out) == (0, True)
    assert run(tree, "late")[0] == 0


def test_what_passed_on_this_commit_is_not_run_again(tree: Path) -> None:
    run(tree, "good", "bad")
    ran(tree)
    status, out, _ = run(tree, "--resume", "--skip", "unknown")
    assert (status, ran(tree)) == (1, ["bad", "late"])
    assert "good.log (an earlier run)" in out
    (tree / "Makefile").write_text(MAKEFILE + "# a change\n")
    _, out, _ = run(tree, "--resume", "good")
    assert ran(tree) == ["good"]
    assert " with changes; " in out


def test_a_target_that_hangs_ends_at_its_limit(tree: Path) -> None:
    (tree / "Makefile").write_text("slow:\n\t@echo begun; sleep 1000 & sleep 1001\n")
    status, out, _ = run(tree, "--limit", "0.01")
    assert (status, out.splitlines()[1].split()[:2]) == (1, ["slow", "failed"])
    log = (tree / "build/test-all/slow.log").read_text()
    assert log.startswith("begun\n")
    assert "[test-all] slow took longer than 0.01 min\n" in log


def test_a_target_that_is_not_there_is_refused(tree: Path) -> None:
    status, _, err = run(tree, "test-sulrm")
    assert (status, err) == (
        64, "[test-all] no target that tests | test-sulrm | known: good, bad, unknown, late\n"
    )  # fmt: skip
