"""Rank tables: the files of tests/ranktables, what they become, and whose they are."""

from __future__ import annotations

import contextlib
import json
import random
from shlex import split
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from entrypoint import ranktable
from entrypoint.base.errors import EntrypointError
from entrypoint.base.model import Facts
from entrypoint.ranktable import NotReady, RankTable
from tests.unit.ranktables import TABLES, read, rows

EXPECTED: dict[str, Any] = yaml.safe_load((TABLES / "expect.yaml").read_text(encoding="utf-8"))


def refusal(function: Any, *args: Any, status: int = 78) -> str:
    with pytest.raises(EntrypointError) as caught:
        function(*args)
    assert caught.value.status == status
    return str(caught.value)


# --------------------------------------------------------------------------------------------------
# Reading


def test_every_file_is_expected() -> None:
    for kind in ("good", "not-ready", "bad"):
        assert {path.stem for path in (TABLES / kind).iterdir()} == set(EXPECTED[kind])


@pytest.mark.parametrize("name", EXPECTED["good"])
def test_good(name: str) -> None:
    table = read(f"good/{name}")
    assert rows(table) == EXPECTED["good"][name]
    assert [card.rank_id for _, card in table.cards] == list(range(table.rank_size))
    assert name.startswith(table.form)


@pytest.mark.parametrize("name", EXPECTED["not-ready"])
def test_not_ready(name: str) -> None:
    with pytest.raises(NotReady) as caught:
        read(f"not-ready/{name}")
    assert caught.value.reason == EXPECTED["not-ready"][name]
    assert caught.value.status == 75
    what = f"EP705 rank table <file> is not complete | {caught.value.reason}"
    assert str(caught.value) == f"{what} | wait until the platform has written it, or fix the file"


@pytest.mark.parametrize("name", EXPECTED["bad"])
def test_bad(name: str) -> None:
    wrong = EXPECTED["bad"][name]
    # it is no table, or something in it is wrong
    id = "EP701" if wrong.startswith((" is ", " has an unknown form")) else "EP700"
    assert refusal(read, f"bad/{name}") == f"{id} rank table <file>{wrong}"


def test_a_table_written_bit_by_bit_is_not_ready_until_its_last_byte() -> None:
    text = (TABLES / "good/v0.1-documented.json").read_text(encoding="utf-8").strip()
    for end in range(len(text)):
        with pytest.raises(NotReady):
            ranktable.parse(text[:end], "<file>")
    assert ranktable.parse(text, "<file>").rank_size == 1


def test_a_byte_order_mark_is_no_mistake() -> None:
    text = (TABLES / "good/v1.0-documented.json").read_text(encoding="utf-8")
    assert ranktable.parse("\ufeff" + text, "<file>").rank_size == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_not_waited_for(encoding: str) -> None:
    text = (TABLES / "good/v1.0-documented.json").read_text(encoding="utf-8")
    message = refusal(ranktable.parse, text.encode(encoding).decode("utf-8", "replace"), "<file>")
    assert message.startswith("EP701 rank table <file> is UTF-16 text | ")
    assert message.endswith(" | save it as UTF-8")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"status": "completed", "server_count": ' + "9" * 5000 + "}"]
)
def test_what_python_itself_gives_up_on_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(EntrypointError):
        ranktable.parse(text, "<file>")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    split(
                        "server_list rank_list local_id device devices group_list instance_list"
                        " rank_id pod_name server_id device_id device_ip version"
                    )
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_no_content_is_a_defect_of_ours(value: Any) -> None:
    document = {
        **(value if isinstance(value, dict) else {"group_list": value}),
        "status": "completed",
    }
    for version in ({}, {"version": "1.0"}, {"version": "1.2"}, {"version": "2.0"}):
        with contextlib.suppress(EntrypointError):
            ranktable.parse(json.dumps({**document, **version}), "<file>")


# --------------------------------------------------------------------------------------------------
# Writing


def document(name: str) -> Any:
    return json.loads((TABLES / f"good/{name}.json").read_text(encoding="utf-8"))


def test_what_is_written_has_the_documented_form() -> None:
    v1, v0 = document("v1.0-documented"), document("v0.1-documented")
    assert json.loads(ranktable.to_v1(read("good/v1.0-documented"))) == v1
    v0["group_list"][0]["group_name"] = "group-0"
    assert json.loads(ranktable.to_v0(read("good/v0.1-documented"))) == v0


