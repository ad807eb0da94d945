"""Which interface a job takes where a node has several, and who hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import interfaces
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import EnvVar, Facts, Interface, Members, NodeReport, Plan
from entrypoint.base.values import replace
from entrypoint.cli.plan_text import plan_text
from entrypoint.plan import settle
from entrypoint.plan.members import interface_words, with_interface
from entrypoint.spec import load
from entrypoint.system import checks
from entrypoint.system.image import mpi

ETH0 = Interface("eth0", "10.0.0.7", "10.0.0.0/24")
ETH1 = Interface("eth1", "10.9.0.7", "10.9.0.0/24")
V6 = Interface("eth0", "fd00::7", "fd00::/64")
ETH1_IS_TOLD = {
    "NCCL_SOCKET_IFNAME": "=eth1",
    "GLOO_SOCKET_IFNAME": "eth1",
    "HCCL_SOCKET_IFNAME": "=eth1",
}


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
    return NodeReport(
        rank, 1, "1", "4.1.4", interface=interface, interfaces=("eth0", "eth1")[:count]
    )


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
HERE = Facts({}, "a", "/", 1, "u", "/", mpi="4.1.4")
TWO = "hosts: [a, b]\nnode_rank: 0\n"
ASKED = "network: {{interface: {}}}"


def settled(text: str, there: tuple[Interface, ...] = (), *nodes: Own | None, **more: Any) -> Plan:
    """The plan of a job on a node with these interfaces, if its nodes answered so."""
    spec = load(f"{text}\ncommand: [x]", "job.yaml", {}, {})
    members = Members(tuple(answer(rank, *node) for rank, node in enumerate(nodes) if node))
    return settle(spec, replace(HERE, interfaces=there), None, members if nodes else None, **more)


@pytest.mark.parametrize(
    ("wanted", "usual", "found"),
    [
        ("eth1", None, ETH1),
        ("eth", None, ETH0),
        ("eth", ETH1, ETH1),  # of several, the roll call's
        ("eth0", V6, V6),
        ("eth0", ETH1, ETH0),
        ("10.9.0.0/16", None, ETH1),
        ("10.0.0.0/8", ETH1, ETH1),
        ("fd00::/16", None, V6),
        ("10.1.0.0/16", None, None),
        ("ib", None, None),
        ("eth1", ETH0, ETH1),
    ],
)
def test_the_interface_that_is_meant(
    wanted: str, usual: Interface | None, found: Interface | None
) -> None:
    assert interfaces.pick([ETH0, V6, ETH1], wanted, usual) == found


@pytest.mark.parametrize(
    ("setting", "addresses", "found"),
    [
        ("auto", ["10.9.0.7"], ETH1),
        ("eth0", ["10.9.0.7"], ETH0),
        ("eth", ["10.9.0.7"], ETH1),  # of several, the roll call's
        ("eth", [], ETH0),
    ],
)
def test_a_node_s_own_interface_after_the_roll_call(
    setting: str, addresses: list[str], found: Interface
) -> None:
    spec = load(f"network: {{interface: {setting}}}", "job.yaml", {}, {})
    here = replace(HERE, interfaces=(ETH0, ETH1))
    members = Members((NodeReport(0, 1, ""), NodeReport(1, 1, "")))
    made = with_interface(members, 1, spec, here, addresses)
    assert [report.interface for report in made.reports] == [None, found]


def test_a_whole_name_is_not_the_beginning_of_another() -> None:
    ten = replace(ETH1, name="eth10")
    assert interfaces.pick([ten, ETH1], "eth1") == ETH1
    # of one name, the IPv4 address, which all libraries know
    assert interfaces.pick([V6, ETH0], "eth0") == ETH0


def planned(launcher: str, own: Own, other: Own, more: str = "", **env: str) -> Plan:
    spec = load(f"launcher: {launcher}\n{TWO}command: [x]\n{more}", "job.yaml", env, {})
    members = Members((answer(0, *own), answer(1, *other)))
    return settle(spec, replace(HERE, env=env), None, members)


def network(variables: tuple[EnvVar, ...]) -> dict[str, str]:
    return {
        each.name: each.value
        for each in variables
        if "IFNAME" in each.name or "TCP_IF" in each.name
    }


@pytest.mark.parametrize("launcher", ["torchrun", "plain", "mpirun", "torchlaunch"])
def test_programs_take_the_interface_of_the_roll_call_where_there_are_several(
    launcher: str,
) -> None:
    told = planned(launcher, (ETH1, 2), (ETH1, 1)).env
    assert network(told) == ETH1_IS_TOLD
    assert {each.origin for each in told if "IFNAME" in each.name} == {"the roll call"}
    only = planned(launcher, (ETH1, 1), (ETH1, 2)).env
    assert network(only) == {"GLOO_SOCKET_IFNAME": "eth1"}, "else Gloo looks up the host's own name"
    assert network(planned(launcher, (None, 1), (ETH1, 2)).env) == {}, "loopback, or translated"


@pytest.mark.parametrize("launcher", ["torchrun", "plain", "mpirun"])
def test_the_users_choice_wins_and_is_for_every_launcher(launcher: str) -> None:
    several = (ETH1, 2), (ETH1, 2)
    asked = planned(launcher, *several, "mpi: {interface: ib0}")
    assert network(asked.env) == {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    origins = {each.origin for each in asked.env if "IFNAME" in each.name}
    assert [origin.partition(":")[0] for origin in origins] == ["spec job.yaml"]
    own = planned(launcher, *several, "mpi: {interface: ib0}", GLOO_SOCKET_IFNAME="eth9")
    assert network(own.env) == {"NCCL_SOCKET_IFNAME": "ib0"}, "a library's own variable"
    two = planned(launcher, *several, "mpi: {interface: 'eth0,bond0'}")
    assert network(two.env) == {"NCCL_SOCKET_IFNAME": "eth0,bond0"}
    assert network(planned(launcher, *several, "mpi: {interface: 10.0.0.0/8}").env) == {}
    own = planned(launcher, *several, NCCL_SOCKET_IFNAME="mine")
    assert network(own.env) == {
        name: ETH1_IS_TOLD[name] for name in ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
    }


@pytest.mark.parametrize(
    ("own", "other", "more", "env", "told"),
    [
        ((ETH0, 1), (ETH0, 1), "", {}, {}),
        ((ETH0, 1), (ETH1, 1), "", {}, {"NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ((ETH0, 1), (ETH0, 2), "", {}, {"MY_MPI_BTL_TCP_IF": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}),
        ((ETH0, 1), (ETH1, 2), "", {},
         {"MY_MPI_BTL_TCP_IF": "10.0.0.0/24,10.9.0.0/24", "NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ((ETH0, 2), (ETH0, 2), "mpi: {interface: ib0}", {}, {"MY_MPI_BTL_TCP_IF": "ib0"}),
        ((ETH0, 2), (ETH0, 2), "env: {OPENMPI_MCA_ARGS: -mca btl_tcp_if_exclude docker0}", {}, {}),
        ((ETH0, 2), (ETH0, 2), "env: {TUNE_ENV_FILE: /t}", {}, {}),
        ((ETH0, 2), (ETH0, 2), "", {"OMPI_MCA_btl_tcp_if_exclude": "x"}, {"NCCL_SOCKET_IFNAME": "=eth0"}),
        ((ETH0, 2), (ETH0, 2), "", {"NCCL_SOCKET_IFNAME": "x"}, {"MY_MPI_BTL_TCP_IF": "eth0"}),
        # what was asked for
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth"), {}, {"MY_MPI_BTL_TCP_IF": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH0, 1), (ETH1, 1), ASKED.format("eth"), {},
         {"MY_MPI_BTL_TCP_IF": "10.0.0.0/24,10.9.0.0/24", "NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ((ETH0, 1), (ETH1, 1), ASKED.format("10.0.0.0/8"), {},
         {"MY_MPI_BTL_TCP_IF": "10.0.0.0/8", "NCCL_SOCKET_IFNAME": "^lo,docker"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth") + "\nenv: {TUNE_ENV_FILE: /t}", {},
         {"MY_MPI_BTL_TCP_IF": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth") + "\nmpi: {interface: eth}", {},
         {"MY_MPI_BTL_TCP_IF": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth"), {"MY_MPI_BTL_TCP_IF": "eth"},
         {"MY_MPI_BTL_TCP_IF": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth") + "\nenv: {OPENMPI_MCA_ARGS: -mca btl_tcp_if_include a}", {}, {}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth"), {"OMPI_MCA_oob_tcp_if_include": "x"}, {"NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth"), {"PRTE_MCA_prte_if_include": "x"}, {"NCCL_SOCKET_IFNAME": "=eth1"}),
        ((ETH1, 1), (ETH1, 1), ASKED.format("eth"), {"NCCL_SOCKET_IFNAME": "x"}, {"MY_MPI_BTL_TCP_IF": "eth1"}),
        ((V6, 1), (V6, 1), ASKED.format("fd00::/64"), {}, {"MY_MPI_BTL_TCP_IF": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}),
    ],
)  # fmt: skip
def test_what_mpirun_is_told(
    own: Own, other: Own, more: str, env: dict[str, str], told: dict[str, str]
) -> None:
    assert network(planned("mpirun", own, other, more, **env).launch.programs[0].env) == told


def test_a_choice_in_open_mpis_own_file_is_one(tmp_path: Path) -> None:
    """Open MPI fails where one file excludes interfaces and mpirun's line includes some."""
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi/mca-params.conf").write_text(
        "# btl_tcp_if_include = a\n btl_tcp_if_exclude = docker0\n"
    )
    assert mpi.params("/nowhere/bin/mpirun", str(tmp_path), {}).count("btl_tcp_if_exclude") == 1
    assert "btl_tcp_if_include" not in mpi.params("/nowhere/bin/mpirun", str(tmp_path), {})
    spec = load(f"launcher: mpirun\n{TWO}command: [x]\n", "job.yaml", {}, {})
    members = Members((answer(0, ETH0, 2), answer(1, ETH0, 2)))
    for params, told in (((), {"MY_MPI_BTL_TCP_IF"}), (("btl_tcp_if_exclude",), set())):
        made = settle(spec, replace(HERE, mpi_params=params), None, members)
        assert network(made.launch.programs[0].env).keys() - {"NCCL_SOCKET_IFNAME"} == told


