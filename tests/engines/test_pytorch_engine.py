"""PyTorch's rows that tests/compose/test_torch_nodes.py has not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests import TREE
from tests.containers import IMAGE as GPU
from tests.containers import docker
from tests.rows import agrees, expected, places

Run = Callable[..., tuple[dict[str, str], str]]


def test_one_card(variables: Run) -> None:
    _, log = variables(
        GPU, "pytorch-single", "python", "train.py", "--steps", "10", tasks={"worker": 1}, gpus=1
    )
    assert (
        "arguments ['--steps', '10'] in /home/ma-user/modelarts/user-job-dir/code by"
        " /usr/bin/python" in log
    )
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < float(losses[1])


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_one_node_of_two_cards(request: pytest.FixtureRequest, given: str) -> None:
    command = ["python", "train.py", "--processes", "2"]
    if given == "job.yaml":
        mount = f"{TREE}/examples/pytorch-spawn:/job:ro"
        words = ["--spec", "job.yaml", "--hosts", "worker-0", "--", *command]
        log = docker(
            "run", "--rm", "--hostname", "worker-0", "-v", mount, "-w", "/job", GPU, *words
        )
        hosts = ["worker-0"]
    else:
        run, env = request.getfixturevalue("variables"), {"ENTRYPOINT_LAUNCHER": "pytorch"}
        containers, log = run(GPU, "pytorch-spawn", *command, tasks={"worker": 1}, env=env)
        hosts = list(containers)
    assert places(log) == expected(hosts), log
    agrees(log, "1e-10")


@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"])
def test_from_variables_alone(variables: Run, launcher: str) -> None:
    containers, log = variables(
        GPU, f"pytorch-{launcher}", "train.py", env={"ENTRYPOINT_LAUNCHER": launcher}
    )
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


def test_run_method_is_torchrun(variables: Run) -> None:
    containers, log = variables(
        GPU, "pytorch-torchrun", "train.py", env={"MA_RUN_METHOD": "torchrun"}
    )
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")
