"""Nodes that know only the address of worker-0: they log in to it, and get the list of all.

Each has a network namespace and a host name of its own.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import pytest

from tests import table
from tests.cluster import SECRET, Cluster, Make
from tests.loopback.conftest import ip
from tests.waits import until

Spaces = Callable[..., list[str]]
SUM = (
    "import os; from mpi4py import MPI;"
    " os.write(1, b'sum %d\\n' % MPI.COMM_WORLD.allreduce(1 + MPI.COMM_WORLD.rank))"
)
TWO = {"MASTER_ADDR": "10.77.0.1", "NNODES": "2"}
ASKED = {"ENTRYPOINT_HOSTS": "call-in=10.77.0.1", "ENTRYPOINT_NODE_RANK": "{}"}


def start(
    job: Cluster, space: str, rank: int, *command: str, address: str = "", **env: str
) -> None:
    """Start a node whose host name is `gpu-RANK`."""
    named = f'hostname gpu-{rank}; mount --bind "$0" /etc/hosts; exec "$@"'
    hosts = job.folder / f"hosts-{rank}"
    hosts.write_text(f"{address or f'10.77.0.{rank + 1}'} gpu-{rank}\n")
    words = ("unshare", "--uts", "--mount", "sh", "-c", named, str(hosts))
    run = (sys.executable, "-m", "entrypoint", "run", "--launcher", "mpirun", "--", *command)
    unset = dict.fromkeys(("ENTRYPOINT_HOSTS", "ENTRYPOINT_NODE_RANK"), "(unset)")
    argv = ("ip", "netns", "exec", space, *words, *run)
    job.start(rank, argv=argv, env={**unset, **TWO, **env})


@pytest.mark.promise("nodes that know the address of worker-0 alone find each other")
@pytest.mark.parametrize(
    "own", [{}, {"NODE_RANK": "{}"}, ASKED, {"ENTRYPOINT_SSH_CLIENT": "files"}]
)
def test_nodes_call_in(cluster: Make, spaces: Spaces, own: dict[str, str]) -> None:
    job, places = cluster(2, slots=1), spaces(0)
    for rank in (1, 0):
        env = {name: value.format(rank) for name, value in own.items()}
        start(job, places[rank], rank, sys.executable, "-c", SUM, **env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert job.out(0) == "sum 3\n" * 2
    assert "all 2 nodes have called in; this is worker-1 (gpu-1)" in job.err(1)
    assert job.survivors() == []


@pytest.mark.control("nodes that know the address of worker-0 alone find each other")
@pytest.mark.parametrize(("second", "ends", "says"), table("tests/tables/call_in.yaml"))
def test_no_list(
    cluster: Make, spaces: Spaces, second: dict[str, str], ends: dict[int, int], says: str
) -> None:
    job, places = cluster(2, slots=1), spaces(0)
    if second.get("ENTRYPOINT_SECRET"):
        second = {"ENTRYPOINT_SECRET": SECRET[::-1]}
    start(job, places[0], 0, "true", NODE_RANK="0", ENTRYPOINT_TIMEOUTS_PEERS="14")
    start(job, places[1], 1, "true", **{"ENTRYPOINT_TIMEOUTS_PEERS": "13", **second})
    assert job.ends() == ends, job.both()
    assert says in job.err(1), job.both()
    assert all(line.startswith("[entrypoint") for line in job.err(1).splitlines()), job.both()
    assert job.survivors() == []


@pytest.mark.control("nodes that know the address of worker-0 alone find each other")
def test_worker_0_says_who_has_called(cluster: Make, spaces: Spaces) -> None:
    job, places = cluster(2, slots=1), spaces(0)
    three = {"NNODES": "3", "ENTRYPOINT_TIMEOUTS_PEERS": "8"}
    start(job, places[1], 1, "true", **three)
    until(
        lambda: "nothing listens there yet" in job.err(1),
        "the node says why worker-0 does not answer",
    )
    start(job, places[0], 0, "true", **three)
    assert job.ends() == {0: 69, 1: 69}, job.both()
    for err in (job.err(0), job.err(1)):
        assert "EP500 1 of 2 peers did not call in within 8s | here: gpu-1" in err, job.both()


@pytest.mark.promise("a node that starts again calls in again, worker-0 too")
@pytest.mark.parametrize(("lost", "address"), [(0, ""), (1, ""), (1, "10.77.0.3")])
def test_a_node_starts_again(cluster: Make, spaces: Spaces, lost: int, address: str) -> None:
    job, places = cluster(2, slots=1), spaces(0)
    script = (
        'echo "attempt $ENTRYPOINT_ATTEMPT of $RANK"; [ "$ENTRYPOINT_ATTEMPT" = 2 ] || sleep 600'
    )
    restarts = {"ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_TIMEOUTS_PEERS": "30"}
    for rank in (1, 0):
        start(job, places[rank], rank, "sh", "-c", script, **restarts)
    until(lambda: job.out(0).count("attempt 1") == 2, "both ranks run")
    job.signal(lost, signal.SIGKILL)
    job.processes[lost].wait()
    if address:
        until(lambda: "waiting for 1 of 1 peers" in job.err(0), "worker-0 calls the old address")
        ip(f"-n {places[lost]} address flush dev eth1")
        ip(f"-n {places[lost]} address add {address}/24 dev eth1")
    start(job, places[lost], lost, "sh", "-c", script, address=address, **restarts)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert job.out(0).count("attempt 2") == 2, job.both()
