"""Kubeflow's operators: one of the two for PyTorch is recognised, or none; who is not told its rank
is found by name.

Both set the same variables, torchrun's own, which people set by hand in containers of other
systems, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.model import Device, Facts
from entrypoint.plan import topology
from entrypoint.platforms import mpijob, pytorchjob, trainer
from entrypoint.spec import load
from entrypoint.values import replace

MASTER = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "MASTER_ADDR": "a-master-0", "RANK": "1"}
ELASTIC = {
    "PET_NNODES": "1:2",
    "PET_RDZV_ENDPOINT": "a-worker-0:23456",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
}
TORCH = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a-node-0-0.a"}
JAX = {"JAX_COORDINATOR_ADDRESS": "a-node-0-0.a:29500"}


def facts(hostname: str, env: dict[str, str]) -> Facts:
    plain: dict[str, Any] = {"cwd": "/job", "uid": 1000, "user": "u", "home": "/home/u"}
    return Facts(hostname=hostname, env=env, **plain)


@pytest.mark.parametrize(
    ("hostname", "env", "found"),
    [
        ("a-worker-0", MASTER, "pytorchjob"),
        ("a-worker-0", MASTER | {"PET_MASTER_ADDR": "a-master-0"}, "pytorchjob"),
        ("a-worker-1", ELASTIC, "pytorchjob"),
        ("a-worker-1", ELASTIC | {"PET_RDZV_ENDPOINT": "etcd:2379"}, "pytorchjob"),
        ("a-node-0-1", TORCH, "trainer"),
        (
            "a-node-0-1",
            TORCH | {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            "trainer",
        ),
        ("a-node-0-1", JAX, "trainer"),
        # Both at once: the TrainJob's address is the more telling one.
        ("a-worker-1", MASTER | TORCH, "trainer"),
        ("a-worker-1", ELASTIC | TORCH, "trainer"),
        ("a-worker-1", ELASTIC | JAX, "trainer"),
        # Set by hand: addresses, other systems' names, a plain container, a job of another kind.
        ("a", MASTER | {"MASTER_ADDR": "10.0.0.1"}, ""),
        ("a-worker-0", MASTER | {"MASTER_ADDR": "a-master-0.a"}, ""),
        ("a-worker-0", MASTER | {"MASTER_ADDR": "a-master-01"}, ""),
        ("a-worker-0", MASTER | {"MASTER_ADDR": "-master-0"}, ""),
        ("a", TORCH | {"PET_MASTER_ADDR": "10.0.0.1"}, ""),
        ("a", TORCH | {"PET_MASTER_ADDR": "a-node-0-0"}, ""),
        ("a", TORCH | {"PET_MASTER_ADDR": "a-node-0-0.b"}, ""),
        ("a", TORCH | {"PET_MASTER_ADDR": "-node-0-0."}, ""),
        ("a", {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:29500"}, ""),
        ("a-worker-1", ELASTIC | {"KUBERNETES_SERVICE_HOST": ""}, ""),
        ("a-worker-1", ELASTIC | {"JOB_COMPLETION_INDEX": "1"}, ""),
        ("a-worker-1", ELASTIC | {"VC_TASK_INDEX": "1"}, ""),
        ("a-worker-x", ELASTIC, ""),
        ("a-1", ELASTIC, ""),
        ("", ELASTIC, ""),
        ("a-worker-1", {}, ""),
    ],
)
def test_who_is_recognised(hostname: str, env: dict[str, str], found: str) -> None:
    container = facts(hostname, env)
    adapters = {"pytorchjob": pytorchjob, "trainer": trainer}
    assert [name for name, module in adapters.items() if module.matches(container)] == (
        [found] if found else []
    )


def test_a_volcano_job_with_an_endpoint_is_no_pytorchjob() -> None:
    """Its files tell it, where the plugin env gave it no index."""
    container = replace(
        facts("a-worker-1", ELASTIC),
        files={"/etc/volcano/worker.host": "a-worker-0.a\na-worker-1.a"},
    )
    assert not pytorchjob.matches(container)


@pytest.mark.parametrize(
    ("hosts", "rank"),
    [
        ("a-launcher.a, a-worker-0.a, a-worker-1.a, a-worker-10.a", 2),
        ("a-worker-10.a, a-worker-0.a, a-worker-11.a, a-worker-1.a", 3),
    ],
)
@pytest.mark.parametrize("platform", ["mpijob", "pytorchjob"])
def test_a_worker_without_a_rank_is_found_among_the_hosts_of_the_spec(
    platform: str, hosts: str, rank: int
) -> None:
    """Its own number says nothing about its place there."""
    container = facts("a-worker-1", ELASTIC | {"K_MPI_JOB_ROLE": "worker"})
    site = {"mpijob": mpijob, "pytorchjob": pytorchjob}[platform].site(container)
    assert (site.hosts, site.index, list(site.unknown)) == ((), None, ["hosts"])
    made = topology.build(
        load(f"hosts: [{hosts}]", "job.yaml", {}, {}), container, site, Device("cpu", 0, "none")
    )
    assert (made.me, made.job) == (rank, "a")
