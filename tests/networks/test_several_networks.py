"""Real containers with several networks: which interface a job takes, what its ranks are told,
where their bytes go.

`make test` has one of them, `make test-all` all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.containers import logs
from tests.networks.pods import Pods
from tests.networks.rank import ran, refused, saw, start

LayOut = Callable[..., Pods]
BOTH = pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
SECOND = "second's CIDR"


@pytest.mark.promise("training uses the network interface that was asked for, else the roll call's")
@pytest.mark.parametrize(
    ("launcher", "asked"),
    [
        *((launcher, asked) for launcher in ("mpirun", "torchrun") for asked in ("auto", "ib", "ib0", SECOND)),
        ("mpirun of Open MPI 5", "auto"), ("mpirun of Open MPI 5", SECOND),
    ],
)  # fmt: skip
def test_a_second_network_on_all_nodes(lay_out: LayOut, launcher: str, asked: str) -> None:
    """a second network on all nodes, by one name"""
    pods = lay_out("eth0=main ib0=second", "eth0=main ib0=second")
    taken = "eth0" if asked == "auto" else "ib0"
    ranks = ran(start(pods, launcher, asked))
    assert ranks == dict.fromkeys(pods.nodes, saw(launcher, taken, taken, btl=taken))


@BOTH
@pytest.mark.parametrize("asked", ["auto", "main's CIDR"])
def test_a_second_network_on_one_node(lay_out: LayOut, launcher: str, asked: str) -> None:
    """a second network on one node of three"""
    pods = lay_out("eth0=main", "eth0=main eth1=second", "eth0=main")
    ranks = ran(start(pods, launcher, asked))
    told = {host: "" if asked == "auto" and host != "worker-1" else "eth0" for host in pods.nodes}
    assert ranks == {
        host: saw(launcher, "eth0", told[host], btl="eth0", nccl="=eth0") for host in pods.nodes
    }


@BOTH
def test_a_network_that_two_nodes_lack(lay_out: LayOut, launcher: str) -> None:
    """a network that one node of three has: refused, with what the others have"""
    pods = lay_out("eth0=main", "eth0=main eth1=second", "eth0=main")
    containers = start(pods, launcher, SECOND)
    refused(containers)
    for each in containers.values():
        log = logs(each)
        for host in ("worker-0", "worker-2"):
            lacking = (
                f"EP403 {host} has no network interface {pods.cidr('second')} (env"
                " ENTRYPOINT_NETWORK_INTERFACE)"
            )
            assert f"{lacking} | it has eth0 {pods.address(host, 'main')} | " in log
        assert "worker-1 has no" not in log


@pytest.mark.parametrize(
    ("launcher", "asked"),
    [
        ("mpirun", "auto"),
        ("mpirun", SECOND), ("mpirun of Open MPI 5", "auto"), ("mpirun of Open MPI 5", SECOND),
        ("torchrun", "auto"), ("torchrun", SECOND),
    ],
)  # fmt: skip
def test_the_same_networks_by_other_names(lay_out: LayOut, launcher: str, asked: str) -> None:
    """two networks on all nodes, in another order"""
    pods = lay_out("eth0=main eth1=second", "eth0=second eth1=main")
    taken = "main" if asked == "auto" else "second"
    ranks = ran(start(pods, launcher, asked))
    for host, interfaces in pods.nodes.items():
        name = next(name for name, network in interfaces.items() if network == taken)
        assert ranks[host] == saw(launcher, name, name, btl=pods.cidr(taken))


@pytest.mark.promise(
    "an ambiguous interface name is refused before Open MPI waits forever",
    control="its cases that are not refused",
)
@BOTH
def test_one_name_for_two_networks(lay_out: LayOut, launcher: str) -> None:
    """two networks on all nodes, in another order, by a name that is now the one, now the other:
    refused"""
    pods = lay_out("eth0=main eth1=second", "eth0=second eth1=main")
    containers = start(pods, launcher, "eth1")
    refused(containers)
    second, main = pods.cidr("second"), pods.cidr("main")
    for each in containers.values():
        log = logs(each)
        assert (
            "EP404 network.interface eth1 means two networks (env ENTRYPOINT_NETWORK_INTERFACE)"
            in log
        )
        assert (
            f"eth1 {second} on worker-0, eth1 {main} on worker-1 | choose by network, such as"
            f" {second}" in log
        )


@BOTH
@pytest.mark.parametrize("asked", ["auto", "eth", SECOND])
def test_an_interface_with_another_name(lay_out: LayOut, launcher: str, asked: str) -> None:
    """a second network whose interface has another name on one node"""
    pods = lay_out("eth0=main eth1=second", "eth0=main net7=second")
    ranks = ran(start(pods, launcher, asked))
    first, other = ("eth1", "net7") if asked == SECOND else ("eth0", "eth0")
    btl = pods.cidr("second") if asked == SECOND else "eth0"
    assert ranks == {
        "worker-0": saw(launcher, first, first, btl=btl), "worker-1": saw(launcher, other, other, btl=btl),
    }  # fmt: skip


@pytest.mark.promise("a node without the interface that was asked for is named before ranks start")
@BOTH
def test_a_name_that_a_node_lacks(lay_out: LayOut, launcher: str) -> None:
    """a name that one node lacks: refused, with what that node has"""
    pods = lay_out("eth0=main eth1=second", "eth0=main net7=second")
    containers = start(pods, launcher, "eth1")
    refused(containers)
    there = f"eth0 {pods.address('worker-1', 'main')}, net7 {pods.address('worker-1', 'second')}"
    for each in containers.values():
        log = logs(each)
        assert (
            "EP403 worker-1 has no network interface eth1 (env ENTRYPOINT_NETWORK_INTERFACE) | it"
            f" has {there} | " in log
        )
        assert "worker-0 has no" not in log


@BOTH
def test_the_only_interface_has_another_name(lay_out: LayOut, launcher: str) -> None:
    """one network, whose interface has another name on one node"""
    pods = lay_out("eth0=main", "net7=main")
    ranks = ran(start(pods, launcher))
    # NCCL gives up where none of the interfaces is that it is told of.
    assert ranks == {
        "worker-0": saw(launcher, "eth0", nccl="^lo,docker"), "worker-1": saw(launcher, "net7", nccl="^lo,docker"),
    }  # fmt: skip
