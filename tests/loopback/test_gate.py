"""The gate before each attempt, in real jobs on two nodes: a node that is not healthy never gets a
rank, and memory that is held delays the start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make, until
from tests.smi import calls, simulated_smi

ECC = (
    "EP460 a node is not healthy | GPU 1: 4 uncorrectable memory errors since the driver was loaded"
)
RUNS = ("sh", "-c", "echo started at $(date +%s.%N)")
LAUNCHERS = pytest.mark.parametrize("launcher", ["mpirun", "plain"])


def tools(job: Cluster, *ecc: int, held: float = 0.0) -> list[dict[str, str]]:
    """Return the variables of each node, whose simulated tool reports so many errors of a card."""
    folders = [
        simulated_smi(job.folder / f"bin-{rank}", ecc=(0, number), held=held if rank else 0.0)
        for rank, number in enumerate(ecc)
    ]
    return [
        {"PATH": f"{folder}:{os.environ['PATH']}", "ENTRYPOINT_RESTARTS": "1"} for folder in folders
    ]


def health(job: Cluster, rank: int, script: str) -> dict[str, str]:
    """Return the variables of a node that runs this script in its gate."""
    folder = job.folder / f"health-{rank}"
    folder.mkdir()
    file = folder / "10-check"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"ENTRYPOINT_GATE_FOLDER": str(folder)}


def start(
    job: Cluster,
    env: list[dict[str, str]],
    *command: str,
    launcher: str = "plain",
) -> None:
    for rank in reversed(range(job.nodes)):
        job.start(rank, *(command or RUNS), env=env[rank], launcher=launcher)


def started(job: Cluster) -> list[float]:
    """Return when each rank has started."""
    lines = [line for rank in range(job.nodes) for line in job.out(rank).splitlines()]
    return [float(line.split()[-1]) for line in lines if line.startswith("started at")]


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
@LAUNCHERS
@pytest.mark.parametrize("bad", [0, 1])
def test_a_node_with_errors_of_a_card_never_gets_a_rank(
    cluster: Make, launcher: str, bad: int
) -> None:
    job = cluster(2, slots=1)
    start(job, tools(job, *(4 if rank == bad else 0 for rank in (0, 1))), launcher=launcher)
    assert job.ends() == {0: 71, 1: 71}, job.both()
    name = f"worker-{bad} (node-{bad})"
    for rank in (0, 1):
        assert f"{ECC} on {name}; exit 71" in job.err(rank), job.both()
        assert f"cause: a node is not healthy on {name} (node; retry elsewhere)" in job.err(rank)
        assert started(job) == []


@pytest.mark.promise("a node that does not pass its gate never gets a rank")
@LAUNCHERS
def test_a_spare_takes_the_place_of_a_node_with_errors(cluster: Make, launcher: str) -> None:
    """It waits as a spare, and ends with the others."""
    job = cluster(3, slots=1)
    env = [{**each, "ENTRYPOINT_SPARES": "1"} for each in tools(job, 0, 4, 0)]
    start(job, env, "sh", "-c", "echo started at $NODE", launcher=launcher)
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    replaced = "EP623 worker-2 (node-2) takes the place of worker-1 (node-1): EP460 a node is not"
    assert replaced in job.err(0)
    assert sorted(started(job)) == [0, 2]


@pytest.mark.control("a node that does not pass its gate never gets a rank")
@LAUNCHERS
def test_nodes_that_are_healthy_get_their_ranks(cluster: Make, launcher: str) -> None:
    job = cluster(2, slots=1)
    start(job, tools(job, 0, 0), launcher=launcher)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert len(started(job)) == 2
    assert [calls(job.folder / f"bin-{rank}") for rank in (0, 1)] == [1, 1]


def test_a_job_that_cannot_start_again_asks_no_tool(cluster: Make) -> None:
    job = cluster(2, slots=1)
    env = [{**each, "ENTRYPOINT_RESTARTS": "0"} for each in tools(job, 0, 4)]
    start(job, env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert calls(job.folder / "bin-1") == 0


def delay(job: Cluster, launcher: str, held: float) -> float:
    """Return the seconds from the first call of the tool until the last rank has started."""
    start(job, tools(job, 0, 0, held=held), launcher=launcher)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    words = "the memory of cards is not free: GPU 0: 20480 MiB in use: pid 77 python"
    assert words in job.err(1)
    assert words in job.err(0) or held < 2, "the leader says what it waits for"
    assert len(started(job)) == 2
    return max(started(job)) - int((job.folder / "bin-1/begun").read_text()) / 1e6


@pytest.mark.promise(
    "an attempt waits until the memory of the cards is free, and says who holds it"
)
@LAUNCHERS
def test_memory_that_is_held_delays_the_start(cluster: Make, launcher: str) -> None:
    assert delay(cluster(2, slots=1), launcher, held=3) >= 3


@pytest.mark.control("a gate that is slow or missing stops no job")
@pytest.mark.parametrize("bad", [0, 1])
def test_an_executable_of_the_folder_names_the_node(cluster: Make, bad: int) -> None:
    job = cluster(2, slots=1)
    env = [
        health(job, rank, "echo link 3 is down; exit 1" if rank == bad else "true")
        for rank in (0, 1)
    ]
    start(job, env)
    assert job.ends() == {0: 71, 1: 71}, job.both()
    reason = f"EP460 a node is not healthy | 10-check: link 3 is down on worker-{bad} (node-{bad})"
    assert reason in job.err(0)
    assert reason in job.err(1)
    assert started(job) == []


@pytest.mark.promise("a gate that is slow or missing stops no job")
def test_a_slow_executable_stops_no_job(cluster: Make) -> None:
    job = cluster(2, slots=1)
    env = [{**health(job, rank, "sleep 60"), "ENTRYPOINT_GATE_SECONDS": "1"} for rank in (0, 1)]
    start(job, env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert job.err(1).count("EP465 the health check 10-check has no result | no end within ") == 1
    assert job.survivors() == []


FAILS_ONCE = 'echo started at $(date +%s.%N); [ -f "$DONE" ] || { touch "$DONE"; exit 75; }'


def test_a_later_attempt_has_a_gate_of_its_own(cluster: Make) -> None:
    """The node is healthy before the first attempt, and not any more before the second one."""
    job = cluster(2, slots=1)
    once = f"[ ! -f {job.folder}/done ] || {{ echo card 1 is gone; exit 1; }}"
    more = {"DONE": str(job.folder / "done"), "ENTRYPOINT_RESTARTS": "1"}
    more["ENTRYPOINT_RESTARTS_ON"] = "any"
    env = [{**health(job, rank, once if rank else "true"), **more} for rank in (0, 1)]
    start(job, env, "sh", "-c", FAILS_ONCE)
    assert job.ends() == {0: 71, 1: 71}, job.both()
    assert "10-check: card 1 is gone on worker-1 (node-1)" in job.err(0), job.both()
    assert job.err(1).count("attempt 1 of 2 is over") == 1
    assert len(started(job)) in (1, 2), "those of the first attempt"


def test_a_stop_in_a_gate_ends_at_once(cluster: Make) -> None:
    """In the second attempt, all nodes hear of it."""
    job = cluster(2, slots=1)
    slow = f"[ ! -f {job.folder}/done ] || {{ touch {job.folder}/waits; sleep 600; }}"
    more = {"DONE": str(job.folder / "done"), "ENTRYPOINT_RESTARTS": "1"}
    more |= {"ENTRYPOINT_RESTARTS_ON": "any", "ENTRYPOINT_GATE_SECONDS": "600"}
    env = [{**health(job, rank, slow if rank else "true"), **more} for rank in (0, 1)]
    start(job, env, "sh", "-c", FAILS_ONCE)
    until((job.folder / "waits").exists, 60, "the second gate")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert job.survivors() == []


@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
@pytest.mark.parametrize(("script", "status"), [("echo it is hot; exit 1", 71), ("true", 0)])
def test_one_node_alone_has_a_gate(cluster: Make, launcher: str, script: str, status: int) -> None:
    """Also where the entrypoint becomes the program."""
    job = cluster(1, slots=1)
    start(job, [health(job, 0, script)], launcher=launcher)
    assert job.ends() == {0: status}, job.both()
    assert len(started(job)) == (0 if status else 1)
    assert ("EP460 a node is not healthy | 10-check: it is hot" in job.err(0)) == bool(status)


@pytest.mark.parametrize("launcher", ["plain", "mpirun"])
def test_a_stop_of_one_node_alone_ends_its_gate(cluster: Make, launcher: str) -> None:
    job = cluster(1, slots=1)
    waits = Path(job.folder / "waits")
    start(job, [health(job, 0, f"touch {waits}; sleep 60")], launcher=launcher)
    until(waits.exists, 60, "its gate")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143}, job.both()
    assert job.survivors() == []
