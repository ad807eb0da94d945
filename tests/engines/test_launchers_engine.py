"""JAX, Accelerate, DeepSpeed and Lightning on CPUs, each as its users start it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.containers import TREE, Compose
from tests.rows import ACCELERATE, DEEPSPEED, JAX, LIGHTNING, agrees, ended, expected, places, said

Ran = tuple[dict[str, str], str]
GIVEN = pytest.mark.parametrize("given", ["job.yaml", "variables"])


@pytest.fixture
def trained(request: pytest.FixtureRequest) -> Callable[..., Ran]:
    """Run the example from its job.yaml or from ModelArts' variables alone."""

    def run(given: str, image: str, example: str, launcher: str, *command: str) -> Ran:
        if given == "job.yaml":
            ran: Ran = request.getfixturevalue("job_yaml")(image, f"{example}/job.yaml")
        else:
            env = {"ENTRYPOINT_LAUNCHER": launcher}
            ran = request.getfixturevalue("variables")(image, example, *command, env=env)
        return ran

    return run


@GIVEN
def test_jax(trained: Callable[..., Ran], given: str) -> None:
    containers, log = trained(given, JAX, "jax", "jax", "python", "train.py")
    ran = re.findall(r"rank (\d) of 4 on (\S+), pid \d+, with 1 of 4 devices", log)
    assert sorted(ran) == [(str(2 * node + local), host) for node, host in enumerate(containers) for local in range(2)]
    agrees(log, "1e-10")


@GIVEN
def test_accelerate(trained: Callable[..., Ran], given: str) -> None:
    containers, log = trained(given, ACCELERATE, "accelerate", "accelerate", "train.py")
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


@GIVEN
def test_deepspeed(trained: Callable[..., Ran], given: str) -> None:
    containers, log = trained(given, DEEPSPEED, "deepspeed", "deepspeed", "train.py")
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-05")


@GIVEN
def test_lightning(trained: Callable[..., Ran], given: str) -> None:
    containers, log = trained(given, LIGHTNING, "lightning", "torchrun", "train.py")
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "image"),
    [("jax", JAX), ("accelerate", ACCELERATE), ("deepspeed", DEEPSPEED), ("lightning", LIGHTNING)],
    ids=["jax", "accelerate", "deepspeed", "lightning"],
)
def test_a_failing_process_gives_its_status_to_both_containers(compose: Compose, example: str, image: str) -> None:
    command = ("python", "train.py", "--fail", "7", "--fail-rank", "3")
    compose.render(TREE / f"examples/{example}/job.yaml", *command, image=image)
    compose.run("up", "-d")
    containers = compose.containers()
    assert set(ended(containers, 150).values()) == {7}, said(containers)
    assert "rank 3 exited with 7 on worker-1; exit 7" in said(containers)
