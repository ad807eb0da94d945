"""The launcher ray: what each node's `ray start` is told, and what is refused by name."""

from __future__ import annotations

import pytest

from entrypoint import registry, spec
from entrypoint.errors import SpecError
from entrypoint.launchers import ray
from entrypoint.model import Facts, Interface, Launch, Members
from entrypoint.plan import assume_members, topology
from entrypoint.values import replace

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me")


def launch(
    text: str, node: int = 0, hosts: str = "[a, b]", interface: Interface | None = None
) -> Launch:
    job = spec.load(f"hosts: {hosts}\nnode_rank: {node}\n{text}", "job.yaml", {}, {})
    site = registry.choose("platforms", None, FACTS, "local").site(FACTS)
    device = registry.choose("devices", None, FACTS, "cpu").device(FACTS)
    there = topology.build(job, FACTS, site, device)
    members = assume_members(there, FACTS)
    return ray.plan(
        job, there, Members(tuple(replace(each, interface=interface) for each in members.reports))
    )


def words(made: Launch) -> list[str]:
    """What follows the script's own words, up to the program."""
    argv = list(made.programs[0].argv)
    return argv[6 : argv.index("--")]


PORTS = [
    *("--node-manager-port=6380", "--object-manager-port=6381", "--runtime-env-agent-port=6382"),
    *(
        "--dashboard-agent-grpc-port=6383",
        "--dashboard-agent-listen-port=6384",
        "--metrics-export-port=6385",
    ),
]
CLOSED = ["--include-dashboard=false", "--dashboard-host=127.0.0.1", "--dashboard-port=8265"]


def test_the_head_and_a_worker() -> None:
    head, worker = launch("command: [train.py]"), launch("command: [train.py]", 1)
    assert words(head) == ["--head", "--port=6379", *CLOSED, *PORTS]
    assert words(worker) == ["--address=a:6379", *PORTS]
    assert head.programs[0].argv[2:6] == ("2", "600", "a:6379", "a")
    assert worker.programs[0].argv[5] == "b"
    assert head.programs[0].argv[-2:] == ("python", "train.py")
    assert head.ends.awaited == (0,)
    assert head.start.needs_roll_call
    told = {var.name: var.value for var in head.programs[0].env}
    assert told["RAY_ADDRESS"] == "a:6379"
    assert told["RAY_AUTH_MODE"] == "token"


def test_what_a_spec_may_change() -> None:
    text = "command: [x]\nslots: 3\nray: {port: 7000, dashboard: local, extra_args: ['--memory=5']}"
    head = words(launch(text))
    assert head[:3] == ["--head", "--port=7000", "--include-dashboard=true"]
    assert "--dashboard-host=127.0.0.1" in head
    assert head[-3:] == ["--metrics-export-port=7006", "--num-cpus=3", "--memory=5"]


def test_the_address_is_that_of_the_roll_call_s_interface() -> None:
    made = launch("command: [x]", 1, interface=Interface("eth1", "10.0.0.7", "10.0.0.0/24"))
    assert made.programs[0].argv[5] == "10.0.0.7"


def test_one_node() -> None:
    made = launch("command: [x]", hosts="[a]")
    assert made.programs[0].argv[2:6] == ("1", "600", "127.0.0.1:6379", "127.0.0.1")
    assert [file.name for file in made.files] == ["ray_node.py"]
    assert not made.start.needs_roll_call


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "ray: {extra_args: [--head]}",
            "EP119 --head is set by the launcher | `--head` | set hosts",
        ),
        (
            "ray: {extra_args: ['--num-cpus=4']}",
            "EP119 --num_cpus is set by the launcher | `--num-cpus=4` | set slots",
        ),
        (
            "ray: {extra_args: [--dashboard-host=0.0.0.0]}",
            (
                "EP119 --dashboard_host is set by the launcher | `--dashboard-host=0.0.0.0` | set"
                " ray.dashboard"
            ),
        ),
        (
            "env: {RAY_ADDRESS: auto}",
            (
                "env.RAY_ADDRESS: EP119 RAY_ADDRESS is set by the launcher | `auto` | remove it,"
                " and set launcher: plain"
            ),
        ),
    ],
)
def test_what_it_refuses_by_name(more: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        launch(f"command: [x]\n{more}")
    assert says in str(error.value)


def test_ray_is_no_program() -> None:
    with pytest.raises(SpecError, match="EP118 the command is a launcher itself"):
        launch("command: [ray, start, --head]")
