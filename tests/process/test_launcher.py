"""The launcher of the toolkit's own Python: what is meant for the image's loader passes it by, and
reaches programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from tests import TREE

GIVEN = {
    b"LD_LIBRARY_PATH": b"/my/lib",
    b"LD_X": b"\xff",
    b"OLD_NAME": b"1",
    b"LDAP": b"2",
    b"PATH": b"/usr/bin:/bin",
}
KEPT = {
    b"lD_LIBRARY_PATH": b"/my/lib",
    b"lD_X": b"\xff",
    b"OLD_NAME": b"1",
    b"LDAP": b"2",
    b"PATH": b"/usr/bin:/bin",
}
START = [sys.executable, "-I", str(TREE / "scripts/image-entry"), "env", "-0"]


def environment(words: list[str], env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What the program at the end of these words has for an environment."""
    done = subprocess.run(words, env=env, capture_output=True, check=True)
    found = dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)
    return {name: value for name, value in found.items() if name != b"LC_CTYPE"}


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """The launcher, with `env` in Python's place."""
    compiler = shutil.which("gcc") or pytest.skip("there is no gcc here")
    words = [
        *split("-std=c99 -Wall -Wextra -Werror"),
        '-DPYTHON="/usr/bin/env"',
        "-o",
        str(tmp_path / "python3"),
    ]
    subprocess.run([compiler, *words, str(TREE / "scripts/image/launcher.c")], check=True)
    return str(tmp_path / "python3")


def test_the_launcher_keeps_the_loader_s_variables_from_python(launcher: str) -> None:
    assert environment([launcher, "-0"], GIVEN) == KEPT


def test_words_and_status_pass_the_launcher(launcher: str) -> None:
    done = subprocess.run(
        [launcher, "sh", "-c", 'echo "$@"; exit 7', "sh", "two  words", ""],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, b"two  words \n")


@pytest.mark.promise("settings of the image's loader reach programs and not the toolkit's Python")
def test_programs_get_them_back() -> None:
    assert environment(START, KEPT) == GIVEN


@pytest.mark.control("settings of the image's loader reach programs and not the toolkit's Python")
def test_without_a_launcher_nothing_changes() -> None:
    assert environment(START, GIVEN) == GIVEN
