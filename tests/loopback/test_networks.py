"""Nodes with several network interfaces: the job takes the one that was asked for, else the roll
call's.

Each node has a network namespace of its own (conftest.py). eth1 leads to the other node; eth0 comes
first, seems to lead there as well, and swallows what is sent to it. ib0 leads there too, and no
host name means it. With IPv6 there is no IPv4.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make, mpi_major
from tests.process.bench import executable

# In one write, since two ranks' pieces may mix on their way.
SUM = (
    "import os; from mpi4py import MPI; os.write(1, b'sum %d\\n' % MPI.COMM_WORLD.allreduce(1 +"
    " MPI.COMM_WORLD.rank))"
)
NAMES = "$NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $HCCL_SOCKET_IFNAME"
ALL = f'echo "$NODE: {NAMES} $NCCL_SOCKET_FAMILY $HCCL_SOCKET_FAMILY"'
# The folder of the start hooks is the image's; here the first argument is.
HOOKED = """
import sys
from pathlib import Path
from entrypoint.cli import script
from entrypoint.ranks import hooks
hooks.FOLDER = Path(sys.argv.pop(1))
script()
"""
# Four million bytes to all, then the interfaces that sent at least one million.
MOST = """
import os
from mpi4py import MPI
MPI.COMM_WORLD.allreduce(bytearray(4000000), op=MPI.Op.Create(lambda a, b, _: a))
"""
BUSY = """
sent = [line.replace(":", " ").split() for line in open("/proc/net/dev").readlines()[2:]]
busy = [words[0] for words in sent if int(words[9]) > 1000000 and words[0] != "lo"]
os.write(1, f"busy {busy}\\n".encode())
"""
# The same by torch with Gloo.
REDUCED = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sums = torch.ones(2000000)
dist.all_reduce(sums)
assert sums[0] == 2
dist.barrier()
"""


def start(
    job: Cluster,
    spaces: list[str],
    launcher: str,
    *command: str,
    asked: str = "",
    ipv6: bool = False,
    hooks: Path | None = None,
    **more: str,
) -> None:
    for rank in (1, 0):
        program = ("-c", HOOKED, str(hooks)) if hooks else ("-m", "entrypoint")
        argv = ("ip", "netns", "exec", spaces[rank], sys.executable, *program, "run")
        hosts = "node-0=fd77::1,node-1=fd77::2" if ipv6 else "node-0=10.77.0.1,node-1=10.77.0.2"
        env = {
            "ENTRYPOINT_HOSTS": hosts,
            "ENTRYPOINT_TIMEOUTS_LAUNCH": "15",
            "ENTRYPOINT_NETWORK_INTERFACE": asked,
            **more,
        }
        job.start(rank, argv=(*argv, "--launcher", launcher, "--", *command), env=env)


@pytest.mark.promise(
    "training uses the network interface that was asked for, else the roll call's",
    control="their case `auto`",
)
@pytest.mark.parametrize(
    ("asked", "there", "busy"), [("auto", "ib0", "eth1 eth1"), ("10.79.0.0/24", "hca", "ib0 hca")]
)
def test_mpi_s_traffic_takes_what_was_asked_for(
    asked: str, there: str, busy: str, cluster: Make, spaces: Callable[..., list[str]]
) -> None:
    job = cluster(2, slots=1)
    start(job, spaces(2, third=there), "mpirun", sys.executable, "-c", MOST + BUSY, asked=asked)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == sorted(f"busy ['{name}']" for name in busy.split())


@pytest.mark.promise("training uses the network interface that was asked for, else the roll call's")
@pytest.mark.parametrize(
    ("asked", "ipv6", "busy"), [("10.79.0.0/24", False, "ib0 hca"), ("auto", True, "eth1 eth1")]
)
def test_torch_s_traffic_takes_what_was_asked_for(
    asked: str,
    ipv6: bool,
    busy: str,
    cluster: Make,
    spaces: Callable[..., list[str]],
    torch_python: str,
) -> None:
    """By name and address on two networks; over IPv6 alone."""
    job = cluster(2, slots=1)
    command = (torch_python, "-c", f"{REDUCED}{BUSY}dist.destroy_process_group()")
    made = spaces(0, ipv6=True) if ipv6 else spaces(2, third="hca")
    start(job, made, "torchrun", *command, asked=asked, ipv6=ipv6, PYTHON=torch_python)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    found = (job.out(0) + job.out(1)).splitlines()
    assert sorted(found) == sorted(f"busy ['{name}']" for name in busy.split())


