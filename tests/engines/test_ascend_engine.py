"""One process a card, on simulated cards, with a rank table of ours or as ModelArts writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

from tests.containers import ASCEND
from tests.modelarts import ModelArts
from tests.rows import agrees, ended, expected, places, said

SIMULATED = {"ENTRYPOINT_SIMULATE_ASCEND": "2"}
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


@pytest.mark.parametrize("given", ["job.yaml", "variables"])
def test_two_nodes_of_two_cards(
    modelarts: ModelArts, variables: Run, folder: Path, given: str
) -> None:
    if given == "job.yaml":
        env = {
            **SIMULATED,
            "ENTRYPOINT_SPEC": "job.yaml",
            "RANK_TABLE_FILE": modelarts.CODE,
            "ENTRYPOINT_SECRET": token_hex(32),
        }
        hosts = ["worker-0", "worker-1"]
        containers = {host: modelarts.container(ASCEND, host, "ascend", env=env) for host in hosts}
        assert ended(containers) == dict.fromkeys(hosts, 0), said(containers)
        log = said(containers)
    else:
        pods = [host.split(".")[0] for host in modelarts.hosts("worker", 2)]
        mounts = written_by_modelarts(folder, pods)
        containers, log = variables(ASCEND, "ascend", "train.py", env=SIMULATED, mounts=mounts)
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")


def test_one_node(modelarts: ModelArts, variables: Run, folder: Path) -> None:
    mounts = written_by_modelarts(
        folder, [host.split(".")[0] for host in modelarts.hosts("worker", 1)]
    )
    containers, log = variables(
        ASCEND, "ascend", "train.py", tasks={"worker": 1}, env=SIMULATED, mounts=mounts
    )
    assert places(log) == expected(list(containers)), log
    agrees(log, "1e-10")
