"""TensorFlow in one container, between-graph with a parameter server, and with
ParameterServerStrategy."""

from __future__ import annotations

import re

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import TENSORFLOW, docker, logs
from tests.modelarts import ModelArts
from tests.rows import agrees, ended, said

IMAGE = TENSORFLOW
QUIET = {"TF_ENABLE_ONEDNN_OPTS": "0", "ENTRYPOINT_LAUNCHER": "tensorflow"}


def tensorflow_hosts(job: ModelArts, workers: int) -> dict[str, str]:
    """As ModelArts gives them: with a port, and in brackets."""
    return {
        "TF_WORKER_HOSTS": f"[{','.join(f'{host}:5000' for host in job.hosts('worker', workers))}]",
        "TF_PS_HOSTS": f"[{','.join(f'{host}:6000' for host in job.hosts('ps', 1))}]",
    }


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_one_node(request: pytest.FixtureRequest, given: str) -> None:
    if given == "job.yaml":
        mount = f"{TREE}/examples/tensorflow-single:/job:ro"
        log = docker("run", "--rm", "-v", mount, "-w", "/job", TENSORFLOW, "--spec", "job.yaml")
    else:
        run = request.getfixturevalue("variables")
        command = ("python", "train.py", "--steps", "20")
        _, log = run(TENSORFLOW, "tensorflow-single", *command, tasks={"worker": 1}, gpus=1)
    assert "arguments ['--steps', '20'] in " in log
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < 0.8 * float(losses[1])


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_between_graph(request: pytest.FixtureRequest, modelarts: ModelArts, given: str) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(
            TENSORFLOW, "tensorflow-between-graph/job.yaml"
        )
    else:
        run, env = request.getfixturevalue("variables"), {**QUIET, **tensorflow_hosts(modelarts, 2)}
        tasks = {"worker": 2, "ps": 1}
        containers, log = run(
            TENSORFLOW, "tensorflow-between-graph", "train.py", tasks=tasks, env=env, gpus=1
        )
    for name, each in containers.items():
        task, index, count = ("ps", 0, 1) if "ps-0" in name else ("worker", name[-1], 2)
        assert re.search(rf"{task} {index} of {count} on {name}, pid \d", logs(each)), log
    agrees(log, "1e-10")


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_parameter_server_strategy(
    request: pytest.FixtureRequest, modelarts: ModelArts, given: str
) -> None:
    if given == "job.yaml":
        containers, log = request.getfixturevalue("job_yaml")(
            TENSORFLOW, "tensorflow-parameter-server/job.yaml"
        )
    else:
        run, env = request.getfixturevalue("variables"), {**QUIET, **tensorflow_hosts(modelarts, 3)}
        env["ENTRYPOINT_TENSORFLOW_CHIEF"] = "worker-0"
        tasks = {"worker": 3, "ps": 1}
        containers, log = run(
            TENSORFLOW, "tensorflow-parameter-server", "train.py", tasks=tasks, env=env, gpus=1
        )
    workers = [name for name in containers if "ps-0" not in name]
    for name in workers[1:]:
        assert re.search(rf"{name} computed [1-9]\d* of 160 shares", log), log
    assert re.search(rf"chief 0 on {workers[0]}, pid", logs(containers[workers[0]])), log
    agrees(log, "1e-10")


def test_a_worker_that_fails_gives_every_container_its_status(compose: Compose) -> None:
    spec = TREE / "examples/tensorflow-between-graph/job.yaml"
    compose.render(spec, "train.py", "--fail", "5", "--fail-rank", "1", image=TENSORFLOW)
    compose.run("up", "-d")
    containers = compose.containers()
    # The example's grace is 10 s, and a parameter server may need it.
    statuses = ended(containers, together=12)
    assert statuses == dict.fromkeys(["ps-0", "worker-0", "worker-1"], 5), said(containers)
