"""README's two commands, wherever somebody unpacks the tree and however the shell was started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import TREE
from tests.command import captured

# Tests that look at the tree, mount over /tmp, start what is in the environment, or lint.
TESTS = (
    "tests/process/test_status.py::test_it_is_found_without_any_setting",
    "tests/process/test_proof.py",
    "tests/unit/test_layout.py",
)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A source archive of this tree, without .git, in a folder that a careless script would split
    or could not decode, and behind a link; it is below /tmp where pytest's folders are."""
    real = tmp_path / "unpacked here 漢"
    for name in captured([TREE / "scripts/dev/files"], check=True).stdout.rstrip("\0").split("\0"):
        target = real / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / name, target, follow_symlinks=False)
    link = tmp_path / "link"
    link.symlink_to(real)
    return link


def bare(folder: Path, *words: str) -> str:
    """What a command prints there, without HOME and with a umask that shuts everybody out."""
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "PYTHONPATH")}
    done = subprocess.run(
        words, cwd=folder, env=env, umask=0o077, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.promise("README's commands work wherever the tree lies")
def test_an_odd_place(unpacked: Path) -> None:
    assert "loss" in bare(unpacked, "make", "demo")
    assert " passed" in bare(unpacked, "scripts/test", *TESTS)
    bare(unpacked, "env", "WITHOUT=audit", "scripts/lint")
