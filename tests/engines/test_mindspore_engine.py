"""MindSpore on CPUs, by mpirun and by msrun."""

from __future__ import annotations

import pytest

from tests.rows import MINDSPORE, agrees, expected, places

QUIET = {"GLOG_v": "3"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_mpirun(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(MINDSPORE, "mindspore/job.yaml", seconds=200)
    else:
        run, command = request.getfixturevalue("variables"), ("sh", "ranks.sh", "python", "train.py")
        containers, log = run(MINDSPORE, "mindspore", *command, env=QUIET, seconds=200)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_msrun(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(MINDSPORE, "mindspore/msrun.yaml", seconds=200)
    else:
        run, env = request.getfixturevalue("variables"), {**QUIET, "MA_RUN_METHOD": "msrun"}
        containers, log = run(MINDSPORE, "mindspore", "train.py", env=env, seconds=200)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")
