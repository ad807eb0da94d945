"""`entrypoint status` beside a real boot of two nodes: who is missing, who runs, who is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from shlex import split
from typing import Any

import pytest

from tests.cluster import Cluster, Make, clean_environment, until

pytestmark = pytest.mark.see
RUNS = ("sh", "-c", 'echo up; until [ -e "$GO" ]; do sleep 0.1; done')


def ask(job: Cluster, rank: int) -> tuple[int, dict[str, Any]]:
    """Its exit status, and what it says as JSON."""
    words = [
        sys.executable,
        *split("-m entrypoint status --json --run-dir"),
        str(job.run_dir(rank)),
    ]
    done = subprocess.run(
        words, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def phases(job: Cluster, rank: int) -> list[tuple[str, str]]:
    return [(each["node"], each["phase"]) for each in ask(job, rank)[1].get("nodes", [])]


@pytest.mark.promise("`entrypoint status` shows each node's phase from the first wait to the end")
def test_from_the_wait_for_a_peer_to_the_end(cluster: Make) -> None:
    job = cluster(2)
    env = {"GO": str(job.folder / "go")}
    job.start(0, *RUNS, env=env)
    waiting = [("worker-0", "roll call"), ("worker-1", "missing")]
    until(lambda: phases(job, 0) == waiting, 60, "who is missing")
    until(
        lambda: ask(job, 0)[1]["nodes"][1]["detail"] == "nothing listens there yet", 60, "why it is"
    )
    job.start(1, *RUNS, env=env)
    running = [("worker-0", "running"), ("worker-1", "running")]
    until(lambda: phases(job, 0) == running, 60, "both run")
    until(lambda: phases(job, 1) == running, 60, "both run, as the worker sees it")
    until(lambda: [node["ranks"] for node in ask(job, 0)[1]["nodes"]] == [2, 2], 60, "all ranks")
    code, seen = ask(job, 0)
    assert code == 0
    here, there = seen["nodes"]
    assert (here["heartbeat_seconds"], there["heartbeat_seconds"] is None) == (None, False)
    until(
        lambda: ask(job, 0)[1]["nodes"][1]["idle_seconds"] is not None,
        60,
        "its idle time, by its heartbeat",
    )
    leader, worker = ask(job, 1)[1]["nodes"]
    assert (leader["heartbeat_seconds"] is not None, worker["ranks"]) == (True, 2)
    (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0}
    for rank in range(2):
        code, seen = ask(job, rank)
        assert (code, seen["phase"], seen["status"]) == (0, "ended", 0)
