"""Launchers with images of their own, in real containers: each example trains as one process would."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests import TREE
from tests.composed import Compose
from tests.containers import ACCELERATE, DEEPSPEED, JAX, LIGHTNING, MPICH, RAY, container
from tests.containers import IMAGE as GPU
from tests.rows import agrees, ended, said
from tests.waits import until


@dataclass(frozen=True)
class Example:
    """An example that prints `rank N of M on HOST, ...` from every process, and compares itself with
    one process as `agrees` reads it."""

    spec: str  # below examples/
    image: str
    tolerance: str = "1e-10"
    nodes: int = 2
    anywhere: bool = False  # rank 0 need not be on the first host, and so on


EXAMPLES = {
    "jax": Example("jax/job.yaml", JAX),
    "accelerate": Example("pytorch/accelerate.yaml", ACCELERATE),
    "deepspeed": Example("pytorch/deepspeed.yaml", DEEPSPEED, tolerance="1e-05"),
    "lightning": Example("pytorch/lightning.yaml", LIGHTNING),
    "ray-actors": Example("ray/job.yaml", RAY, anywhere=True),
    "ray-train": Example("ray/train.yaml", RAY, anywhere=True),
    "hydra": Example("mpi/hydra.yaml", MPICH),
    "elastic": Example("pytorch/elastic.yaml", GPU, nodes=3, anywhere=True),
}


@pytest.mark.promise("every launcher trains over several nodes as one process would")
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_trains_as_one_process_would(
    job_yaml: Callable[..., tuple[dict[str, str], str]], name: str
) -> None:
    example = EXAMPLES[name]
    containers, log = job_yaml(example.image, example.spec, seconds=200)
    hosts = [f"worker-{rank}" for rank in range(example.nodes)]
    assert list(containers) == hosts
    host_of = {int(rank): host for rank, host in re.findall(r"rank (\d+) of \d+ on ([\w.-]+)", log)}
    found = [host_of[rank] for rank in sorted(host_of)]
    wanted = [host for host in hosts for _ in range(2)]
    assert (sorted(found) if example.anywhere else found) == wanted, log
    agrees(log, example.tolerance)


def test_a_stopped_program_has_ray_until_it_has_saved(compose: Compose) -> None:
    words = ("python", "actors.py", "--stay")
    compose.render(TREE / "examples/ray/job.yaml", *words, image=RAY)
    compose.run("up", "-d")
    containers = compose.containers()

    def ranks(words: str) -> set[str]:
        return set(re.findall(rf"rank (\d+) {words}", said(containers)))

    until(lambda: len(ranks("is up")) == 4, "every process is up")
    container(containers["worker-1"]).kill("TERM")
    assert set(ended(containers, 100).values()) == {143}, said(containers)
    assert ranks("told") == ranks("is up"), said(containers)
