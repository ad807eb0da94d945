"""Features and tools are removable: without the folder of one, its commands and templates, and the
tests that lead to it, the rest works."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from entrypoint.cli.parser import NAMES
from tests import TREE
from tests.command import captured
from tests.layout import imports
from tests.proof.inputs import Inputs

pytestmark = pytest.mark.textual
INPUTS = Inputs()
ROOT = TREE / "entrypoint"
PARTS = [
    path.parent.relative_to(ROOT).as_posix()
    for kind in ("features", "tools")
    for path in sorted(ROOT.glob(f"{kind}/*/__init__.py"))
]
JOINT = "entrypoint/cli/features.py"  # knows all features, and asks for none that is missing
COMMANDS = {f"entrypoint/cli/{name}.py" for name in NAMES}
IMPORTED = """
import importlib, pkgutil, entrypoint
for module in pkgutil.walk_packages(entrypoint.__path__, "entrypoint."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
# Pages still name the files of the part.
PAGES = "test_every_link_leads_somewhere test_every_file_and_test_that_a_page_names_is_there"


@functools.cache
def files() -> dict[str, str]:
    """The files of the tree: the text of each module of the package and the tests, else ""."""
    is_module = re.compile(r"(entrypoint|tests)/.*\.py").fullmatch
    return {path: (TREE / path).read_text() if is_module(path) else "" for path in INPUTS.paths}


@functools.cache
def needs() -> dict[str, set[str]]:
    """What each module imports, with the packages above it: paths without their ends."""
    sources = {path: text for path, text in files().items() if text}
    found: dict[str, set[str]] = {path: set() for path in sources}
    for path, _, name in imports(sources):
        parts = name.split(".")
        found[path] |= {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return found


def modules_of(part: str, modules: Mapping[str, set[str]]) -> set[str]:
    """The modules of a part, and all that lead to them."""
    new = found = {path for path in modules if path.startswith(f"entrypoint/{part}/")}
    while new:
        names = {re.sub(r"(/__init__)?\.py$", "", path) for path in new}
        new = {path for path in modules if modules[path] & names} - found - {JOINT}
        found |= new
    return found


def strays(part: str, modules: Mapping[str, set[str]]) -> list[str]:
    """The modules of the package that lead to a part, and are neither its own nor commands."""
    own = (f"entrypoint/{part}/", "tests/")
    return [path for path in modules_of(part, modules) - COMMANDS if not path.startswith(own)]


def copy_without(part: str, folder: Path, *places: str) -> Path:
    """Copy the tree, or these places of it, without a part."""
    gone = modules_of(part, needs())
    below = [f"entrypoint/{part}/"]
    for folder_of in (TREE / "templates").iterdir():
        named = re.compile(rf'["/]{folder_of.name}/').search
        users = {
            path for path in needs() if path.startswith("entrypoint/") and named(files()[path])
        }
        if users and users <= gone:
            below.append(f"templates/{folder_of.name}/")
    for path in files().keys() - gone:
        if path.startswith(places or "") and not path.startswith((*below,)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / path, folder / path)
    return folder


def python(tree: Path, *words: str, status: int = 0) -> str:
    """The output of this Python with the package of that tree."""
    env = {"PATH": os.environ["PATH"], "ENTRYPOINT_RUN_DIR": str(tree / "run")}
    done = captured([sys.executable, *words], cwd=tree, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.promise("each feature and tool can be removed")
@pytest.mark.parametrize("part", PARTS)
def test_a_job_runs_without_it(part: str, tmp_path: Path) -> None:
    assert strays(part, needs()) == []
    tree = copy_without(part, tmp_path, "entrypoint/", "templates/", "examples/spec/")
    python(tree, "-c", IMPORTED)
    shown = python(tree, "-m", "entrypoint", "--help")
    left = [name for name in NAMES if (tree / f"entrypoint/cli/{name}.py").exists()]
    assert [name for name in NAMES if f"    {name} " in shown] == left
    assert len(NAMES) - len(left) == len(modules_of(part, needs()) & COMMANDS)
    python(tree, "-m", "entrypoint", "plan", "--spec", "examples/spec/smallest.yaml")
    run = ("-m", "entrypoint", "run")
    python(tree, *run, "--", "true")
    # with a keeper and a loop, which one program alone has not
    python(tree, *run, "--restarts=1", "--", "sh", "-c", "exit 7", status=7)


@pytest.mark.control("each feature and tool can be removed")
@pytest.mark.parametrize("part", PARTS)
def test_a_core_module_that_needs_it_is_named(part: str) -> None:
    sample = {"entrypoint/job/sample.py": {f"entrypoint/{part}"}}
    assert strays(part, needs() | sample) == [*sample]


@pytest.mark.promise("each feature and tool can be removed")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_the_other_unit_tests_pass_without_it(part: str, tmp_path: Path) -> None:
    """Those that depend on a file that is gone: the outcome of the others is as before."""
    tree = copy_without(part, tmp_path)
    gone = {path for path in files() if not (tree / path).exists()}
    tests = [path for path in files().keys() - gone if path.startswith("tests/unit/test_")]
    tests = [path for path in tests if INPUTS.of(path) & gone]
    but = [f"--deselect=tests/unit/test_documents.py::{name}" for name in PAGES.split()]
    own = f"test_spec.py::test_every_field_is_used_and_described[{part.rpartition('/')[2]}."
    but.append(f"--deselect=tests/unit/{own}")  # nothing else reads its section of the spec
    python(tree, "-m", "pytest", "-q", "-p", "no:training-entrypoint", *but, *tests)