def test_what_v1_says_besides_is_kept() -> None:
    assert json.loads(ranktable.to_v1(read("good/v1.0-optional-fields")))["server_list"] == [
        {
            "server_id": "node_0",
            "host_nic_ip": "reserve",
            "host_ip": "172.16.0.100",
            "container_ip": "fd00::7",
            "device": [
                {"device_id": "0", "rank_id": "0"},
                {"device_id": "1", "device_port": "16666", "rank_id": "1"},
            ],
        }
    ]


def test_super_pods_stay_v1_2_and_have_no_v0() -> None:
    table = read("good/v1.2-super-pods")
    assert json.loads(ranktable.to_v1(table)) == document("v1.2-super-pods")
    assert (
        refusal(ranktable.to_v0, table)
        == "EP706 rank table <file> cannot be written as v0.1 | it has super-pods (v1.2) | keep it"
        " as it is"
    )


def test_v2_is_passed_on_as_it_is() -> None:
    """HCCL gets its bytes; no other form has what it has"""
    table = read("good/v2.0-two-nodes")
    assert ranktable.for_hccl(table) == (TABLES / "good/v2.0-two-nodes.json").read_text("utf-8")
    wrong = "EP706 rank table <file> cannot be written as {} | its form is v2.0 | keep it as it is"
    assert refusal(ranktable.to_v0, table) == wrong.format("v0.1")
    assert refusal(ranktable.to_v1, table) == wrong.format("v1.0")
    assert ranktable.for_hccl(read("good/v1.0-numbers")) == ranktable.to_v1(
        read("good/v1.0-numbers")
    )
    assert ranktable.describe(table).splitlines()[:3] == [
        "v2.0: 2 servers, 4 devices",
        "rank  server  device",
        "0     node-0  0",
    ]


@pytest.mark.parametrize("name", [name for name in EXPECTED["good"] if name.startswith("v0.1")])
def test_v0_keeps_its_pods_and_ranks(name: str) -> None:
    """And as v1, which has no pods, its ranks."""
    table = read(f"good/{name}")
    assert ranktable.parse(ranktable.to_v0(table), "<file>") == table
    v1 = ranktable.parse(ranktable.to_v1(table), "<file>")
    assert [row[:3] for row in rows(v1)] == [row[:3] for row in rows(table)]


@st.composite
def tables(draw: st.DrawFn) -> RankTable:
    """Any v1.0 table: several servers, any device numbers, ranks in any order, even alternating
    between servers."""
    owners = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    numbers = draw(st.permutations(range(20)))
    servers: dict[int, list[dict[str, str]]] = {}
    for rank, owner in enumerate(owners):
        entry = {
            "device_id": str(numbers[rank]),
            "device_ip": f"10.{owner}.0.{rank}",
            "rank_id": str(rank),
        }
        servers.setdefault(owner, []).append(entry)
    shuffled = draw(st.permutations(list(servers)))
    listed = [
        {"server_id": f"node_{owner}", "device": draw(st.permutations(servers[owner]))}
        for owner in shuffled
    ]
    document = {
        "status": "completed",
        "version": "1.0",
        "server_count": len(listed),
        "server_list": listed,
    }
    return ranktable.parse(json.dumps(document), "<file>")


@given(tables())
def test_v1_to_v0_to_v1_is_the_same(table: RankTable) -> None:
    v1 = ranktable.to_v1(table)
    assert ranktable.to_v1(ranktable.parse(ranktable.to_v0(table), "<file>")) == v1
    assert ranktable.parse(v1, "<file>") == table


@given(st.sets(st.integers(0, 10**9 - 1), min_size=1, max_size=20), st.randoms())
def test_pods_sort_by_number(numbers: set[int], shuffle: random.Random) -> None:
    order = list(numbers)
    shuffle.shuffle(order)
    instances = [
        {"pod_name": f"job-worker-{number}", "server_id": f"node_{number}",
         "devices": [{"device_id": "0", "device_ip": f"fd00::{index:x}"}]}
        for index, number in enumerate(order)
    ]  # fmt: skip
    document = {"status": "completed", "group_list": [{"instance_list": instances}]}
    table = ranktable.parse(json.dumps(document), "<file>")
    assert [card.pod for _, card in table.cards] == [
        f"job-worker-{number}" for number in sorted(numbers)
    ]


# --------------------------------------------------------------------------------------------------
# This node


@pytest.mark.parametrize(("name", "called", "ranks"), EXPECTED["own"])
def test_own(name: str, called: dict[str, str], ranks: list[int]) -> None:
    assert [card.rank_id for card in ranktable.own(read(f"good/{name}"), called).devices] == ranks


