"""What is shell in the golden trees is good shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.test_golden import FOLDERS, name

SHELL = sorted(path for folder in FOLDERS for path in folder.glob("*.sh"))


@pytest.mark.parametrize("path", SHELL, ids=name)
def test_shell_can_be_read_by_its_shell(path: Path) -> None:
    shells = ["sh", "bash"] if path.name == "rank.sh" else ["bash"]
    for shell in shells:
        checked = subprocess.run([shell, "-n", path], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("wrapper", [False, True], ids=["scripts", "rank.sh"])
def test_shellcheck_has_nothing_to_say(wrapper: bool) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    # rank.sh is sourced, so nothing in it names its shell; a value in it may look like something to expand.
    options = ["--shell=sh", "--exclude=SC2016"] if wrapper else []
    paths = [path for path in SHELL if (path.name == "rank.sh") == wrapper]
    checked = subprocess.run(["shellcheck", "--norc", *options, *paths], capture_output=True, text=True)
    assert checked.stdout == ""
