"""Ports that another program has: the nodes take others, unless the user has set them."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, Make
from tests.waits import until

pytestmark = pytest.mark.usefixtures("alone")  # they take the default ports of this machine


@pytest.fixture
def cluster(cluster: Make) -> Make:
    """Jobs with the default meeting port."""

    def make(*args: Any, **options: Any) -> Cluster:
        job = cluster(*args, **options)
        job.meeting = None
        return job

    return make


def own_name() -> str:
    return f"{Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})"


def test_a_port_of_sshd_that_is_taken_is_named_with_its_holder(cluster: Make) -> None:
    """The leader tells the other nodes. Nobody can call a worker without sshd, so they wait."""
    job = cluster(2, slots=1)
    words = f"EP433 port {job.port} is taken (ssh.port) | by {own_name()}"
    for node in (1, 0):
        job.processes.clear()
        with socket.create_server((f"127.0.0.{2 + node}", job.port)):
            job.start_all("true", env={"ENTRYPOINT_TIMEOUTS_PEERS": "5"}, launcher="plain")
            assert job.ends() == ({0: 69, 1: 71} if node else {0: 71, 1: 71}), job.both()
        place = "" if node else " on worker-0 (node-0)"  # of a message that the others get, too
        hint = "end it, or set another port: ENTRYPOINT_SSH_PORT"
        assert f"{words}{place} | {hint}" in job.err(node), job.both()
        assert node or words in job.err(1), job.both()
    assert job.survivors() == []


def test_a_connection_that_has_sshds_port_is_waited_for(cluster: Make) -> None:
    """The kernel gives ports such as 36666 to connections, which end."""
    job = cluster(2, slots=1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as caller:
        caller.bind(("127.0.0.3", job.port))
        caller.connect(server.getsockname())
        job.start_all("true", launcher="plain")
        until(lambda: "nothing listens there yet" in job.err(0), "worker-1 has no sshd")
        assert job.processes[1].poll() is None
    assert job.ends() == {0: 0, 1: 0}, job.both()


# What a program of each launcher does with its port: it listens there, and is the only one.
MEET = """
import json, os, socket, sys, time

env = os.environ
if "TF_CONFIG" in env:
    config = json.loads(env["TF_CONFIG"])
    place, listens = config["cluster"]["worker"][config["task"]["index"]], True
elif "JAX_PROCESS_ID" in env:
    place, listens = env["JAX_COORDINATOR_ADDRESS"], env["JAX_PROCESS_ID"] == "0"
elif "--init_method" in sys.argv:
    at = sys.argv.index("--init_method")
    place, listens = sys.argv[at + 1].removeprefix("tcp://"), env["NODE"] == "0"
else:
    place = f"0.0.0.0:{env['MASTER_PORT']}"
    listens = env.get("RANK", env["NODE_RANK"]) == "0" and "TORCHELASTIC_RUN_ID" not in env
host, _, port = place.rpartition(":")
if listens:
    with socket.create_server((host, int(port))):
        print("listens at", port, flush=True)
        time.sleep(1)
"""


def start_jobs(cluster: Make, torch_python: str) -> list[Cluster]:
    """Start jobs of two nodes, each with its secret, at the same two addresses and with no port."""
    launchers = ("plain", "mpirun", "jax", "torchrun")
    jobs = [cluster(2, slots=1) for _ in launchers]
    for number, (job, launcher) in enumerate(zip(jobs, launchers, strict=True)):
        job.folder /= f"j{number}"
        job.folder.mkdir()
        program = job.folder / "meet.py"
        program.write_text(MEET)
        settings = {
            "ENTRYPOINT_SSH_PORT": "(unset)",
            "ENTRYPOINT_SECRET": hashlib.sha256(b"%d" % number).hexdigest(),
            "ENTRYPOINT_NETWORK_PORTS": "2000-19999",  # so many that they differ
            "SLURM_JOB_ID": str(number),
        }
        if launcher == "torchrun":
            settings["PATH"] = f"{Path(torch_python).parent}:{os.environ['PATH']}"
        job.start_all("python3", str(program), env=settings, launcher=launcher)
    return jobs


def test_jobs_that_a_scheduler_starts_at_once_on_one_host_network(
    cluster: Make, torch_python: str
) -> None:
    jobs = start_jobs(cluster, torch_python)
    ends = [job.ends() for job in jobs]
    failed = [job.both() for job, end in zip(jobs, ends, strict=True) if any(end.values())]
    assert not failed, "\n".join([f"{len(failed)} of {len(jobs)} jobs failed", *failed])
    ports = re.findall(r"the launcher gets port (\d+)$", "".join(job.err(0) for job in jobs), re.M)
    assert len(ports) == len(set(ports)) == len(jobs), ports
    assert not any("is taken" in job.both() for job in jobs)
    assert [job.survivors() for job in jobs] == [[]] * len(jobs)
