"""`make test-all` runs every target that tests, goes on after a failure and never passes over one
that did not run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import split
from types import ModuleType

import pytest

from tests.command import captured
from tests.tiers import EVERY_CHANGE, THOROUGH

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
    done = captured([sys.executable, tree / "scripts/test-all", *words])
    return done.returncode, done.stdout, done.stderr


def ran(tree: Path) -> list[str]:
    """What was run since the last call."""
    file = tree / "ran"
    words = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return words


@pytest.mark.promise("`make test-all` runs every target that tests and goes on after a failure")
def test_every_target_is_run_or_is_no_test_by_name() -> None:
    """A new target is run without further ado; what is named as no test is there, and is not called
    test."""
    module, makefile = script(), (TREE / "Makefile").read_text()
    declared = set(re.findall(r"(?m)^\.PHONY: (\S+)$", makefile))
    assert {*module.targets(makefile), *module.NO_TEST} == declared
    assert [name for name in module.NO_TEST if name.startswith("test")] == ["test-all"]
    assert "brand-new" in module.targets(f"{makefile}\nbrand-new:  ## a target\n\t@true\n")


@pytest.mark.promise("`make test-all` runs every target that tests and goes on after a failure")
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
        r"4 targets: 2 passed, 1 failed \(bad\), 1 not run \(unknown\); commit [0-9a-f]{10}; 0 min"
        r" \d s in all",
        last,
    )
    assert (tree / "build/test-all/bad.log").read_text().startswith("oh no\n")
    assert (tree / "build/test-all/table.txt").read_text() == out
    assert "[test-all] bad: failed\noh no\n" in err


@pytest.mark.control("`make test-all` runs every target that tests and goes on after a failure")
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


# --------------------------------------------------------------------------------------------------
# Every test is in a target


# Instead of a program: leaves its words in $RAN, a line each time.
RECORDER = """#!{python}
import json, os, sys
with open(os.environ["RAN"], "a") as ran:
    ran.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
if sys.argv[0].endswith("/venv"):
    print(os.path.dirname(sys.argv[0]) + "/made")
"""
LIST = """
import json, pathlib, sys
import pytest
class Listing:
    def pytest_collection_modifyitems(self, items):
        listed = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in items}
        pathlib.Path(sys.argv[1]).write_text(json.dumps(listed))
words = ["--collect-only", "-qq", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", ""]
sys.exit(pytest.main([*words, *sys.argv[2:]], plugins=[Listing()]))
"""


def calls(tmp_path: Path) -> dict[str, list[list[str]]]:
    """Return how each target that tests calls pytest, by running it where all that it uses only
    takes notes."""
    here, module = tmp_path / "tree", script()
    shutil.copytree(
        TREE / "scripts", here / "scripts", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(TREE / "Makefile", here)
    (here / "tests").symlink_to(TREE / "tests")
    (tmp_path / ".cache/entrypoint").mkdir(parents=True)
    own = [
        here / "scripts" / name
        for name in ("build-image", "bake", "demo", "lint", "audit.py", "wheel", "rehearse")
    ]
    for file in (
        *(here / "scripts/dev").iterdir(),
        *own,
        here / "scripts/dev/made/bin/pytest",
        here / "bin/docker",
    ):
        if file.name != "common":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(RECORDER.format(python=sys.executable))
            file.chmod(0o755)
    shutil.copy(here / "bin/docker", here / "scripts/dev/made/bin/python")
    found = {}
    for target in module.targets((TREE / "Makefile").read_text()):
        ran = tmp_path / target
        env = {"PATH": f"{here}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "RAN": str(ran)}
        if not target.startswith("bench"):
            done = subprocess.run(
                ["make", target], cwd=here, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (target, done.stderr)
            words = [json.loads(line) for line in ran.read_text().splitlines()]
            found[target] = [argv[1:] for argv in words if argv[0] == "pytest"]
    return found


def is_run(test: str, marks: list[str], argv: list[str], config: pytest.Config) -> bool:
    """Whether this call of pytest runs the test: by its paths, and by its markers."""
    words = argv if "-m" in argv else config.getini("addopts")
    expression = words[words.index("-m") + 1]
    paths = [word for word in argv if word.startswith("tests/")] or config.getini("testpaths")
    names = {word: word in marks for word in re.findall(r"\w+", expression)}
    return any(re.match(rf"{re.escape(path)}($|/|::|\[)", test) for path in paths) and bool(
        eval(expression or "True", {}, names)  # a marker expression is one of Python's
    )


@pytest.mark.timeout(600)  # it collects two thousand tests
def test_every_test_is_run_by_a_target_of_test_all(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """All but those with the marker `full`, which no target runs; what `make test` leaves out
    another one runs."""
    # thousands, of which `make test` leaves out none
    whole = {TREE / "tests/unit", TREE / "tests/simulation"}
    modules = [path for folder in whole for path in folder.glob("*.py")]
    assert [path for path in modules if re.search(r"mark\.(slow|full)", path.read_text())] == []
    folders = {path.parent for path in TREE.glob("tests/*/test_*.py")} - whole
    done = captured([sys.executable, "-c", LIST, tmp_path / "listed", *folders], cwd=TREE)
    assert done.returncode == 0, done.stdout
    tests = json.loads((tmp_path / "listed").read_text())
    assert len(tests) > 1000
    stale = [
        tier for tier in EVERY_CHANGE + THOROUGH if not any(test.startswith(tier) for test in tests)
    ]
    assert stale == [], "names of no test, in tests/tiers.yaml"
    called = calls(tmp_path)
    assert [target for target, argvs in called.items() if not argvs] == split(
        "demo lint test-audit simulate rehearse"
    )

    def left(*targets: str) -> list[str]:
        argvs = [argv for target in targets for argv in called[target]]
        return [
            test
            for test, marks in tests.items()
            if not any(is_run(test, marks, argv, pytestconfig) for argv in argvs)
        ]

    assert [test for test in left(*called) if "full" not in tests[test]] == []
    # The controls: other targets run what make test does not, and without them that is noticed.
    assert {test.split("/")[1] for test in left("test")} > {
        "arm64",
        "bake",
        "compose",
        "faults",
        "image",
        "sbatch",
    }
    assert any("test_kubernetes" not in test for test in left(*{*called} - {"test-containers"}))
