"""The version is that of the git tag, and each thing that is built has it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from shlex import split

import pytest
from packaging.version import Version

import entrypoint
from tests import TREE
from tests.command import captured

BUILT_FROM = (
    *split(
        "pyproject.toml README.md LICENSE CHANGELOG.md scripts/version.py scripts/build_hook.py"
    ),
)
spec = importlib.util.spec_from_file_location("version", TREE / "scripts/version.py")
assert spec
assert spec.loader
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


def git(tree: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a wheel is built of, in no repository."""
    monkeypatch.delenv("ENTRYPOINT_VERSION", raising=False)
    here = tmp_path / "tree"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TREE / "entrypoint", here / "entrypoint", ignore=skip)
    shutil.copytree(TREE / "templates", here / "templates", ignore=skip)
    (here / "scripts").mkdir()
    for name in BUILT_FROM:
        shutil.copy(TREE / name, here / name)
    return here


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ("v1.2.3-0-g0123456789", "1.2.3"),
        ("v1.2.3-0-g0123456789.dirty", "1.2.4.dev0+g0123456789.dirty"),
        ("v1.2.9-5-g0123456789", "1.2.10.dev5+g0123456789"),
        ("0123456789", "0.1.0.dev0+g0123456789"),
        ("0123456789.dirty", "0.1.0.dev0+g0123456789.dirty"),
        ("", "0.0.0.dev0"),
        ("fatal: not a git repository", "0.0.0.dev0"),
    ],
)
def test_what_git_says(described: str, named: str) -> None:
    assert program.named(described) == named
    assert str(Version(named)) == named, "PEP 440, as pip would write it"


def test_the_tag_is_the_version(tree: Path) -> None:
    """Without a repository, without a commit, without a tag, on a tag, and after it."""
    assert program.version(tree) == "0.0.0.dev0"
    git(tree, "init", "--quiet")
    assert program.version(tree) == "0.0.0.dev0"
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "one")
    assert re.fullmatch(r"0\.1\.0\.dev0\+g[0-9a-f]{10}", program.version(tree))
    git(tree, "tag", "v2.0.1")
    assert program.version(tree) == "2.0.1"
    (tree / "README.md").write_text("changed")
    assert re.fullmatch(r"2\.0\.2\.dev0\+g[0-9a-f]{10}\.dirty", program.version(tree))


def test_what_is_built_says_its_version(tree: Path, tmp_path: Path) -> None:
    """Wheel and source archive, and the wheel that is built from that archive."""
    build(tree, tmp_path / "one", "sdist", "wheel", ENTRYPOINT_VERSION="3.1.4")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "training_entrypoint-3.1.4-py3-none-any.whl",
        "training_entrypoint-3.1.4.tar.gz",
    ]
    # not by Python, which warns from 3.13 on without a filter that 3.10 does not have
    argv = ["tar", "-xf", tmp_path / "one/training_entrypoint-3.1.4.tar.gz", "-C", tmp_path]
    subprocess.run(argv, check=True)
    build(tmp_path / "training_entrypoint-3.1.4", tmp_path / "two", "wheel")
    wheels = [
        tmp_path / each / "training_entrypoint-3.1.4-py3-none-any.whl" for each in ("one", "two")
    ]
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            assert '__version__ = "3.1.4"\n' in archive.read("entrypoint/__init__.py").decode()
            assert archive.namelist().count("entrypoint/__init__.py") == 1
            assert {f"entrypoint/causes/{name}.tsv" for name in ("kinds", "signatures")} <= {
                *archive.namelist()
            }
    shutil.unpack_archive(wheels[0], tmp_path / "installed", "zip")
    said = captured(
        [sys.executable, "-c", "from entrypoint.cli import main; main()", "--version"],
        cwd=tmp_path / "installed",
    )
    assert said.stdout == "entrypoint 3.1.4\n", said.stderr


def build(tree: Path, out: Path, *targets: str, **env: str) -> None:
    """Build with what is installed here, without an index."""
    wanted = [word for target in targets for word in ("--target", target)]
    argv = [sys.executable, "-m", "hatchling", "build", *wanted, "--directory", str(out)]
    done = captured(argv, cwd=tree, env=os.environ | env)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_checkout_and_a_build_without_git_say_that_they_are_neither() -> None:
    """One text, in the package, in scripts/version.py and in the Dockerfiles."""
    assert entrypoint.__version__ == program.named("")
    for kind in ("gpu", "ascend", "toolkit"):
        text = (TREE / f"Dockerfile.{kind}").read_text()
        assert set(re.findall(r"(?m)^ARG VERSION=(.*)$", text)) == {program.named("")}
