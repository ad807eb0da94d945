"""`entrypoint netcheck` on nodes of this machine: real entrypoints, a real torch.

A node's delay is made by `tc netem` where the kernel has it, else by tests/netdelay.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from entrypoint.features.record.file import record_of
from entrypoint.features.record.status import load
from tests import netdelay
from tests.cluster import Cluster, Make
from tests.loopback.conftest import ip
from tests.waits import until

pytestmark = pytest.mark.see
OURS = (sys.executable, "-m", "entrypoint")
RUN = split("run --launcher plain -- echo ran")
DELAY = 0.2  # seconds

Start = Callable[..., None]


@pytest.fixture
def start(torch_python: str) -> Start:
    """Start `entrypoint WORDS` on all nodes of a job, with these settings."""

    def all_nodes(job: Cluster, *words: str, **settings: str) -> None:
        settings = {"NETCHECK_SECONDS": "0.2", **settings}
        env = {f"ENTRYPOINT_{name}": value for name, value in settings.items()}
        env |= {"PYTHON": torch_python, "OMP_NUM_THREADS": "1"}
        for rank in reversed(range(job.nodes)):
            own = {"ENTRYPOINT_LOG_DIR": str(job.folder / f"log{rank}")}
            job.start(rank, argv=(*OURS, *words), env={**env, **own})

    return all_nodes


def seen(job: Cluster) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((job.folder / "log0/netcheck.json").read_text())
    return answer


def test_all_pairs_are_measured_and_all_nodes_end_with_0(cluster: Make, start: Start) -> None:
    job = cluster(3)
    start(job, "netcheck")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    pairs = {(pair["a"], pair["b"]): pair for pair in seen(job)["pairs"]}
    assert sorted(pairs) == [(0, 1), (0, 2), (1, 2)]
    for pair in pairs.values():
        assert pair["error"] == ""
        assert 0 < pair["latency_ms"] <= pair["worst_ms"]
        assert pair["gbps"] > 0
    assert seen(job)["together"]["gbps"] > 0
    assert job.out(0).startswith("node  ")
    assert job.out(1) + job.out(2) == ""
    results = [load(record_of(str(job.run_dir(rank)))).result for rank in range(3)]
    assert [result and result["status"] for result in results] == [0, 0, 0]
    assert not (job.folder / "log1").exists()
    assert job.survivors() == []


@pytest.mark.promise(
    "a network limit ends the job on every node; what is not asked for costs nothing"
)
def test_a_limit_ends_the_job_on_every_node_before_the_program(cluster: Make, start: Start) -> None:
    job = cluster(2)
    start(job, *RUN, NETCHECK_WHEN="before", NETCHECK_MIN_BANDWIDTH_GBPS="1e6", RESTARTS="1")
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert job.out(0) + job.out(1) == ""
    for rank in (0, 1):
        assert (
            "EP013 the network is not fit for this job | worker-0 (node-0) and worker-1 (node-1)"
            " are slow" in job.err(rank)
        )
        assert "(limit 1e+06)" in job.err(rank)
    assert job.err(0).count("usual: ") == 2, "it measures again, until the network is fit"


@pytest.mark.control(
    "a network limit ends the job on every node; what is not asked for costs nothing"
)
@pytest.mark.parametrize("when", ["before", "asked"])
def test_the_program_runs_and_what_is_not_asked_for_is_not_measured(
    when: str, cluster: Make, start: Start
) -> None:
    job = cluster(2)
    start(job, *RUN, NETCHECK_WHEN=when)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert (job.out(0), job.out(1)) == ("ran\n", "ran\n")  # stdout is the program's
    assert job.err(0).count("nodes are here") == 1, "one boot"
    assert ("usual: " in job.err(0)) == (when == "before")
    assert (job.folder / "log0").exists() == (when == "before")


def test_one_node_has_no_network(cluster: Make) -> None:
    job = cluster(1)
    job.start(0, argv=(*OURS, "netcheck"))
    assert job.ends() == {0: 78}
    assert "EP012 the network cannot be measured | this job has one node | " in job.err(0)


def measuring(job: Cluster, rank: int) -> int:
    """The process of torch that measures for a node; 0 if there is none."""
    node = os.fsencode(f"ENTRYPOINT_RUN_DIR={job.run_dir(rank)}")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"init_process_group" not in (entry / "cmdline").read_bytes():
                continue
            if node in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
    return 0


@pytest.mark.promise(
    "the process that measures the network never outlives its entrypoint",
    control="the same search finds it while it measures, in the same test",
)
@pytest.mark.parametrize(
    ("signum", "statuses"),
    [(signal.SIGTERM, {0: 143, 1: 143}), (signal.SIGKILL, {0: 75, 1: -9})],
    ids=["stopped", "lost"],
)
def test_a_node_that_ends_while_it_is_measured_ends_all(
    signum: int, statuses: dict[int, int], cluster: Make, start: Start
) -> None:
    job = cluster(2)
    start(job, *RUN, NETCHECK_SECONDS="20", NETCHECK_WHEN="before")
    until(lambda: measuring(job, 0) and measuring(job, 1), "it measures")
    job.signal(1, signum)
    assert job.ends() == statuses, job.both()
    assert job.out(0) == ""
    until(lambda: not job.survivors(), "what measured has ended")


# --------------------------------------------------------------------------------------------------
# A slow node, each node in a network namespace of its own


@pytest.fixture
def nodes_of_a_switch() -> Iterator[Callable[[int, int], list[str]]]:
    """Namespaces whose nodes are 10.77.0.1, 10.77.0.2, ... on one switch; what the node `late`
    sends takes 200 ms."""
    made: list[str] = []
    carriers: list[subprocess.Popen[bytes]] = []

    def make(nodes: int, late: int) -> list[str]:
        switch, *spaces = (f"nc{os.getpid()}-{number}" for number in range(nodes + 1))
        if not ip(f"netns add {switch}", check=False):
            pytest.skip("may not make network namespaces here")
        made.append(switch)
        ip(f"-n {switch} link add br0 type bridge")
        ip(f"-n {switch} link set br0 up")
        for number, space in enumerate(spaces):
            ip(f"netns add {space}")
            made.append(space)
            ip(f"-n {space} link set lo up")
            if number == late and not netdelay.has_netem():
                here, there = f"a{os.getpid()}", f"b{os.getpid()}"
                carriers.append(netdelay.start(here, there, DELAY))
                ip(f"link set {here} netns {space} name eth0")
                ip(f"link set {there} netns {switch} name p{number}")
            else:
                ip(f"-n {space} link add eth0 type veth peer name p{number} netns {switch}")
            ip(f"-n {switch} link set p{number} master br0")
            ip(f"-n {switch} link set p{number} up")
            ip(f"-n {space} address add 10.77.0.{number + 1}/24 dev eth0")
            ip(f"-n {space} link set eth0 up")
            if number == late and netdelay.has_netem():
                words = f"tc -n {space} qdisc add dev eth0 root netem delay {DELAY * 1000:.0f}ms"
                subprocess.run(words.split(), check=True)
        return spaces

    yield make
    for carrier in carriers:
        carrier.kill()
        carrier.communicate()
    for name in made:
        ip(f"netns delete {name}", check=False)


@pytest.mark.promise("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 2])
def test_a_node_whose_packets_are_late_is_named_with_its_cause(
    late: int, cluster: Make, torch_python: str, nodes_of_a_switch: Callable[[int, int], list[str]]
) -> None:
    job, spaces = cluster(4), nodes_of_a_switch(4, late)
    hosts = ",".join(f"node-{rank}=10.77.0.{rank + 1}" for rank in range(4))
    for rank in reversed(range(4)):
        env = {"ENTRYPOINT_HOSTS": hosts, "ENTRYPOINT_LOG_DIR": str(job.folder / f"log{rank}")}
        env |= {"ENTRYPOINT_NETCHECK_MAX_LATENCY_MS": "100", "ENTRYPOINT_NETCHECK_SECONDS": "0.5"}
        env |= {"PYTHON": torch_python, "OMP_NUM_THREADS": "1"}
        job.start(rank, argv=("ip", "netns", "exec", spaces[rank], *OURS, "netcheck"), env=env)
    assert job.ends() == dict.fromkeys(range(4), 75), job.both()
    found = [each for each in seen(job)["findings"] if len(each["nodes"]) == 1]
    assert [(each["nodes"], each["causes"][0]) for each in found] == [
        ([f"worker-{late}"], "latency")
    ], job.out(0)
    latencies = {(pair["a"], pair["b"]): pair["latency_ms"] for pair in seen(job)["pairs"]}
    for pair, latency in latencies.items():
        assert (latency > DELAY * 900) == (late in pair), latencies
    for rank in range(4):
        words = (
            rf"not fit for this job \| worker-{late} \(node-{late}\) is slow: a small all-reduce"
            r" takes [2-5]\d\d ms \(limit 100\)"
        )
        assert re.search(words, job.err(rank)), job.err(rank)