@pytest.mark.parametrize(
    ("more", "words", "asked"),
    [
        ("", "from the roll call, the one that it comes over, of eth0, eth1; or set network.interface", False),
        ("network: {interface: eth}", "eth0 here; the roll call brings the other nodes' names", True),
    ],
)  # fmt: skip
def test_a_plan_says_what_the_roll_call_decides(more: str, words: str, asked: bool) -> None:
    words = f"network interface: {words}"
    secret = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}
    spec = load(f"launcher: plain\n{TWO}command: [x]\n{more}", "job.yaml", secret, {})
    for several, said in (((ETH0, ETH1), True), ((ETH0, V6), asked)):
        here = replace(HERE, interfaces=several, programs={"sshd": "/usr/sbin/sshd"})
        made = settle(spec, here)
        assert (words in plan_text(spec, made).splitlines()) == said
        assert bool(network(made.env)) == asked


@pytest.mark.parametrize(
    "launcher", ["torchrun", "plain", "mpirun", "torchlaunch", "pytorch", "msrun", "tensorflow"]
)
def test_what_was_asked_for_is_told_even_where_there_is_no_other(launcher: str) -> None:
    told = planned(launcher, (ETH1, 1), (ETH0, 1), ASKED.format("eth")).env
    assert network(told) == ETH1_IS_TOLD
    assert {each.origin for each in told if "IFNAME" in each.name} == {"spec job.yaml:5:22"}
    untold = planned(launcher, (ETH1, 1), (ETH0, 1), ASKED.format("auto")).env
    assert network(untold) == {"GLOO_SOCKET_IFNAME": "eth1"}


