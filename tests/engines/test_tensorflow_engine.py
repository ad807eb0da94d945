"""TensorFlow in one container, between-graph with a parameter server, and with
ParameterServerStrategy."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.containers import TENSORFLOW, logs
from tests.modelarts import ModelArts
from tests.rows import agrees

IMAGE = TENSORFLOW
Run = Callable[..., tuple[dict[str, str], str]]
QUIET = {"TF_ENABLE_ONEDNN_OPTS": "0", "ENTRYPOINT_LAUNCHER": "tensorflow"}


def tensorflow_hosts(job: ModelArts, workers: int) -> dict[str, str]:
    """As ModelArts gives them: with a port, and in brackets."""
    return {
        "TF_WORKER_HOSTS": f"[{','.join(f'{host}:5000' for host in job.hosts('worker', workers))}]",
        "TF_PS_HOSTS": f"[{','.join(f'{host}:6000' for host in job.hosts('ps', 1))}]",
    }


def test_one_node(variables: Run) -> None:
    command = ("python", "train.py", "--steps", "20")
    _, log = variables(TENSORFLOW, "tensorflow", *command, tasks={"worker": 1}, gpus=1)
    assert "arguments ['--steps', '20'] in " in log
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < 0.8 * float(losses[1])


def test_between_graph(variables: Run, modelarts: ModelArts) -> None:
    containers, log = variables(
        TENSORFLOW, "tensorflow", "between_graph.py", tasks={"worker": 2, "ps": 1},
        env={**QUIET, **tensorflow_hosts(modelarts, 2)}, gpus=1,
    )  # fmt: skip
    for name, each in containers.items():
        task, index, count = ("ps", 0, 1) if "ps-0" in name else ("worker", name[-1], 2)
        assert re.search(rf"{task} {index} of {count} on {name}, pid \d", logs(each)), log
    agrees(log, "1e-10")


def test_parameter_server_strategy(variables: Run, modelarts: ModelArts) -> None:
    chief = {"ENTRYPOINT_TENSORFLOW_CHIEF": "worker-0"}
    containers, log = variables(
        TENSORFLOW, "tensorflow", "train.py", tasks={"worker": 3, "ps": 1},
        env={**QUIET, **tensorflow_hosts(modelarts, 3), **chief}, gpus=1,
    )  # fmt: skip
    workers = [name for name in containers if "ps-0" not in name]
    for name in workers[1:]:
        assert re.search(rf"{name} computed [1-9]\d* of 160 shares", log), log
    assert re.search(rf"chief 0 on {workers[0]}, pid", logs(containers[workers[0]])), log
    agrees(log, "1e-10")
