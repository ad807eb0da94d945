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
from tests.process.bench import executable

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


def folder(path: Path, *words: str) -> Path:
    """A folder with the launcher, and with `env` in its programs' place."""
    compiler = shutil.which("gcc") or pytest.skip("there is no gcc here")
    for name in ("bin", "lib", "libexec"):
        (path / name).mkdir(parents=True)
    argv = [compiler, *split("-std=c99 -Wall -Wextra -Werror"), *words]
    source = TREE / "scripts/image/launcher.c"
    subprocess.run([*argv, "-o", path / "bin/launcher", source], check=True)
    for name in ("python3", "sshd", "entrypoint", "tie"):
        (path / "bin" / name).symlink_to("launcher")
        (path / "libexec" / name).symlink_to("/usr/bin/env")
    return path


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    """The folder in its usual place."""
    return folder(tmp_path / "usual", f'-DHOME="{tmp_path}/usual"')


def test_the_launcher_keeps_the_loader_s_variables_from_python(usual: Path) -> None:
    assert environment([f"{usual}/bin/python3", "-0"], GIVEN) == KEPT


def test_openssh_gets_our_libnss_wrapper_alone(usual: Path) -> None:
    program = [f"{usual}/bin/sshd", "-0"]
    others = {name: value for name, value in GIVEN.items() if not name.startswith(b"LD_")}
    assert environment(program, {**GIVEN, b"LD_PRELOAD": b"/lib/libmine.so"}) == others
    names = {b"LD_PRELOAD": bytes(usual / "lib/libnss_wrapper.so")}
    silent = {"stderr": subprocess.DEVNULL}  # there is no such library here
    done = subprocess.run(program, env=GIVEN | names, check=True, stdout=subprocess.PIPE, **silent)
    assert b"LD_PRELOAD=" in done.stdout


def test_words_and_status_pass_the_launcher(usual: Path) -> None:
    for program in ("python3", "tie"):
        done = subprocess.run(
            [f"{usual}/bin/{program}", "sh", "-c", 'echo "$@"; exit 7', "sh", "two  words", ""],
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (7, b"two  words \n")


def test_elsewhere_programs_are_arguments_of_the_loader(tmp_path: Path) -> None:
    place = folder(tmp_path / "else where", '-DHOME="/nowhere"', '-DLOADER="ld.so"')
    executable(place / "lib/ld.so", 'printf "%s\\n" "$@"')
    for name, script in (("sshd", []), ("entrypoint", ["-I", f"{place}/libexec/entrypoint"])):
        program = "python3" if script else name
        expected = ["--argv0", f"{place}/bin/{program}", f"{place}/libexec/{program}", *script, "x"]
        argv = [place / "bin" / name, "x"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == expected


@pytest.mark.promise("settings of the image's loader reach programs and not the toolkit's Python")
def test_programs_get_them_back() -> None:
    assert environment(START, KEPT) == GIVEN


@pytest.mark.control("settings of the image's loader reach programs and not the toolkit's Python")
def test_without_a_launcher_nothing_changes() -> None:
    assert environment(START, GIVEN) == GIVEN
