"""PyTorch's ways to start, as launchers of `entrypoint run`."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.containers import IMAGE as GPU
from tests.rows import agrees, expected, places

Run = Callable[..., tuple[dict[str, str], str]]


@pytest.mark.parametrize("example", ["spawn", "torchrun", "torchlaunch"])
def test_two_nodes_train_as_one_process_would(job_yaml: Run, example: str) -> None:
    containers, log = job_yaml(GPU, f"pytorch/{example}.yaml")
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


def test_one_card(variables: Run) -> None:
    words = ("python", "train.py", "--steps", "10")
    _, log = variables(GPU, "pytorch", *words, tasks={"worker": 1}, gpus=1)
    place = "/home/ma-user/modelarts/user-job-dir/code"
    assert f"arguments ['--steps', '10'] in {place} by /usr/bin/python" in log
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < float(losses[1])


@pytest.mark.parametrize(
    ("command", "env", "nodes"),
    [
        (("python", "train.py", "--processes", "2"), {"ENTRYPOINT_LAUNCHER": "pytorch"}, 1),
        (("train.py",), {"MA_RUN_METHOD": "torchrun"}, 2),
    ],
    ids=["spawn on one node", "torchrun"],
)
def test_from_variables_alone(
    variables: Run, command: tuple[str, ...], env: dict[str, str], nodes: int
) -> None:
    containers, log = variables(GPU, "pytorch", *command, tasks={"worker": nodes}, env=env)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")