@pytest.mark.control("a node without the interface that was asked for is named before ranks start")
def test_every_library_is_told_what_was_asked_for(
    cluster: Make, spaces: Callable[..., list[str]]
) -> None:
    job = cluster(2, slots=1)
    start(job, spaces(0, "net7"), "plain", "sh", "-c", ALL, asked="10.77.0.0/16")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    lines = sorted((job.out(0) + job.out(1)).splitlines())
    assert lines == ["0: =eth1 eth1 =eth1  ", "1: =net7 net7 =net7  "]
    assert "network interface: eth1 10.77.0.0/24, net7 10.77.0.0/24" in job.err(0)


@pytest.mark.promise("a node without the interface that was asked for is named before ranks start")
def test_a_node_without_the_interface_is_named_with_what_it_has(
    cluster: Make, spaces: Callable[..., list[str]]
) -> None:
    job = cluster(2, slots=1)
    start(job, spaces(1, "net7"), "mpirun", "echo", "started", asked="eth1")
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert job.out(0) + job.out(1) == ""
    for rank in (0, 1):
        assert (
            "EP403 worker-1 (node-1) has no network interface eth1 (env ENTRYPOINT_NETWORK_INTERFACE)"
            in job.err(rank)
        )
        assert "it has net7 10.77.0.2" in job.err(rank)
        assert "(node-0) has no" not in job.err(rank)


@pytest.mark.promise(
    "an interface that a start hook brings up counts", control="its case of a hook that does not"
)
@pytest.mark.parametrize("hook", ["ip link set ib0 up", "true"])
def test_an_interface_that_a_start_hook_brings_up_counts(
    hook: str, cluster: Make, spaces: Callable[..., list[str]]
) -> None:
    job, places = cluster(2, slots=1), spaces(0, third="ib0")
    folder = executable(job.folder / "start.d/10-up", hook).parent
    for place in places:
        subprocess.run(["ip", "-n", place, "link", "set", "ib0", "down"], check=True)
    start(job, places, "plain", "sh", "-c", ALL, asked="ib", hooks=folder)
    if hook == "true":  # the control
        assert job.ends() == {0: 78, 1: 78}, job.both()
        assert "EP403 worker-1 (node-1) has no network interface ib" in job.err(1)
        return
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted((job.out(0) + job.out(1)).splitlines()) == [
        f"{node}: =ib0 ib0 =ib0  " for node in range(2)
    ]


@pytest.mark.promise(
    "a job boots over IPv6 alone, or says why it cannot", control="its case of two names"
)
@pytest.mark.parametrize(
    ("launcher", "asked", "there"),
    [("mpirun", "auto", "eth1"), ("mpirun", "fd77::/64", "net7"), ("plain", "fd77::/64", "net7")],
)
def test_ipv6_alone(
    asked: str, there: str, launcher: str, cluster: Make, spaces: Callable[..., list[str]]
) -> None:
    job = cluster(2, slots=1)
    command = ALL if launcher == "plain" else f'{sys.executable} -c "{SUM}"; {ALL}'
    start(job, spaces(0, there, ipv6=True), launcher, "sh", "-c", command, asked=asked, ipv6=True)
    refused = ""
    if launcher == "mpirun" and mpi_major() >= 5:
        refused = " cannot start ranks over IPv6 alone"
    elif launcher == "mpirun" and there != "eth1":
        refused = (
            "EP406 Open MPI knows IPv6 interfaces by name alone, and the nodes' names differ | eth1"
            " fd77::/64 on worker-0 (node-0)"
        )
    if refused:
        assert job.ends() == {0: 78, 1: 78}, job.both()
        assert refused in job.err(0)
        assert refused in job.err(1)
        return
    assert job.ends() == {0: 0, 1: 0}, job.both()
    said = []
    for rank, name in enumerate(("eth1", there)):
        names = f" {name} " if asked == "auto" else f"={name} {name} ={name}"
        said.append(f"{rank}: {names} AF_INET6 AF_INET6")
    sums = ["sum 3"] * (2 if launcher == "mpirun" else 0)
    assert sorted((job.out(0) + job.out(1)).splitlines()) == said + sums
