"""Exit codes and signals of a program by table, kept through the real torchrun of the image: one container, one driver.

A few here, since torch takes seconds to start; all 256 and 31 with TEST_FULL=1 (`make test-faults`).
"""

from __future__ import annotations

import json

import pytest

from tests import exit_table
from tests.containers import IMAGE, TREE, docker


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["codes", "signals"])
@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"] if exit_table.FULL else ["torchrun"])
def test_every_end_is_kept_through_torchrun(launcher: str, kind: str) -> None:
    words = ["entrypoint", "run", "--launcher", launcher, "--slots", "1"]
    said = docker(
        "run", "--rm", "-v", f"{TREE}/tests/exit_table.py:/exit_table.py:ro", "--entrypoint", "python", IMAGE,
        "/exit_table.py", kind, "all" if exit_table.FULL else "few", "3", *words, timeout=1700,
    )  # fmt: skip
    got = {int(value): status for value, status in json.loads(said).items()}
    assert got == exit_table.wanted(kind, "few")
