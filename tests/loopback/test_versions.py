"""Two versions of the toolkit in one job: noticed before a rank starts, and what is left where
nobody asks."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests import TREE
from tests.cluster import Make

RUN = (sys.executable, "-m", "entrypoint", "run", "--launcher", "plain", "--", "echo", "trained")


@pytest.fixture
def later(tmp_path: Path) -> dict[str, str]:
    """Variables with which a node runs version 99.0.0."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TREE / "entrypoint", tmp_path / "later/entrypoint", ignore=skip)
    (tmp_path / "later/templates").symlink_to(TREE / "templates")
    init = tmp_path / "later/entrypoint/__init__.py"
    text = init.read_text()
    init.write_text(re.sub(r'__version__ = ".*?"', '__version__ = "99.0.0"', text))
    return {"PYTHONPATH": str(tmp_path / "later")}


@pytest.mark.promise("nodes of two versions never train together: all end with 78 before a rank")
def test_two_versions_end_the_job_at_once(cluster: Make, later: dict[str, str]) -> None:
    """The message names both versions and nodes."""
    job = cluster(2, slots=1)
    for rank in (1, 0):
        job.start(rank, env=later if rank == 0 else None, argv=RUN)
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "trained" not in job.both()
    for rank in range(2):
        last = job.err(rank).splitlines()[-1]
        assert "EP504 the nodes disagree on toolkit | " in last, job.both()
        assert "worker-0 (node-0) has 99.0.0" in last, job.both()


@pytest.mark.control("nodes of two versions never train together: all end with 78 before a rank")
def test_one_version_trains(cluster: Make, later: dict[str, str]) -> None:
    job = cluster(2, slots=1)
    for rank in (1, 0):
        job.start(rank, env=later, argv=RUN)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "trained" in job.both()


def test_without_a_roll_call_nobody_compares(cluster: Make, later: dict[str, str]) -> None:
    """As docs/how-to/upgrade.md says."""
    job = cluster(2, slots=1)
    for rank in (1, 0):
        env = {"ENTRYPOINT_ROLL_CALL": "none", **(later if rank else {})}
        job.start(rank, env=env, argv=RUN)
    assert job.ends() == {0: 0, 1: 0}, job.both()
