"""The recipes of docs/extending/, followed as they are written in a copy of this tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests import TREE
from tests.cluster import clean_environment
from tests.layout import RULES

STEP = re.compile(r"^\d+\. `(\S+)`.*?\n\n   ```\w+\n(.*?)\n   ```$", re.M | re.S)
BLOCK = re.compile(r"^( *)```\w+\n(.*?)^ *```$", re.M | re.S)


def recipe(name: str) -> str:
    """Return the text of a page, such as `platform`."""
    return (TREE / f"docs/extending/{name}.md").read_text()


def steps(name: str) -> dict[str, str]:
    """Return the files that a recipe has one write: path -> text."""
    return {
        path: re.sub(r"^   ", "", text, flags=re.M) + "\n"
        for path, text in STEP.findall(recipe(name))
    }


def blocks(name: str) -> list[str]:
    """Return a recipe's blocks of code, each with the indentation that it has in its file."""
    return [
        re.sub(f"^{indent}", "", text, flags=re.M) for indent, text in BLOCK.findall(recipe(name))
    ]


class Copy:
    """A copy of this tree that has what adapters of one kind and their cases need, and its
    Python."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.tree = folder / "tree"
        self.env = {**clean_environment(), "PYTHONPATH": str(self.tree)}
        self.written: set[str] = set()
        cases = [f"tests/{kind}" for kind in kinds]
        for name in ("entrypoint", "templates", "tests/rendered", *cases):
            # compiled modules, too: they save a second for each start
            shutil.copytree(TREE / name, self.tree / name)
        for file in [*TREE.glob("tests/*.py"), *TREE.glob("tests/unit/*.py")]:
            (self.tree / file.relative_to(TREE)).parent.mkdir(exist_ok=True)
            shutil.copy(file, self.tree / file.relative_to(TREE))

    def write(self, files: dict[str, str]) -> None:
        """Write files by their path in the tree."""
        self.written |= files.keys()
        for path, text in files.items():
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / path).write_text(text)

    def lint(self) -> None:
        """Hold what was written to the rules for the package, and to ruff."""
        files = [path for path in self.written if path.endswith(".py")]
        package = self.tree / "entrypoint"
        # Those of packages say which of their modules may have effects.
        paths = {*package.rglob("__init__.py"), *map(self.tree.joinpath, files)}
        sources = {
            path.relative_to(package).as_posix(): path.read_text()
            for path in paths
            if path.is_relative_to(package)
        }
        breaches = [breach for rule in RULES.values() for breach in rule(sources)]
        assert breaches == [], breaches
        for words in (("check",), ("format", "--check")):
            options = ("--quiet", "--no-cache", "--config", str(TREE / "pyproject.toml"))
            done = self.python("-m", "ruff", *words, *options, *files)
            assert done.returncode == 0, done.stdout + done.stderr

    def python(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the copy's code, and return what it printed."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.tree,
            env=self.env | env,
            capture_output=True,
            text=True,
            check=False,
        )

    def test(self, name: str, kind: str, case: str) -> None:
        """Call what a new case is tried by: the registry's tests, and the test `module.name` of
        each collected case.

        Without the case the registry's fails, which is the control.
        """
        module, _, test = name.partition(".")
        done = self.python("-c", _TESTS.format(module=module, test=test, kind=kind, case=case))
        assert (done.returncode, done.stdout) == (0, f"{case} tried\n"), done.stderr


# Calls tests as functions, without another pytest: that would collect a thousand others to run one.
_TESTS = """
from pathlib import Path
import pytest
from tests.unit import test_registry, {module} as tests
test_registry.test_every_adapter_has_cases("{kind}")
test_registry.test_every_adapter_keeps_its_promise("{kind}")
cases = next(mark.args[1] for mark in tests.{test}.pytestmark if mark.name == "parametrize")
for case in cases:
    values = case.values if hasattr(case, "values") else (case,)
    if str(values[-1]).endswith("{case}"):
        tests.{test}(*values)
        print("{case} tried")
case = Path("tests/{kind}/{case}")
aside = case.rename("aside")
with pytest.raises(AssertionError):
    test_registry.test_every_adapter_has_cases("{kind}")
aside.rename(case)
"""
