"""Real containers with several networks, or with IPv6 alone: which interface a job takes, what its
ranks are told, and where their bytes go, under each MPI and torch. Which names and networks are
refused, and how, is in tests/unit/test_interfaces.py and tests/loopback/test_networks.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.networks.pods import MAIN, Pods
from tests.networks.rank import ran, saw, start

LayOut = Callable[..., Pods]
SECOND = "second's CIDR"


@pytest.mark.promise("training uses the network interface that was asked for, else the roll call's")
@pytest.mark.parametrize(
    ("launcher", "asked", "taken"),
    [
        ("mpirun", "auto", "main"),
        ("mpirun of Open MPI 5", SECOND, "second"),
        ("torchrun", SECOND, "second"),
    ],
)
def test_two_networks_by_other_names(
    lay_out: LayOut, launcher: str, asked: str, taken: str
) -> None:
    """two networks on all nodes, whose interfaces have each other's names"""
    pods = lay_out("eth0=main eth1=second", "eth0=second eth1=main")
    ranks = ran(start(pods, launcher, asked))
    for host, interfaces in pods.nodes.items():
        name = next(name for name, network in interfaces.items() if network == taken)
        assert ranks[host] == saw(launcher, name, name, btl=pods.cidr(taken))


def test_the_only_interface_has_another_name(lay_out: LayOut) -> None:
    """one network, whose interface has another name on one node"""
    pods = lay_out("eth0=main", "net7=main")
    ranks = ran(start(pods, "mpirun"))
    # NCCL gives up where none of the interfaces is that it is told of.
    assert ranks == {
        "worker-0": saw("mpirun", "eth0", nccl="^lo,docker"),
        "worker-1": saw("mpirun", "net7", nccl="^lo,docker"),
    }


@pytest.mark.promise("a job boots over IPv6 alone, or says why it cannot")
@pytest.mark.parametrize(("launcher", "given"), [("mpirun", "names"), ("torchrun", "addresses")])
def test_ipv6_alone(lay_out: LayOut, launcher: str, given: str) -> None:
    """IPv6 alone, with the nodes' names or with their addresses"""
    pods = lay_out("eth0=main", "eth0=main", ipv6=True)
    addresses = (f"{host}={pods.address(host, MAIN)}" for host in pods.nodes)
    hosts = ",".join(addresses if given == "addresses" else pods.nodes)
    ranks = ran(start(pods, launcher, ENTRYPOINT_HOSTS=hosts))
    assert ranks == dict.fromkeys(pods.nodes, saw(launcher, "eth0", ipv6=True))
