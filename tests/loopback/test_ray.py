"""Ray itself on two nodes of this machine, each in a network namespace: the real ray start, the
real examples.

What ray_node.py makes of Ray's ends is in tests/process/test_ray_node.py, with a Ray of our own.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from shlex import split

import pytest

from tests import TREE
from tests.cluster import RUN, Cluster, Make
from tests.command import captured
from tests.waits import until

pytestmark = [pytest.mark.slow]
SERVED = set(range(6379, 6386))  # as docs/how-to/engines.md names them
# A client of its own, as a stranger would start it.
STRANGER = """
import os, sys, ray
ray.init("10.77.0.1:6379", logging_level="ERROR", log_to_driver=False)
print("in", ray.cluster_resources()["CPU"])
"""


class Job:
    """Two nodes of two cores each."""

    def __init__(self, made: Cluster, spaces: list[str], python: str) -> None:
        self.cluster, self.spaces, self.python = made, spaces, python
        made.meeting = None  # the ports are Ray's own

    def start(self, *words: str) -> None:
        program = ("python", str(TREE / "examples/ray/actors.py"), *words)
        for rank in (1, 0):
            env = {
                "ENTRYPOINT_HOSTS": "node-0=10.77.0.1,node-1=10.77.0.2",
                "PATH": f"{Path(self.python).parent}:/usr/sbin:/usr/bin:/bin",
                "RAY_TMPDIR": str(self.cluster.folder / f"t{rank}"),
                "DEMO_NODE": f"node-{rank}",
                "OMP_NUM_THREADS": "1",
                "RAY_DEDUP_LOGS": "0",
            }
            space = ("ip", "netns", "exec", self.spaces[rank])
            argv = (*space, *RUN, "--launcher", "ray", "--", *program)
            self.cluster.start(rank, argv=argv, env=env)

    def inside(self, rank: int, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command in a node's network, as somebody without the job's files would start it."""
        argv = ("ip", "netns", "exec", self.spaces[rank], *words)
        env = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(self.cluster.folder), **env}
        return captured(argv, env=env)


@pytest.fixture
def job(cluster: Make, spaces: Callable[..., list[str]], python_with: Callable[[str], str]) -> Job:
    python = python_with("ray")
    return Job(cluster(2), spaces(1), python)


@pytest.mark.promise("with ray every node ends with the program's status and stops after it")
def test_actors_run_on_both_nodes_and_the_program_s_status_is_everybody_s(job: Job) -> None:
    job.start("--fail", "7")
    assert job.cluster.ends() == {0: 7, 1: 7}, job.cluster.both()
    hosts = re.findall(r"rank \d of 4 on (\S+), pid", job.cluster.out(0))
    assert sorted(hosts) == split("node-0 node-0 node-1 node-1")
    assert job.cluster.out(1) == ""
    said = "ray on worker-0 (node-0) exited with 7; exit 7"
    assert said in job.cluster.err(1), job.cluster.both()
    assert job.cluster.survivors() == []


@pytest.mark.promise(
    "nobody without the job's token uses its Ray", control="the right token, in the same test"
)
def test_nobody_without_the_job_s_token_gets_in(job: Job) -> None:
    """Then it is stopped: Ray stays on all nodes until the program has saved."""
    job.start("--stay")
    until(lambda: "rank 3 is up" in job.cluster.out(0), "the program is up")
    served = job.inside(0, "ss", "-Hltn").stdout
    ports = {int(port) for port in re.findall(r":(\d+) ", served)}
    assert ports >= SERVED, served
    assert 8265 not in ports, served
    refused = job.inside(1, job.python, "-c", STRANGER)
    assert refused.returncode != 0, refused.stdout
    assert "in " not in refused.stdout
    token = {"RAY_AUTH_MODE": "token"}
    wrong = job.inside(1, job.python, "-c", STRANGER, **token, RAY_AUTH_TOKEN="0" * 64)
    assert wrong.returncode != 0, wrong.stdout
    # the control
    path = str(job.cluster.run_dir(1) / "token")
    right = job.inside(1, job.python, "-c", STRANGER, **token, RAY_AUTH_TOKEN_PATH=path)
    assert right.stdout == "in 4.0\n", right.stderr
    job.cluster.signal(1, signal.SIGTERM)
    assert job.cluster.ends() == {0: 143, 1: 143}, job.cluster.both()
    told = sorted(re.findall(r"rank (\d) told, on", job.cluster.out(0)))
    assert told == ["0", "1", "2", "3"], job.cluster.both()
    assert job.cluster.survivors() == []
