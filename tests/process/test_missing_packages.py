"""A launcher whose package the program's Python does not have: the last line says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.command import captured

PACKAGES = {
    "torchrun": "torch",
    "torchlaunch": "torch",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "ray": "ray",
    "msrun": "mindspore",
}


@pytest.mark.promise("a launcher whose package is missing ends with 78, and says in which Python")
@pytest.mark.parametrize("launcher", PACKAGES)
def test_a_missing_package_is_the_last_line(launcher: str, tmp_path: Path) -> None:
    for name in ("python", "python3"):
        python = tmp_path / name
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages
        python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run"}
    words = [sys.executable, "-m", "entrypoint", "run", "--launcher", launcher]
    done = captured([*words, "--", "python3", "-c", "print('ran')"], env=env, timeout=60)
    assert done.returncode == 78, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"EP650 {PACKAGES[launcher]} is not installed in " in last, done.stderr
    assert "install it there" in last
    assert last.endswith("; exit 78")
    assert "Traceback" not in done.stderr


@pytest.mark.control("a launcher whose package is missing ends with 78, and says in which Python")
def test_a_launcher_that_needs_no_package_starts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "entrypoint", "run", "--launcher", "plain", "--slots", "1"]
    done = captured(
        [*words, "--", sys.executable, "-S", "-c", "print('ran')"],
        env={"PATH": "/usr/bin:/bin", "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run"},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
