"""What is shell in the golden files is good shell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command import captured
from tests.golden import cases, files, shown, template

GIVEN_TO_SH = ("rank.sh", "agent", "ssh")


def texts() -> dict[str, tuple[str, str]]:
    """Return each different text of a shell script: the first case that has it -> name, text.

    Jobs of 64 nodes have the scripts of two, with more names in them.
    """
    found: dict[tuple[str, str], str] = {}
    for case in cases():
        for part in shown(case) * (case.name != "sixty-four"):
            for file in files(case, part):
                if template(file).endswith(".sh"):
                    found.setdefault(
                        (file.name, file.text), f"{case.parent.name}-{case.name}-{part}-{file.name}"
                    )
    return {place: script for script, place in found.items()}


@pytest.mark.parametrize("given_to_sh", [False, True], ids=["scripts", "given to sh"])
def test_shellcheck_has_nothing_to_say(tmp_path: Path, given_to_sh: bool) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    # Nothing in these names their shell, and a value in them may look like something to expand.
    options = ["--shell=sh", "--exclude=SC2016"] if given_to_sh else []
    scripts = {
        place: text
        for place, (name, text) in texts().items()
        if (name in GIVEN_TO_SH) == given_to_sh
    }
    for place, text in scripts.items():
        (tmp_path / place).write_text(text)
    checked = captured(["shellcheck", "--norc", *options, *scripts], cwd=tmp_path)
    assert checked.stdout == ""
    tried = {name for name, _ in texts().values() if (name in GIVEN_TO_SH) == given_to_sh}
    ours = {"run_mpi.sh", "mpirun.sh", "torchrun.sh", "torchlaunch.sh"}
    assert tried >= ({"rank.sh", "agent"} if given_to_sh else ours)