def test_one_node_is_told_as_well() -> None:
    """No roll call looks for the interface: it is found as the plan is made."""
    assert network(settled(ASKED.format("10.9.0.0/24"), (ETH0, ETH1)).env) == ETH1_IS_TOLD


def test_open_mpi_has_no_word_for_ipv6_networks() -> None:
    with pytest.raises(
        ConfigError,
        match=r"by name alone, and the nodes' names differ \| eth0 fd00::/64 on worker-0 \(a\), ib0",
    ):
        planned("mpirun", (V6, 1), (replace(V6, name="ib0"), 1), ASKED.format("fd00::/64"))
    # nobody asked: Open MPI looks by itself
    planned("mpirun", (V6, 2), (replace(V6, name="ib0"), 2))


@pytest.mark.promise(
    "an ambiguous interface name is refused before Open MPI waits forever",
    control="its cases that are not refused",
)
@pytest.mark.parametrize(
    ("own", "other", "asked", "refused"),
    [
        (ETH1, replace(ETH0, name="eth1"), "eth1", True),
        (ETH1, replace(ETH0, name="eth1"), "auto", False),
        (ETH1, ETH1, "eth1", False),
        (ETH1, replace(ETH1, network="10.3.0.0/24"), "eth1", False),  # a router may join them
        (ETH1, replace(ETH1, name="ib0"), "10.9.0.0/24", False),
    ],
)
def test_a_name_that_means_two_networks(
    own: Interface, other: Interface, asked: str, refused: bool
) -> None:
    """Refused where this node has both, since Open MPI would wait forever."""
    spec = load(f"{TWO}command: [x]\n{ASKED.format(asked)}", "job.yaml", {}, {})
    here = replace(HERE, interfaces=(ETH0, ETH1))
    members = Members((answer(0, own, 2), answer(1, other, 2)))
    if not refused:
        settle(spec, here, None, members)
        return
    with pytest.raises(
        ConfigError,
        match=r"eth1 means two networks .* \| eth1 10.9.0.0/24 on worker-0 \(a\), eth1 10.0.0.0/24 on worker-1 \(b\) \|",
    ):
        settle(spec, here, None, members)
    settle(spec, here, None, replace(members, assumed=True))  # the others are not known yet


