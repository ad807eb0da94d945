"""Kubeflow's operators: one of the two for PyTorch is recognised, or none; who is not told its rank
is found by name.

Both set the same variables, torchrun's own, which people set by hand in containers of other
systems, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from entrypoint.base.model import Device, Facts
from entrypoint.base.values import replace
from entrypoint.plan import topology
from entrypoint.platforms import mpijob, pytorchjob, trainer
from entrypoint.platforms._clues import read
from entrypoint.spec import load
from tests import table

PODS = table("tests/tables/pods.yaml")
ELASTIC = PODS["elastic"]


def facts(hostname: str, env: dict[str, str]) -> Facts:
    plain: dict[str, Any] = {"cwd": "/job", "uid": 1000, "user": "u", "home": "/home/u"}
    return Facts(hostname=hostname, env=env, **plain)


@pytest.mark.parametrize(("hostname", "env", "found"), PODS["kubeflow"])
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
    site = read({"mpijob": mpijob, "pytorchjob": pytorchjob}[platform], container)
    assert (site.hosts, site.index, list(site.unknown)) == ((), None, ["hosts"])
    made = topology.build(
        load(f"hosts: [{hosts}]", "job.yaml", {}, {}), container, site, Device("cpu", 0, "none")
    )
    assert (made.me, made.job) == (rank, "a")
