"""`entrypoint stacks`, next to a running job of two nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.cluster import Cluster, Make, until

STUCK = (
    "import time\ndef waits_for_nobody():\n    time.sleep(600)\nprint('up',"
    " flush=True)\nwaits_for_nobody()\n"
)
VENV = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # where py-spy is


def stacks(
    job: Cluster, rank: int, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "entrypoint", "stacks", "--run-dir", str(job.run_dir(rank))]
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.promise("`entrypoint stacks` says what the ranks of a running job do, which goes on")
@pytest.mark.parametrize("way", ["py-spy", "signal"])
def test_the_ranks_of_all_nodes_are_compared(cluster: Make, way: str) -> None:
    job = cluster(2, slots=1)
    env = {"PATH": VENV, "ENTRYPOINT_STALL_STACKS": way, "ENTRYPOINT_STALL_MINUTES": "60"}
    job.start_all(sys.executable, "-c", STUCK, env=env)
    until(lambda: job.out(0).count("up") == 2, 60, "both ranks")
    everyone = stacks(job, 0)
    assert everyone.returncode == 0, everyone.stderr
    assert everyone.stdout.startswith(
        "all 2 ranks are in waits_for_nobody(), <string>:3: no rank differs from the others\n"
    ), everyone.stdout
    assert "  rank 0 on worker-0 (node-0), rank 1 on worker-1 (node-1): is in" in everyone.stdout
    own = stacks(job, 1)
    assert own.stdout.startswith("the only rank is in waits_for_nobody(), <string>:3"), own.stdout
    assert all(process.poll() is None for process in job.processes.values())
    assert "EP6" not in job.err(0), "nothing is said of it in the log"
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}


@pytest.mark.control("`entrypoint stacks` says what the ranks of a running job do, which goes on")
def test_a_job_without_ranks_has_none(cluster: Make) -> None:
    """The control: one whose other node is not there, and one that has ended."""
    job = cluster(2, slots=1)
    job.start(0, "sleep", "600")
    until(lambda: "1 of 1" in job.err(0) or "peer" in job.err(0), 60, "the roll call")
    early = stacks(job, 0)
    assert early.returncode == 69, early
    assert "EP038 stacks cannot be read | no rank runs yet" in early.stderr
    job.start(1, "sleep", "600")
    until(lambda: "started" in job.err(0) or "all 2 nodes" in job.err(0), 60, "the start")
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}
    late = stacks(job, 0)
    assert late.returncode in (66, 69), late
    assert re.search("EP03[08]", late.stderr)
