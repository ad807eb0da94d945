"""Real containers with IPv6 alone: a job boots there, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.containers import logs
from tests.networks.pods import MAIN, Pods
from tests.networks.rank import ran, refused, saw, start

LayOut = Callable[..., Pods]
BOTH = pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])


def hosts(pods: Pods, given: str) -> str:
    """The nodes' names, or these with their addresses."""
    return ",".join(
        f"{host}={pods.address(host, MAIN)}" if given == "addresses" else host
        for host in pods.nodes
    )


@pytest.mark.promise("a job boots over IPv6 alone, or says why it cannot")
@BOTH
@pytest.mark.parametrize("given", ["names", "addresses"])
def test_ipv6_alone(lay_out: LayOut, launcher: str, given: str) -> None:
    """IPv6 alone"""
    pods = lay_out("eth0=main", "eth0=main", ipv6=True)
    ranks = ran(start(pods, launcher, ENTRYPOINT_HOSTS=hosts(pods, given)))
    assert ranks == dict.fromkeys(pods.nodes, saw(launcher, "eth0", ipv6=True))


@BOTH
@pytest.mark.parametrize("asked", ["eth0", "main's CIDR"])
def test_an_interface_with_ipv6_alone(lay_out: LayOut, launcher: str, asked: str) -> None:
    """IPv6 alone, by the interface that was asked for"""
    pods = lay_out("eth0=main", "eth0=main", ipv6=True)
    ranks = ran(start(pods, launcher, asked))
    assert ranks == dict.fromkeys(pods.nodes, saw(launcher, "eth0", "eth0", btl="eth0", ipv6=True))


@BOTH
def test_two_names_with_ipv6_alone(lay_out: LayOut, launcher: str) -> None:
    """IPv6 alone, and interfaces of two names"""
    pods = lay_out("eth0=main", "net7=main", ipv6=True)
    ranks = ran(start(pods, launcher))
    assert ranks == {
        host: saw(launcher, *interfaces, nccl="^lo,docker", ipv6=True)
        for host, interfaces in pods.nodes.items()
    }


@BOTH
def test_two_names_asked_for_with_ipv6_alone(lay_out: LayOut, launcher: str) -> None:
    """IPv6 alone, interfaces of two names asked for by their network: Open MPI has no word for it,
    torch has"""
    pods = lay_out("eth0=main", "net7=main", ipv6=True)
    containers = start(pods, launcher, "main's CIDR")
    if launcher == "torchrun":
        assert ran(containers) == {
            host: saw(launcher, *interfaces, *interfaces, ipv6=True)
            for host, interfaces in pods.nodes.items()
        }
        return
    refused(containers)
    for each in containers.values():
        seen = f"eth0 {pods.cidr(MAIN)} on worker-0, net7 {pods.cidr(MAIN)} on worker-1"
        assert (
            "EP406 Open MPI knows IPv6 interfaces by name alone, and the nodes' names differ |"
            f" {seen} | " in logs(each)
        )


@pytest.mark.parametrize("launcher", ["mpirun of Open MPI 5"])
@pytest.mark.parametrize("given", ["names", "addresses"])
def test_open_mpi_5_with_ipv6_alone(lay_out: LayOut, launcher: str, given: str) -> None:
    """IPv6 alone, which the daemons of Open MPI 5 cannot: refused"""
    pods = lay_out("eth0=main", "eth0=main", ipv6=True)
    containers = start(pods, launcher, ENTRYPOINT_HOSTS=hosts(pods, given))
    refused(containers)
    for each in containers.values():
        log = logs(each)
        assert "EP405 Open MPI 5" in log
        assert "cannot start ranks over IPv6 alone | eth0 fd" in log
        assert "give the containers IPv4 addresses, too, or use an image with Open MPI 4" in log
