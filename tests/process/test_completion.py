"""Shell completion and the man page, which `scripts/completion` writes from the parser: a real bash
completes, a real man-db formats."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.base import registry
from entrypoint.cli.parser import NAMES
from tests import TREE

ASK = """
source "$1"
compopt() { :; }  # readline's, which a script has not
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_entrypoint
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    script = [sys.executable, TREE / "scripts/completion.py", folder]
    env = {**os.environ, "PYTHONPATH": str(TREE), "SOURCE_DATE_EPOCH": "86400"}
    subprocess.run(script, env=env, check=True, capture_output=True)
    return folder


def completed(share: Path, *words: str) -> set[str]:
    file = share / "bash-completion/completions/entrypoint"
    argv = ["bash", "--norc", "-c", ASK, "ask", str(file), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("entrypoint", ""), {*NAMES}),
        (("entrypoint", "ru"), {"run"}),
        (("entrypoint", "run", "--lau"), {"--launcher"}),
        (("entrypoint", "run", "--launcher", "torch"), {"torchrun", "torchlaunch"}),
        (("entrypoint", "plan", "--platform", ""), {*registry.names("platforms")}),
        (("entrypoint", "deploy", "kub"), {"kubernetes"}),
        (("entrypoint", "help", "netc"), {"netcheck"}),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: set[str], share: Path) -> None:
    assert {word for word in completed(share, *words) if not word.startswith("-")} == {
        word for word in offered if not word.startswith("-")
    }
    assert offered <= completed(share, *words)


def test_zsh_finds_it_by_name(share: Path) -> None:
    """zsh loads files named _COMMAND, whose first line names the command."""
    file = share / "zsh/site-functions/_entrypoint"
    assert file.read_text().startswith("#compdef entrypoint\n")
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n", file], check=True)


def test_the_man_page_has_every_command(share: Path) -> None:
    page = share / "man/man1/entrypoint.1"
    text = page.read_text()
    assert text.startswith('.TH ENTRYPOINT "1" "1970\\-01\\-02"')
    for name in NAMES:
        assert f"COMMAND \\fI\\,'entrypoint {name}'" in text
    assert "ENTRYPOINT_LAUNCHER" in text
    if shutil.which("man"):
        argv = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)]
        done = subprocess.run(argv, capture_output=True, check=True)
        assert done.stderr == b""