@pytest.mark.parametrize(("name", "called", "seen"), EXPECTED["not found"])
def test_own_is_not_there(name: str, called: dict[str, str], seen: str) -> None:
    assert (
        refusal(ranktable.own, read(f"good/{name}"), called)
        == f"EP702 this node is not identified in rank table <file> | {seen}"
        " | name it as the table does: its pod in POD_NAME, or its server in HOST_IP"
    )


def test_addresses_are_compared_as_addresses() -> None:
    table = read("good/v1.0-optional-fields")
    assert ranktable.find(table, {"POD_IP": "FD00:0:0::7"}).server_id == "node_0"


def test_nodes() -> None:
    found = ranktable.nodes(read("good/v0.1-two-groups"))
    expected = [(("job-ps-0",), 1), (("job-ps-1",), 1), (("job-worker-0",), 1)]
    assert [(node.pods, len(node.devices)) for node in found] == expected


def test_names_come_from_the_environment_then_the_host_name() -> None:
    env = {
        "POD_IP": "10.0.0.7",
        "MA_CURRENT_INSTANCE_NAME": "modelarts-job-worker-1",
        "HOST_IP": "",
        "HOME": "/root",
    }
    facts = Facts(env=env, hostname="worker-1", cwd="/", uid=0, user="root", home="/root")
    assert list(ranktable.names(facts).items()) == [
        ("MA_CURRENT_INSTANCE_NAME", "modelarts-job-worker-1"),
        ("POD_IP", "10.0.0.7"),
        ("host name", "worker-1"),
    ]


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({}, "/user/config/jobstart_hccl.json"),
        ({"RANK_TABLE_FILE": ""}, "/user/config/jobstart_hccl.json"),
        ({"RANK_TABLE_FILE": "/a/directory"}, "/a/directory/jobstart_hccl.json"),
        ({"RANK_TABLE_FILE": "/not/there/yet/"}, "/not/there/yet/jobstart_hccl.json"),
        ({"RANK_TABLE_FILE": "/a/hccl.json"}, "/a/hccl.json"),
        ({"RANK_TABLE_FILE": "/a/hccl.json", "RANK_TABLE_FILE_V_1_0": "/b/v1.json"}, "/b/v1.json"),
    ],
)
def test_path(env: dict[str, str], path: str) -> None:
    assert ranktable.path_from(env, lambda path: path == "/a/directory") == path


SERVER = ranktable.from_hccn_conf("address_4=10.0.0.4\naddress_5=10.0.0.5\n", "node").servers[0]


@pytest.mark.parametrize(
    ("cards", "logical", "warning"),
    [
        ((4, 5), (0, 1), ""),
        ((3, 4, 5, 6), (1, 2), "2 devices of this container are not in the rank table and stay idle"),
        ((0, 1), (0, 1), "the rank table's devices are numbered otherwise than the container's, taking them in order"),
    ],
)  # fmt: skip
def test_devices_of_table_and_container(
    cards: tuple[int, ...], logical: tuple[int, ...], warning: str
) -> None:
    has = ",".join(map(str, cards))
    said = f"EP703 {warning} | the table has 4,5, the container {has}" if warning else ""
    assert ranktable.logical_ids(SERVER, cards) == (logical, said)


def test_devices_that_the_container_does_not_have() -> None:
    do = "give the container its devices, or fix ASCEND_RT_VISIBLE_DEVICES"
    assert (
        refusal(ranktable.logical_ids, SERVER, ())
        == "EP703 the rank table gives this node 2 devices and the container has 0"
        f" | the table has 4,5, the container none | {do}"
    )


# --------------------------------------------------------------------------------------------------
# Making


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            (
                "EP707 hccn.conf names no device | no line address_N=IP | run hccn_tool on the"
                " server, or give --addresses"
            ),
        ),
        (
            "address_0=1.2.3\n",
            'EP707 hccn.conf: device 0 has no IP address | "1.2.3" | fix the address',
        ),
    ],
)
def test_hccn_conf_that_is_wrong(text: str, message: str) -> None:
    assert refusal(ranktable.from_hccn_conf, text, "10.0.0.1", "hccn.conf") == message


def test_a_server_merges_once() -> None:
    table = ranktable.from_addresses(["10.1.0.1"], "10.0.0.1", "a")
    assert (
        refusal(ranktable.merge, [table, table])
        == 'EP700 rank table a: server_list[1].server_id is listed twice | "10.0.0.1" | list each'
        " server once"
    )


def test_super_pods_do_not_merge() -> None:
    assert (
        refusal(ranktable.merge, [read("good/v1.2-super-pods")])
        == "EP707 rank tables <file> cannot be merged | one has super-pods (v1.2) | merge v1.0"
        " tables"
    )