def test_the_network_of_a_spare_does_not_matter_until_it_works() -> None:
    text = f"hosts: [a, b, c]\nspares: 1\nnode_rank: 0\n{ASKED.format('eth1')}"
    nodes = ((ETH0, ETH1), (ETH1, 2), (ETH1, 2), (replace(ETH0, name="eth1"), 2))
    settled(text, *nodes)
    with pytest.raises(ConfigError, match="means two networks"):
        settled(text, *nodes, replaced=((1, 2),))


@pytest.mark.parametrize(
    ("there", "family"),
    [((V6,), "AF_INET6"), ((ETH0, V6), None), ((V6, ETH1), "AF_INET6"), ((ETH0,), None)],
)
def test_libraries_that_look_for_ipv4_are_told_of_ipv6(
    there: tuple[Interface, ...], family: str | None
) -> None:
    told = {each.name: each.value for each in settled(ASKED.format("eth0"), there).env}
    assert [told.get(f"{name}_SOCKET_FAMILY") for name in ("NCCL", "HCCL")] == [family, family]


@pytest.mark.parametrize(
    ("wanted", "found", "seen"),
    [
        ("ib", (ETH0, ETH1), "it has eth0 10.0.0.7, eth1 10.9.0.7"),
        ("10.1.0.0/16", (V6,), "it has eth0 fd00::7"),
        ("eth0", (), "it has none that is up and has an address"),
        ("eth", (ETH0,), None),
        ("auto", (), None),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_node_without_it_is_refused_and_says_what_it_has(
    wanted: str, found: tuple[Interface, ...], seen: str | None, nodes: int
) -> None:
    text = TWO * (nodes - 1) + ASKED.format(wanted)
    spec = load(f"{text}\ncommand: [x]", "job.yaml", {}, {})
    here = replace(HERE, interfaces=found)
    refused = checks.machine(spec, here, settled(text, found), lambda text: None)
    assert (refused is not None) == (seen is not None)
    if refused:
        assert refused.status == 78
        assert f"has no network interface {wanted} (spec job.yaml:" in refused.reason
        assert f"| {seen} | " in refused.reason


@pytest.mark.parametrize(
    ("own", "other", "wanted", "words"),
    [
        (ETH0, ETH0, "eth0", "network interface: eth0 10.0.0.0/24"),
        (ETH0, ETH1, "eth", "network interface: eth0 10.0.0.0/24, eth1 10.9.0.0/24"),
        (ETH0, V6, "eth0", "warning: EP407 some nodes have IPv4 on the interface and others IPv6 | eth0 10.0.0.0/24,"),
        (ETH0, ETH1, "auto", ""),
    ],
)  # fmt: skip
def test_the_leader_says_what_the_nodes_take(
    own: Interface, other: Interface, wanted: str, words: str
) -> None:
    spec = load(f"command: [x]\nnetwork: {{interface: {wanted}}}", "job.yaml", {}, {})
    said = interface_words(spec, Members((answer(0, own, 1), answer(1, other, 1))))
    assert [each[: len(words)] for each in said] == [words] * bool(words)


def test_a_thousand_networks_are_one_line() -> None:
    each = [answer(i, Interface("eth0", f"10.0.{i}.7", f"10.0.{i}.0/24"), 1) for i in range(200)]
    (said,) = interface_words(
        load("network: {interface: eth0}", "job.yaml", {}, {}), Members(tuple(each))
    )
    assert said.endswith("eth0 10.0.3.0/24 and 196 more")


ONE = "EP100 one interface is needed"
NOT_SO = "EP100 this is not how a network is written .*write "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "") for text in ("auto", "ib", "eth0.100", "bond-1", "10.0.0.0/8", "fd00::/64")),
        ("eth0,eth1", f"{ONE}: .*several for Open MPI and NCCL: mpi.interface"),
        ("", ONE),
        ("a-name-of-20-letters", ONE),
        ("=eth0", ONE),
        ("10.0.0.0/33", ONE),
        ("10.0.0.7", "EP100 an address is of one node alone .*such as 10.0.0.0/24"),
        ("fd00::7", "EP100 an address is of one node alone .*such as fd00::/64"),
        ("10.0.0.7/24", f"{NOT_SO}10.0.0.0/24"),
        ("10.0.0.0/255.0.0.0", f"{NOT_SO}10.0.0.0/8"),
    ],
)
def test_what_an_interface_is(text: str, words: str) -> None:
    setting = f"network: {{interface: '{text}'}}"
    if not words:
        assert load(setting, "job.yaml", {}, {}).network.interface == text
        return
    with pytest.raises(SpecError, match=words):
        load(setting, "job.yaml", {}, {})


def test_two_settings_that_say_different_things_are_an_error() -> None:
    text = "network: {interface: ib0}\ncommand: [x]\n"
    with pytest.raises(
        SpecError, match=r"EP104 mpi.interface contradicts it .*eth0.*env MY_MPI_BTL_TCP_IF"
    ):
        load(text, "job.yaml", {"MY_MPI_BTL_TCP_IF": "eth0"}, {})
    load(text, "job.yaml", {"MY_MPI_BTL_TCP_IF": "ib0"}, {})
    load("network: {interface: auto}", "job.yaml", {"MY_MPI_BTL_TCP_IF": "eth0"}, {})
