"""The examples that tests/engines/test_launchers.py runs, and what tests of containers look at
when those have ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.containers import (
    ACCELERATE,
    DEEPSPEED,
    JAX,
    LIGHTNING,
    MPICH,
    RAY,
    exit_code,
    finished_at,
    logs,
    wait,
)
from tests.containers import IMAGE as GPU


@dataclass(frozen=True)
class Example:
    """An example that tests/engines/test_launchers.py runs in each way that it has.

    It prints `rank N of M on HOST, ...` from every process, and compares itself with one process as
    `agrees` reads it. With `--fail S` one ends with S half way; with `--stay` each says `rank N is
    up`, and at SIGTERM `rank N told`.
    """

    launcher: str
    spec: str  # below examples/
    image: str
    program: tuple[str, ...] = ("train.py",)  # the command's first words
    tolerance: str = "1e-10"
    nodes: int = 2
    slots: int = 2
    ways: str = "trains fails stops"
    anywhere: bool = False  # rank 0 need not be on the first host, and so on

    @property
    def hosts(self) -> list[str]:
        return [f"worker-{rank}" for rank in range(self.nodes)]


_ALL = "trains variables fails stops"
EXAMPLES = {
    "jax": Example("jax", "jax/job.yaml", JAX, ("python", "train.py"), ways=_ALL),
    "accelerate": Example("accelerate", "accelerate/job.yaml", ACCELERATE, ways=_ALL),
    "deepspeed": Example(
        "deepspeed",
        "deepspeed/job.yaml",
        DEEPSPEED,
        tolerance="1e-05",
        ways=_ALL,
    ),
    "lightning": Example("torchrun", "lightning/job.yaml", LIGHTNING, ways=_ALL),
    "ray-actors": Example("ray", "ray/job.yaml", RAY, ("python", "actors.py"), anywhere=True),
    "ray-train": Example(
        "ray",
        "ray/train.yaml",
        RAY,
        ("python", "train.py"),
        ways="trains",
        anywhere=True,
    ),
    "hydra": Example("hydra", "hydra/job.yaml", MPICH, ("python", "train.py")),
    "elastic": Example(
        "torchrun",
        "pytorch-elastic/job.yaml",
        GPU,
        nodes=3,
        ways="trains fails stops loses",
        anywhere=True,
    ),
}


def said(containers: dict[str, str]) -> str:
    """Everything that these containers printed."""
    return "".join(f"--- {name}\n{logs(each)}" for name, each in containers.items())


def ended(
    containers: dict[str, str], seconds: float = 150, together: float = 2.0
) -> dict[str, int]:
    """Each container's status; all end by themselves, and together."""
    wait(*containers.values(), timeout=seconds)
    ends = [finished_at(each) for each in containers.values()]
    assert max(ends) - min(ends) < together, said(containers)
    return {name: exit_code(each) for name, each in containers.items()}


def places(log: str) -> list[tuple[str, str, str]]:
    """Rank, host and local rank, as the examples print them."""
    return sorted(re.findall(r"rank (\d+) of \d+ on (\S+), local rank (\d+), pid \d", log))


def expected(hosts: list[str], slots: int = 2) -> list[tuple[str, str, str]]:
    """What `places` has to be."""
    every = [(host, local) for host in hosts for local in range(slots)]
    return sorted((str(rank), host, str(local)) for rank, (host, local) in enumerate(every))


def agrees(log: str, allowed: str, falling: bool = True) -> None:
    """The example's own comparison with one process, and its loss."""
    found = re.search(r"difference to one process: (\S+) \(allowed (\S+)\)", log)
    assert found, log
    assert found[2] == allowed, log
    assert float(found[1]) <= float(allowed), log
    if falling:
        losses = re.search(r"loss (\S+) -> (\S+)", log)
        assert losses, log
        assert float(losses[2]) < 0.8 * float(losses[1]), log
