"""One process a card, on simulated cards, with a rank table as ModelArts writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.containers import ASCEND
from tests.modelarts import ModelArts
from tests.rows import agrees, expected, places

Run = Callable[..., tuple[dict[str, str], str]]


def written_by_modelarts(folder: Path, pods: list[str]) -> tuple[str, ...]:
    """Its rank table, form v0.1, where its containers have it."""
    instances = [
        {
            "devices": [
                {"device_id": str(card), "device_ip": f"192.168.{node}.{card + 1}"}
                for card in range(2)
            ],
            "pod_name": pod,
            "server_id": pod,
        }
        for node, pod in enumerate(pods)
    ]
    group = {
        "group_name": "worker",
        "device_count": str(2 * len(pods)),
        "instance_count": str(len(pods)),
        "instance_list": instances,
    }
    table = {"group_count": "1", "group_list": [group], "status": "completed"}
    (folder / "jobstart_hccl.json").write_text(json.dumps(table))
    return (f"{folder}:/user/config:ro",)


@pytest.mark.parametrize("nodes", [1, 2])
def test_nodes_of_two_cards(modelarts: ModelArts, variables: Run, folder: Path, nodes: int) -> None:
    pods = [host.split(".")[0] for host in modelarts.hosts("worker", nodes)]
    containers, log = variables(
        ASCEND, "ascend", "train.py", tasks={"worker": nodes},
        env={"ENTRYPOINT_SIMULATE_ASCEND": "2"}, mounts=written_by_modelarts(folder, pods),
    )  # fmt: skip
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")
