"""Nodes with a second network interface that leads nowhere: the job takes the one that the roll call came over.

Each node has a network namespace of its own. eth1 leads to the other node; eth0 comes first, seems to lead there
as well, and swallows what is sent to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import Cluster

Make = Callable[..., Cluster]
# In one write, since two ranks' pieces may mix on their way.
SUM = "import os; from mpi4py import MPI; os.write(1, b'sum %d\\n' % MPI.COMM_WORLD.allreduce(1 + MPI.COMM_WORLD.rank))"
SHOW = 'echo "node $NODE: nccl $NCCL_SOCKET_IFNAME gloo $GLOO_SOCKET_IFNAME"'


def ip(words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"ip {words}: {done.stderr}"
    return done.returncode == 0


@pytest.fixture
def spaces() -> Iterator[Callable[..., list[str]]]:
    """Two namespaces that reach each other over eth1, or by another name in the second; so many have eth0, too."""
    made = [f"ep{os.getpid()}-{number}" for number in range(3)]
    if not ip(f"netns add {made[2]}", check=False):
        pytest.skip("may not make network namespaces here")

    def make(second: int, name_there: str = "eth1") -> list[str]:
        a, b, nowhere = made
        for number, name in enumerate((a, b)):
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            if number < second:
                ip(f"-n {name} link add eth0 type veth peer name x{number} netns {nowhere}")
                ip(f"-n {nowhere} link set x{number} up")
                ip(f"-n {name} address add 10.78.0.{number + 1}/24 dev eth0")
                ip(f"-n {name} link set eth0 up")
                ip(f"-n {name} neigh add 10.78.0.{2 - number} lladdr 02:00:00:00:00:99 dev eth0")
        ip(f"-n {a} link add eth1 type veth peer name {name_there} netns {b}")
        for number, (name, link) in enumerate(((a, "eth1"), (b, name_there))):
            ip(f"-n {name} address add 10.77.0.{number + 1}/24 dev {link}")
            ip(f"-n {name} link set {link} up")
        return [a, b]

    yield make
    for name in made:
        ip(f"netns delete {name}", check=False)


def start(job: Cluster, spaces: list[str], launcher: str, *command: str) -> None:
    for rank in (1, 0):
        argv = ("ip", "netns", "exec", spaces[rank], sys.executable, "-m", "entrypoint", "run")
        env = {"ENTRYPOINT_HOSTS": "node-0=10.77.0.1,node-1=10.77.0.2", "ENTRYPOINT_TIMEOUTS_LAUNCH": "15"}
        job.start(rank, argv=(*argv, "--launcher", launcher, "--", *command), env=env)


@pytest.mark.parametrize(
    ("second", "name_there", "told"),
    [(1, "eth1", "nccl =eth1 gloo "), (2, "net7", "nccl =net7 gloo net7")],
    ids=["on-one", "on-all-by-two-names"],
)
def test_mpi_takes_the_interface_that_leads_to_the_others(
    cluster: Make, spaces: Callable[..., list[str]], second: int, name_there: str, told: str
) -> None:
    job = cluster(2, slots=1)
    start(job, spaces(second, name_there), "mpirun", "sh", "-c", f'{sys.executable} -c "{SUM}"; {SHOW}')
    assert job.ends(30) == {0: 0, 1: 0}, job.both()
    said = sorted(job.out(0).splitlines())
    assert said == ["node 0: nccl =eth1 gloo eth1", f"node 1: {told}", "sum 3", "sum 3"]


def test_every_launcher_tells_its_programs(cluster: Make, spaces: Callable[..., list[str]]) -> None:
    job = cluster(2, slots=1)
    start(job, spaces(2), "plain", "sh", "-c", SHOW)
    assert job.ends(30) == {0: 0, 1: 0}, job.both()
    assert job.out(0) + job.out(1) == "node 0: nccl =eth1 gloo eth1\nnode 1: nccl =eth1 gloo eth1\n"
