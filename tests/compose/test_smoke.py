"""The example's three containers train with Horovod and torch, and end together."""

from __future__ import annotations

import re

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import exit_code, inspect

SPEC = TREE / "examples/horovod/job.yaml"


def run(compose: Compose) -> str:
    log = compose.run("up", "--no-color", "--exit-code-from", "worker-0")
    print(log)
    return log


@pytest.mark.control("all nodes exit with the status of the first rank that failed on its own")
def test_three_containers_train_and_end_together(compose: Compose) -> None:
    compose.render(SPEC)
    log = run(compose)
    containers = compose.containers()
    assert list(containers) == ["worker-0", "worker-1", "worker-2"]
    assert {name: exit_code(each) for name, each in containers.items()} == dict.fromkeys(
        containers, 0
    )
    places = re.findall(r"rank (\d) of 6 on (\S+), local rank (\d)", log)
    assert sorted(places) == [
        (str(rank), f"worker-{rank // 2}", str(rank % 2)) for rank in range(6)
    ]
    assert "6 ranks on 3 nodes: worker-0 0-1, worker-1 2-3, worker-2 4-5" in log
    difference = re.search(r"gradient difference to one process: (\S+) ", log)
    assert difference, log
    assert float(difference[1]) <= 1e-5
    losses = re.search(r"loss (\S+) -> (\S+)", log)
    assert losses, log
    assert float(losses[2]) < float(losses[1])
    running = [name for name in compose.containers().values() if inspect(name)["State"]["Running"]]
    assert not running, "a container is still running"
