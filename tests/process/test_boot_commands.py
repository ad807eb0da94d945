"""Boot commands as people write them for ModelArts: with `$MA_JOB_DIR`, and no shell that would
expand it.

The platform starts the container in /home/ma-user, and the code directory is below MA_JOB_DIR.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import command

TRAIN = "import os, sys; print(*sys.argv[1:], os.getcwd())\n"
SPEC = "workdir: $MA_JOB_DIR/code\ncommand: [python3, $MA_JOB_DIR/code/train.py, spec]\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the boot command starts; the code directory is beside it."""
    code = tmp_path / "jobs/code"
    code.mkdir(parents=True)
    (code / "train.py").write_text(TRAIN)
    (code / "job.yaml").write_text(SPEC)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def run(cwd: Path, *words: str, **env: str) -> command.Done:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "ENTRYPOINT_RUN_DIR": str(cwd.parent / "run"), **env}
    return command.run(cwd, "run", *words, env=env)


@pytest.mark.promise("a boot command with `$MA_JOB_DIR` starts, whether or not a shell reads it")
@pytest.mark.parametrize(
    ("words", "argument", "place"),
    [
        (("--", "python3", "$MA_JOB_DIR/code/train.py", "x"), "x", "home"),
        (("--", "python3", "${MA_JOB_DIR}/code/train.py", "x"), "x", "home"),
        (("--workdir", "$MA_JOB_DIR/code", "--", "python3", "train.py", "x"), "x", "jobs/code"),
        (("--spec", "$MA_JOB_DIR/code/job.yaml"), "spec", "jobs/code"),
        (("--spec", "${MA_JOB_DIR}/code/job.yaml", "--workdir", "/", "--", "sh", "-c", "pwd"), "", "/"),
        # What is no folder of the platform's stays as it is.
        (("--", "python3", "$MA_JOB_DIR/code/train.py", "$HOME/x", "$MA_JOB_DIRS/x"), "$HOME/x $MA_JOB_DIRS/x", "home"),
    ],
)  # fmt: skip
def test_without_a_shell(home: Path, words: tuple[str, ...], argument: str, place: str) -> None:
    done = run(home, *words, MA_JOB_DIR=f"{home.parent}/jobs/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*argument.split(), os.path.join(home.parent, place)]


@pytest.mark.control("a boot command with `$MA_JOB_DIR` starts, whether or not a shell reads it")
def test_elsewhere_a_word_stays_as_it_is(home: Path) -> None:
    """Control: where the platform has set no such variable."""
    done = run(home, "--", "echo", "$MA_JOB_DIR/code", "${MA_JOB_DIR}/x", MA_JOB_DIR="")
    assert (done.returncode, done.stdout) == (0, "$MA_JOB_DIR/code ${MA_JOB_DIR}/x\n"), done.stderr
    assert run(home, "--spec", "$MA_JOB_DIR/code/job.yaml").returncode == 66
