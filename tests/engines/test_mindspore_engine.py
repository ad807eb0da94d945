"""MindSpore on CPUs, by mpirun and by msrun."""

from __future__ import annotations

from collections.abc import Callable
from shlex import split

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import MINDSPORE
from tests.rows import agrees, ended, expected, places, said

IMAGE = MINDSPORE
Run = Callable[..., tuple[dict[str, str], str]]


@pytest.mark.parametrize(
    ("command", "env"),
    [(("sh", "ranks.sh", "python", "train.py"), {}), (("train.py",), {"MA_RUN_METHOD": "msrun"})],
    ids=["mpirun", "msrun"],
)
def test_two_nodes_train_as_one_process_would(
    variables: Run, command: tuple[str, ...], env: dict[str, str]
) -> None:
    containers, log = variables(
        MINDSPORE, "mindspore", *command, env={"GLOG_v": "3", **env}, seconds=200
    )
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")


def test_a_process_that_fails_under_msrun_gives_every_container_its_status(
    compose: Compose,
) -> None:
    compose.render(
        TREE / "examples/mindspore/msrun.yaml",
        *split("train.py --fail 7 --fail-rank 0"),
        image=MINDSPORE,
    )
    compose.run("up", "-d")
    containers = compose.containers()
    # Alone, msrun makes it 1, and on worker-0 45 s later.
    assert set(ended(containers, 200).values()) == {7}, said(containers)
