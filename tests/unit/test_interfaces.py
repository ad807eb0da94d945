"""Which interface a job takes where a node has several, and who hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint import interfaces, plan
from entrypoint.host import openmpi
from entrypoint.model import Device, EnvVar, Facts, Interface, Members, NodeReport, Plan, Site
from entrypoint.plan.show import plan_text
from entrypoint.plan.topology import build
from entrypoint.spec import load
from entrypoint.values import replace

ETH0 = Interface("eth0", "10.0.0.7", "10.0.0.0/24")
ETH1 = Interface("eth1", "10.9.0.7", "10.9.0.0/24")
V6 = Interface("eth0", "fd00::7", "fd00::/64")


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        (["10.0.0.7"], ETH0),
        (["10.9.0.7", "10.9.0.7"], ETH1),
        (["::ffff:10.0.0.7"], ETH0),  # an IPv4 address, as a socket for both families calls it
        (["fd00:0::7%eth0"], V6),
        (["10.0.0.7", "10.9.0.7"], None),
        (["127.0.0.2"], None),
        (["192.0.2.1"], None),  # translated on its way
        (["10.0.0.7", "192.0.2.1"], None),
        ([], None),
    ],
)
def test_the_interface_that_has_the_address(addresses: list[str], found: Interface | None) -> None:
    assert interfaces.of_address([ETH0, ETH1, V6], addresses) == found


def answer(rank: int, interface: Interface | None, count: int) -> NodeReport:
    return NodeReport(rank, 1, "1", "4.1.4", interface=interface, interfaces=("eth0", "eth1")[:count])


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        ([(ETH0, 1), (ETH0, 1)], ""),
        ([(ETH0, 2), (ETH0, 1)], "eth0"),
        ([(ETH0, 2), (ETH1, 1)], "10.0.0.0/24,10.9.0.0/24"),
        ([(ETH0, 2), (V6, 2)], "eth0"),
        ([(replace(V6, name="eth1"), 2), (ETH0, 2)], ""),
        ([(ETH0, 2), (None, 2)], ""),
    ],
)
def test_what_open_mpi_is_told(nodes: list[tuple[Interface | None, int]], chosen: str) -> None:
    assert interfaces.of_all([answer(rank, *node) for rank, node in enumerate(nodes)]) == chosen


Own = tuple[Interface, int]  # that the roll call came over, and how many there are


def planned(launcher: str, own: Own, other: Own, more: str = "", **env: str) -> Plan:
    spec = load(f"launcher: {launcher}\nhosts: [a, b]\nnode_rank: 0\ncommand: [x]\n{more}", "job.yaml", env, {})
    here = Facts(env=env, hostname="a", cwd="/", uid=1, user="u", home="/", mpi="4.1.4")
    where = build(spec, here, Site("local"), Device("cpu", 0, ""))
    return plan.settle(spec, here, where, Members((answer(0, *own), answer(1, *other))))


def network(variables: tuple[EnvVar, ...]) -> dict[str, str]:
    return {each.name: each.value for each in variables if "IFNAME" in each.name or "TCP_IF" in each.name}


@pytest.mark.parametrize("launcher", ["torchrun", "plain", "mpirun", "torchlaunch"])
def test_programs_take_the_interface_of_the_roll_call_where_there_are_several(launcher: str) -> None:
    told = planned(launcher, (ETH1, 2), (ETH1, 1)).env
    assert network(told) == {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    assert {each.origin for each in told if "IFNAME" in each.name} == {"the roll call"}
    assert network(planned(launcher, (ETH1, 1), (ETH1, 2)).env) == {}


@pytest.mark.parametrize("launcher", ["torchrun", "plain", "mpirun"])
def test_the_users_choice_wins_and_is_for_every_launcher(launcher: str) -> None:
    several = (ETH1, 2), (ETH1, 2)
    asked = planned(launcher, *several, "mpi: {interface: ib0}")
    assert network(asked.env) == {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    two = planned(launcher, *several, "mpi: {interface: 'eth0,bond0'}")
    assert network(two.env) == {"NCCL_SOCKET_IFNAME": "eth0,bond0"}
    assert network(planned(launcher, *several, "mpi: {interface: 10.0.0.0/8}").env) == {}
    own = planned(launcher, *several, NCCL_SOCKET_IFNAME="mine")
    assert network(own.env) == {"GLOO_SOCKET_IFNAME": "eth1"}


@pytest.mark.parametrize(
    ("own", "other", "more", "env", "told"),
    [
        ((ETH0, 1), (ETH0, 1), "", {}, {}),
        ((ETH0, 1), (ETH0, 2), "", {}, {"MY_MPI_BTL_TCP_IF": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}),
        ((ETH0, 1), (ETH1, 2), "", {},
         {"MY_MPI_BTL_TCP_IF": "10.0.0.0/24,10.9.0.0/24", "NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ((ETH0, 2), (ETH0, 2), "mpi: {interface: ib0}", {}, {"MY_MPI_BTL_TCP_IF": "ib0"}),
        ((ETH0, 2), (ETH0, 2), "mpi: {mca_args: -mca btl_tcp_if_exclude docker0}", {}, {}),
        ((ETH0, 2), (ETH0, 2), "mpi: {tune_file: /t}", {}, {}),
        ((ETH0, 2), (ETH0, 2), "", {"OMPI_MCA_btl_tcp_if_exclude": "x"}, {"NCCL_SOCKET_IFNAME": "=eth0"}),
        ((ETH0, 2), (ETH0, 2), "", {"NCCL_SOCKET_IFNAME": "x"}, {"MY_MPI_BTL_TCP_IF": "eth0"}),
    ],
)  # fmt: skip
def test_what_mpirun_is_told(own: Own, other: Own, more: str, env: dict[str, str], told: dict[str, str]) -> None:
    assert network(planned("mpirun", own, other, more, **env).launch.programs[0].env) == told


def test_a_choice_in_open_mpis_own_file_is_one(tmp_path: Path) -> None:
    """Open MPI fails where one file excludes interfaces and mpirun's line includes some."""
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi/mca-params.conf").write_text("# btl_tcp_if_include = a\n btl_tcp_if_exclude = docker0\n")
    assert openmpi.params("/nowhere/bin/mpirun", str(tmp_path)).count("btl_tcp_if_exclude") == 1
    assert "btl_tcp_if_include" not in openmpi.params("/nowhere/bin/mpirun", str(tmp_path))
    spec = load("launcher: mpirun\nhosts: [a, b]\nnode_rank: 0\ncommand: [x]\n", "job.yaml", {}, {})
    plain = Facts(env={}, hostname="a", cwd="/", uid=1, user="u", home="/", mpi="4.1.4")
    where = build(spec, plain, Site("local"), Device("cpu", 0, ""))
    for params, told in (((), {"MY_MPI_BTL_TCP_IF"}), (("btl_tcp_if_exclude",), set())):
        members = Members((answer(0, ETH0, 2), answer(1, ETH0, 2)))
        made = plan.settle(spec, replace(plain, mpi_params=params), where, members)
        assert network(made.launch.programs[0].env).keys() - {"NCCL_SOCKET_IFNAME"} == told


def test_a_plan_says_that_the_roll_call_decides() -> None:
    words = "network interface: from the roll call, the one that it comes over, of eth0, eth1; or set mpi.interface"
    secret = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}
    spec = load("launcher: plain\nhosts: [a, b]\nnode_rank: 0\ncommand: [x]\n", "job.yaml", secret, {})
    for several, said in (((ETH0, ETH1), True), ((ETH0, V6), False)):
        here = Facts(env={}, hostname="a", cwd="/", uid=1, user="u", home="/", interfaces=several)
        here = replace(here, programs={"sshd": "/usr/sbin/sshd"})
        where = build(spec, here, Site("local"), Device("cpu", 0, ""))
        made = plan.settle(spec, here, where)
        assert (words in plan_text(spec, made).splitlines()) == said
        assert network(made.env) == {}
