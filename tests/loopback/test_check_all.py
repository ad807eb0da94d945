"""`check --all` over a real roll call: one table that names exactly the nodes with something
wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from tests.cluster import BEGIN, SMALL, Cluster, Make
from tests.process.bench import executable

pytestmark = pytest.mark.see

# The entrypoint on another machine. Its clock is not set by faketime: a Python under it cannot
# start programs reliably.
CLOCK = f"import time; now = time.time; time.time = lambda: now() + 600; {BEGIN}"
# What this machine itself may be short of.
OWN = {"cpus", "memory", "disk", "pids", "rdma", "rdma-files"}


def begin(
    job: Cluster,
    *words: str,
    code: Mapping[int, str] | None = None,
    env: Mapping[int, dict[str, str]] | None = None,
) -> None:
    """A check on every node; `code` of a node is run in place of the command's own."""
    for rank in reversed(range(job.nodes)):
        start(job, rank, *words, code=(code or {}).get(rank, BEGIN), env=(env or {}).get(rank))


def start(
    job: Cluster, rank: int, *words: str, code: str = BEGIN, env: dict[str, str] | None = None
) -> None:
    given = (
        *split("check --all --launcher mpirun"),
        *words,
        "--",
        "touch",
        f"{job.folder}/started",
    )
    job.start(rank, env=env, argv=(sys.executable, "-c", code, *given))


def found(job: Cluster) -> set[tuple[str, str, str]]:
    """Level, id and nodes of all that is not well, from worker-0's JSON."""
    lines = whole(job)["findings"]
    return {
        (it["level"], it["id"], " ".join(it["nodes"]))
        for it in lines
        if it["level"] != "ok" and it["id"] not in OWN
    }


def whole(job: Cluster) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(job.out(0))
    return answer


def hanging(folder: Path) -> dict[str, str]:
    """A PATH whose nvidia-smi never answers."""
    tool = executable(folder / "bin/nvidia-smi", "exec sleep 1000")
    return {"PATH": f"{tool.parent}:{os.environ['PATH']}"}


@pytest.mark.promise(
    "`check --all` names exactly the nodes with something wrong, and starts nothing"
)
def test_exactly_the_nodes_with_something_wrong_are_named(cluster: Make) -> None:
    job = cluster(4)
    begin(job, "--json", "--limit", "6", code={1: SMALL, 2: CLOCK}, env={3: hanging(job.folder)})
    assert job.ends() == {0: 0, 1: 0, 2: 0, 3: 0}, job.both()
    assert found(job) == {
        ("warning", "shared-memory", "worker-1"),
        ("warning", "clock", "worker-2"),
        ("warning", "unseen", "worker-3"),
    }
    seen = {it["id"]: it["seen"] for it in whole(job)["findings"] if it["level"] == "warning"}
    assert seen["shared-memory"] == "1 MiB free of 1 MiB in /dev/shm"
    assert seen["clock"] in {f"{number}s ahead of the others" for number in range(598, 603)}
    assert seen["unseen"] == "no answer within 6s"
    assert not (job.folder / "started").exists()
    assert job.out(1) == job.out(2) == job.out(3) == ""
    assert not job.survivors()


@pytest.mark.control(
    "`check --all` names exactly the nodes with something wrong, and starts nothing"
)
def test_nothing_wrong_is_0_and_strict_counts_warnings(cluster: Make) -> None:
    well, strict = cluster(2), cluster(2)
    begin(well, "--json")
    assert well.ends() == {0: 0, 1: 0}
    assert found(well) == set()
    (strict.folder / "strict").mkdir()
    strict.folder /= "strict"
    begin(strict, "--strict", code={1: SMALL})
    assert strict.ends() == {0: 78, 1: 78}, strict.both()
    (line,) = [
        line
        for line in strict.out(0).splitlines()
        if "shared memory" in line and line.startswith("warning")
    ]
    assert "worker-1" in line
    assert "--shm-size" in strict.out(0)
    assert "exit 78" in strict.err(1)
