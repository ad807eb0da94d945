"""Exit codes and signals of a program by table, kept through the real torchrun of the image: one
container, one driver.

A few in `make test`, since torch takes seconds to start; all 256 and 31 with `-m full`.
"""

from __future__ import annotations

import json

import pytest

from tests import TREE, exit_table
from tests.containers import IMAGE, docker

pytestmark = [
    pytest.mark.fault("17", "every status, every signal", launcher="torchrun"),
    pytest.mark.timeout(1800),
]
KINDS = pytest.mark.parametrize("kind", ["codes", "signals"])


@pytest.mark.promise("every exit code and signal of a program is kept")
@KINDS
@pytest.mark.parametrize("launcher", ["torchrun"])
def test_every_end_is_kept_through_torchrun(launcher: str, kind: str) -> None:
    keeps(launcher, kind, "few")


@pytest.mark.full
@KINDS
@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"])
def test_every_end_of_the_table_is_kept(launcher: str, kind: str) -> None:
    keeps(launcher, kind, "all")


def keeps(launcher: str, kind: str, size: str) -> None:
    words = ["entrypoint", "run", "--launcher", launcher, "--slots", "1"]
    said = docker(
        "run", "--rm", "-v", f"{TREE}/tests/exit_table.py:/exit_table.py:ro", "--entrypoint", "python", IMAGE,
        "/exit_table.py", kind, size, "3", *words, timeout=1700,
    )  # fmt: skip
    got = {int(value): status for value, status in json.loads(said).items()}
    assert got == exit_table.wanted(kind, size)
