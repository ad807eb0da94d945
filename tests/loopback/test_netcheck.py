"""`entrypoint netcheck` on nodes of this machine: real entrypoints, real sockets.

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

from entrypoint.netcheck.process import FILE
from entrypoint.record.file import record_of
from entrypoint.record.status import load
from tests import netdelay
from tests.cluster import Cluster, Make, until
from tests.loopback.conftest import ip

pytestmark = pytest.mark.see
OURS = (sys.executable, "-m", "entrypoint")
HELPER = "/".join(("", *FILE.parts[-3:]))  # /entrypoint/netcheck/helper.py
DELAY = 0.2  # seconds


def start(
    job: Cluster, *words: str, more: dict[int, dict[str, str]] | None = None, **env: str
) -> None:
    env = {"NETCHECK_SECONDS": "0.1", **env}
    ours = {f"ENTRYPOINT_{name}": value for name, value in env.items()}
    for rank in reversed(range(job.nodes)):
        own = {"ENTRYPOINT_LOG_DIR": str(job.folder / f"log{rank}"), **(more or {}).get(rank, {})}
        job.start(rank, argv=(*OURS, *words), env={**ours, **own})


def seen(job: Cluster) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((job.folder / "log0/netcheck.json").read_text())
    return answer


def test_all_pairs_are_measured_and_all_nodes_end_with_0(cluster: Make) -> None:
    job = cluster(3)
    start(job, "netcheck")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    pairs = {(pair["a"], pair["b"]): pair for pair in seen(job)["pairs"]}
    assert sorted(pairs) == [(0, 1), (0, 2), (1, 2)]
    for pair in pairs.values():
        assert pair["error"] == ""
        assert 0 < pair["latency_ms"] <= pair["worst_ms"]
        assert min(pair["there_gbps"], pair["back_gbps"]) > 0.01
    assert job.out(0).startswith("node  ")
    assert job.out(1) + job.out(2) == ""
    assert "<svg" in (job.folder / "log0/netcheck.html").read_text()
    results = [load(record_of(str(job.run_dir(rank)))).result for rank in range(3)]
    assert [result and result["status"] for result in results] == [0, 0, 0]
    assert not (job.folder / "log1").exists()
    assert job.survivors() == []


def test_json_is_all_that_stdout_has(cluster: Make) -> None:
    job = cluster(2)
    start(job, "netcheck", "--json")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert json.loads(job.out(0)) == seen(job)
    assert job.out(1) == ""


@pytest.mark.promise(
    "JSON logs make a command's messages JSON and leave its answer unchanged",
    control="the check before a job's program, and a check without JSON, in the same tests",
)
@pytest.mark.parametrize("words", [["netcheck"], ["netcheck", "--json"]], ids=["table", "json"])
def test_where_logs_are_json_its_answer_stays_one(words: list[str], cluster: Make) -> None:
    """What is said beside it is JSON; and where it runs before a job's program, which is the
    control, all of it is."""
    job = cluster(2)
    start(job, *words, LOGS_FORMAT="json", LOGS_TIMESTAMPS="utc")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    if "--json" in words:
        assert json.loads(job.out(0)) == seen(job)
    else:
        assert job.out(0).startswith("node  ")
    said = [json.loads(line) for line in (job.err(0) + job.err(1)).splitlines()]
    assert {each["node"] for each in said} == {"worker-0", "worker-1"}
    assert any(each["text"].startswith("wrote ") for each in said)
    control = cluster(2)
    job_words = ("run", "--launcher", "plain", "--", "echo", "ran")
    start(control, *job_words, LOGS_FORMAT="json", NETCHECK_WHEN="before")
    assert control.ends() == {0: 0, 1: 0}, control.both()
    lines = [json.loads(line) for line in (control.out(0) + control.err(0)).splitlines()]
    assert any(each["text"].startswith("usual: ") for each in lines)


@pytest.mark.control(
    "a network limit ends the job on every node; what is not asked for costs nothing"
)
def test_before_the_program_it_says_what_it_saw_and_the_program_runs(cluster: Make) -> None:
    job = cluster(2)
    start(job, "run", "--launcher", "plain", "--", "echo", "ran", NETCHECK_WHEN="before")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert (job.out(0), job.out(1)) == ("ran\n", "ran\n")  # stdout is the program's
    assert "usual: " in job.err(0)
    assert job.err(0).count("nodes are here") == 1, "one boot"
    assert len(seen(job)["pairs"]) == 1


@pytest.mark.promise(
    "a network limit ends the job on every node; what is not asked for costs nothing"
)
def test_a_limit_ends_the_job_on_every_node_before_the_program(cluster: Make) -> None:
    job = cluster(2)
    asked = {"NETCHECK_WHEN": "before", "NETCHECK_MIN_BANDWIDTH_GBPS": "1e6"}
    start(job, "run", "--launcher", "plain", "--", "echo", "ran", **asked)
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert job.out(0) + job.out(1) == ""
    for rank in (0, 1):
        assert (
            "EP013 the network is not fit for this job | worker-0 (node-0) and worker-1 (node-1)"
            " are slow" in job.err(rank)
        )
        assert "(limit 1e+06)" in job.err(rank)


def test_restarts_measure_until_it_is_fit(cluster: Make) -> None:
    job = cluster(2)
    asked = {"NETCHECK_WHEN": "before", "NETCHECK_MIN_BANDWIDTH_GBPS": "1e6", "RESTARTS": "1"}
    start(job, "run", "--launcher", "plain", "--", "echo", "ran", **asked)
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert job.err(0).count("usual: ") == 2
    assert job.err(1).count("starting again") == 1


def test_before_needs_a_roll_call_and_says_so(cluster: Make) -> None:
    job = cluster(2)
    start(job, "run", "--launcher", "plain", "--", "echo", "ran", NETCHECK_WHEN="before", SECRET="")
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert job.out(0) + job.out(1) == ""
    assert "no secret and no key files" in job.err(0)


@pytest.mark.control(
    "a network limit ends the job on every node; what is not asked for costs nothing"
)
def test_not_asked_for_it_measures_nothing(cluster: Make) -> None:
    job = cluster(2)
    start(job, "run", "--launcher", "plain", "--", "echo", "ran")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "usual: " not in job.err(0)
    assert not (job.folder / "log0").exists()


def test_a_node_that_runs_the_job_meanwhile_is_named(cluster: Make) -> None:
    job = cluster(2)
    job.start(1, argv=(*OURS, "run", "--launcher", "plain", "--", "true"))
    job.start(0, argv=(*OURS, "netcheck"))
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "the nodes disagree on launcher" in job.err(0)
    assert "plain (netcheck)" in job.err(0)


def test_one_node_has_no_network(cluster: Make) -> None:
    job = cluster(1)
    start(job, "netcheck")
    assert job.ends() == {0: 78}
    assert "EP012 a network check needs two nodes | this job has one | " in job.err(0)


def helper(job: Cluster, rank: int) -> int:
    """The process that measures for a node; 0 if there is none.

    What a node starts may be a wheel's, and so in another folder than what these tests import.
    """
    file, node = os.fsencode(HELPER), os.fsencode(f"ENTRYPOINT_RUN_DIR={job.run_dir(rank)}")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
            if node in environment and any(word.endswith(file) for word in argv):
                return int(entry.name)
    return 0


@pytest.mark.parametrize(
    "words", [["netcheck"], ["run", "--launcher", "plain", "--", "true"]], ids=["alone", "before"]
)
@pytest.mark.parametrize("node", [0, 1])
def test_sigterm_ends_it_on_every_node(words: list[str], node: int, cluster: Make) -> None:
    job = cluster(2)
    start(job, *words, NETCHECK_SECONDS="20", NETCHECK_WHEN="before")
    until(lambda: helper(job, 0) and helper(job, 1), 60, "it measures")
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert job.survivors() == []


@pytest.mark.promise("the helper that measures the network never outlives its entrypoint")
def test_a_node_that_is_lost_while_it_is_measured_ends_the_job_and_its_helper(
    cluster: Make,
) -> None:
    job = cluster(2)
    start(
        job,
        *split("run --launcher plain -- echo ran"),
        NETCHECK_SECONDS="20",
        NETCHECK_WHEN="before",
    )
    until(lambda: helper(job, 0) and helper(job, 1), 60, "it measures")
    job.signal(1, signal.SIGKILL)
    assert job.ends() == {0: 75, 1: -9}, job.both()
    assert "EP602 worker-1 (node-1) is lost" in job.err(0)
    assert job.out(0) == ""
    until(lambda: not helper(job, 1), 60, "its helper has ended")


@pytest.mark.promise("a node that freezes, leaves or never comes is a red cell and no hang")
def test_a_helper_that_is_frozen_is_a_red_cell_and_no_hang(cluster: Make) -> None:
    job = cluster(3)
    start(job, "netcheck", NETCHECK_SECONDS="5", TIMEOUTS_LAUNCH="5", TIMEOUTS_GRACE="1")
    until(lambda: helper(job, 2), 60, "its helper runs")
    os.kill(helper(job, 2), signal.SIGSTOP)
    assert job.ends() == dict.fromkeys(range(3), 75), job.both()
    assert "worker-2 (node-2) cannot be reached: " in job.err(0)
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in seen(job)["pairs"]}
    assert errors[0, 1] == ""
    assert errors[0, 2]
    assert errors[1, 2]
    assert helper(job, 2) == 0
    assert job.survivors() == []


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
    late: int, cluster: Make, nodes_of_a_switch: Callable[[int, int], list[str]]
) -> None:
    job, spaces = cluster(4), nodes_of_a_switch(4, late)
    hosts = ",".join(f"node-{rank}=10.77.0.{rank + 1}" for rank in range(4))
    for rank in reversed(range(4)):
        env = {"ENTRYPOINT_HOSTS": hosts, "ENTRYPOINT_LOG_DIR": str(job.folder / f"log{rank}")}
        env |= {"ENTRYPOINT_NETCHECK_MAX_LATENCY_MS": "100", "ENTRYPOINT_NETCHECK_SECONDS": "0.5"}
        job.start(rank, argv=("ip", "netns", "exec", spaces[rank], *OURS, "netcheck"), env=env)
    assert job.ends(120) == dict.fromkeys(range(4), 75), job.both()
    found = [each for each in seen(job)["findings"] if len(each["nodes"]) == 1]
    assert [(each["nodes"], each["causes"][0]) for each in found] == [
        ([f"worker-{late}"], "latency")
    ], job.out(0)
    latencies = {(pair["a"], pair["b"]): pair["latency_ms"] for pair in seen(job)["pairs"]}
    for pair, latency in latencies.items():
        assert (DELAY * 900 < latency < DELAY * 1500) if late in pair else latency < DELAY * 500, (
            latencies
        )
    for rank in range(4):
        words = (
            rf"not fit for this job \| worker-{late} \(node-{late}\) is slow: round trips take"
            r" 2\d\d ms \(limit 100\)"
        )
        assert re.search(words, job.err(rank)), job.err(rank)
