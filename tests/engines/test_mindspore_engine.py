"""MindSpore on CPUs, by mpirun and by msrun."""

from __future__ import annotations

from shlex import split

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import MINDSPORE
from tests.rows import agrees, ended, expected, places, said

IMAGE = MINDSPORE
QUIET = {"GLOG_v": "3"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_mpirun(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(
            MINDSPORE, "mindspore/job.yaml", seconds=200
        )
    else:
        run = request.getfixturevalue("variables")
        command = ("sh", "ranks.sh", "python", "train.py")
        containers, log = run(MINDSPORE, "mindspore", *command, env=QUIET, seconds=200)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_msrun(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(
            MINDSPORE, "mindspore/msrun.yaml", seconds=200
        )
    else:
        run, env = request.getfixturevalue("variables"), {**QUIET, "MA_RUN_METHOD": "msrun"}
        containers, log = run(MINDSPORE, "mindspore", "train.py", env=env, seconds=200)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rank", ["0", "3"])
def test_a_process_that_fails_under_msrun_gives_every_container_its_status(
    compose: Compose, rank: str
) -> None:
    compose.render(
        TREE / "examples/mindspore/msrun.yaml",
        *split("train.py --fail 7 --fail-rank"),
        rank,
        image=MINDSPORE,
    )
    compose.run("up", "-d")
    containers = compose.containers()
    # Alone, msrun makes it 1, and on worker-0 45 s later.
    assert set(ended(containers, 200, together=15).values()) == {7}, said(containers)
