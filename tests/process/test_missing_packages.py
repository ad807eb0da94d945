"""A launcher whose package the program's Python does not have: the last line says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import command
from tests.process.bench import executable

PACKAGES = {
    "torchrun": "torch",
    "torchlaunch": "torch",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "ray": "ray",
    "msrun": "mindspore",
}


@pytest.mark.promise(
    "a launcher whose package is missing ends with 78, and says in which Python",
    control="a launcher that needs none, in the same test",
)
@pytest.mark.parametrize("launcher", PACKAGES)
def test_a_missing_package_is_the_last_line(launcher: str, tmp_path: Path) -> None:
    for name in ("python", "python3"):
        executable(tmp_path / name, f'exec {sys.executable} -S "$@"')  # no site-packages
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ENTRYPOINT_RUN_DIR": f"{tmp_path}/run"}
    words = ("run", "--launcher", launcher, "--", "python3", "-c", "print('ran')")
    done = command.run(tmp_path, *words, env=env)
    assert done.returncode == 78, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"EP650 {PACKAGES[launcher]} is not installed in " in last, done.stderr
    assert "install it there" in last
    assert last.endswith("; exit 78")
    assert "Traceback" not in done.stderr
    # Control: what needs no package starts.
    done = command.run(tmp_path, "run", "--launcher", "plain", *words[3:], env=env)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
