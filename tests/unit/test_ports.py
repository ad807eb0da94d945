"""Which ports a job's nodes look at, which one worker-0 chooses, and where sshd listens."""

from __future__ import annotations

import pytest

from entrypoint.base.errors import HostError, SpecError
from entrypoint.base.model import Facts, LaunchPort, Members, NodeReport, Plan
from entrypoint.base.values import replace
from entrypoint.cli.plan_text import plan_text
from entrypoint.plan import settle
from entrypoint.plan.ports import candidates, choose, with_chosen
from entrypoint.session.gateway import ssh_port
from entrypoint.spec import JobSpec, load
from tests import table

TABLE = table("tests/tables/ports.yaml")

HOSTS = (
    "hosts: [a=10.0.0.1, b=10.0.0.2, c=10.0.0.3]\ncommand: [python, train.py]\nsecret_file: /none\n"
)
FACTS = Facts(env={}, hostname="a", cwd="/job", uid=1000, user="u", home="/home/u")


def job(more: str = "", **env: str) -> JobSpec:
    return load(HOSTS + more, "job.yaml", {"ENTRYPOINT_NODE_RANK": "0", **env}, {})


def plan(spec: JobSpec, node: int = 0) -> Plan:
    return settle(replace(spec, node_rank=node), FACTS)


def offers(*ports: tuple[int, ...] | None) -> Members:
    reports = (
        NodeReport(rank, 1, "1", ports=offer, holder="nc") for rank, offer in enumerate(ports)
    )
    return Members(tuple(reports))


# --------------------------------------------------------------------------------------------------
# What launchers want


@pytest.mark.parametrize(("launcher", "leader", "worker"), TABLE["needs"])
def test_what_each_launcher_needs_where(
    launcher: str, leader: list[object], worker: list[int]
) -> None:
    spec = job(f"launcher: {launcher}\n")
    first, other = (plan(spec, node).launch.port for node in (0, 1))
    assert first is not None
    assert other is not None
    assert [first.first, [*first.here], first.needed] == leader
    assert ([*other.here], other.span, other.everywhere) == (worker, first.span, bool(worker))


def test_a_parameter_server_needs_the_port_beside_its_worker_s() -> None:
    port = plan(job("launcher: tensorflow\ntensorflow: {ps: 1}\n"), 2).launch.port
    assert (port.first, port.span, port.here) == (2222, 2, (1,))


def test_a_dashboard_moves_with_ray_s_other_ports() -> None:
    spec = job("launcher: ray\nray: {dashboard: local}\n")
    port = plan(spec).launch.port
    assert port.also == (8265,)
    argv = plan(with_chosen(spec, LaunchPort(6379), 20008)).launch.programs[0].argv
    assert {"--port=20008", "--metrics-export-port=20014", "--dashboard-port=20015"} <= {*argv}


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [("torchrun", "MASTER_PORT"), ("plain", "MASTER_PORT"), ("jax", "JAX_COORDINATOR_ADDRESS")],
)
def test_nothing_is_chosen_for_a_program_that_is_told_another_place(
    launcher: str, variable: str
) -> None:
    more = f'launcher: {launcher}\nenv: {{{variable}: "7000"}}\n'
    assert plan(job(more)).launch.port is None


def test_a_single_node_asks_nobody() -> None:
    alone = load("command: [train]\nlauncher: jax\n", "job.yaml", {}, {})
    assert settle(alone, FACTS).launch.port is None


# --------------------------------------------------------------------------------------------------
# Candidates


def test_candidates_are_blocks_of_the_range_behind_the_default() -> None:
    wanted = LaunchPort(6379, span=8, everywhere=True)
    spec = job("network: {ports: 21000-21999}\n")
    first, *others = candidates(spec, wanted, "job 1")
    assert first == 6379
    assert len(others) == len(set(others)) == 7
    assert all(21000 <= port <= 21999 - 7 and (port - 21000) % 8 == 0 for port in others)
    assert candidates(spec, wanted, "job 1") == (first, *others)
    assert candidates(spec, wanted, "job 2") != (first, *others)


@pytest.mark.parametrize("port", ["1023", "65530"])
def test_ray_needs_the_six_ports_after_its_own(port: str) -> None:
    assert plan(job(f"launcher: jax\nport: {port}\n")), "the control"
    with pytest.raises(SpecError, match="port: EP100 a whole number from 1024 to 65529 is needed"):
        plan(job(f"launcher: ray\nport: {port}\n"))


def test_a_small_range_has_each_block_once() -> None:
    wanted = LaunchPort(6379, span=8, everywhere=True)
    spec = job("network: {ports: 21000-21017}\n")
    assert {*candidates(spec, wanted, "x")} == {6379, 21000, 21008}


def test_a_port_that_is_set_is_the_only_candidate() -> None:
    spec = job(ENTRYPOINT_PORT="6060")
    assert candidates(spec, LaunchPort(6060), "x") == (6060,)


def test_under_a_scheduler_the_default_comes_last() -> None:
    first, *others = candidates(job(), LaunchPort(6060), "x")
    assert candidates(job(), LaunchPort(6060), "x", shared=True) == (*others, first)


def test_a_chosen_port_is_in_the_plan_with_its_origin() -> None:
    spec = with_chosen(job("launcher: torchrun\n"), LaunchPort(6060), 20017)
    made = plan(spec)
    assert "--master_port=20017" in made.launch.programs[0].argv
    assert "  port: 20017  # the roll call\n" in plan_text(spec, made)


@pytest.mark.parametrize(("chosen", "port"), [(0, 6060), (6060, 6060), (20017, 20017)])
def test_the_roll_call_s_choice_replaces_the_planned_port(chosen: int, port: int) -> None:
    spec = job("launcher: torchrun\n")
    changed = with_chosen(spec, LaunchPort(6060), chosen)
    assert (changed.port or 6060) == port
    assert (changed is spec) == (port == 6060), "the same spec if nothing changes"


@pytest.mark.parametrize(
    ("env", "port"),
    [
        ({}, 36666),
        ({"SSHD_PORT": "4000"}, 4000),
        ({"SSHD_PORT": "4000", "SLURM_JOB_ID": "7"}, 4000),
        ({"SLURM_JOB_ID": "7"}, 0),
        ({"PBS_JOBID": "7.here"}, 0),
        ({"LSB_JOBID": "7"}, 0),
        ({"SSHD_PORT": "auto"}, 0),
    ],
)
def test_sshd_s_port_is_one_number_or_follows_from_the_keys(env: dict[str, str], port: int) -> None:
    text = "tensorflow: {ps: 1}\nlauncher: tensorflow\n"
    nodes = settle(job(text, **env), replace(FACTS, env=env)).topology.nodes
    assert [node.ssh_port for node in nodes] == [port, port, port and port + 1]
    first, second, server = (ssh_port(job().network.ports, node, "key 1") for node in nodes)
    assert first == second == server - 1
    if not port:
        assert 20000 <= first < 20999
        assert ssh_port(job().network.ports, nodes[0], "key 2") != first


@pytest.mark.parametrize(
    "text", ["20000", "20000-", "20000-20010", "20999-20000", "80-2000", "65000-70000", "a-b"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="range"):
        job(f"network: {{ports: {text}}}\n")


@pytest.mark.parametrize("text", ["1024-1039", "65520-65535"])
def test_a_range_may_begin_and_end_with_the_first_and_the_last_port(text: str) -> None:
    assert job(f"network: {{ports: {text}}}\n").network.ports == text


# --------------------------------------------------------------------------------------------------
# The choice


@pytest.mark.parametrize(
    ("ports", "chosen"),
    [
        ((None, None, None), 0),
        (((6060,), None, None), 0),
        (((6060, 20000), (6060,), (20000, 6060)), 0),
        (((6060, 20000, 20001), (20000, 20001), None), 20000),
        (((20000, 20001), (6060, 20001, 20000), (20001,)), 20001),
        # what worker-0 does not offer is not chosen, whoever else may
        (((6060, 20000), (7, 20000), (7, 20000)), 20000),
    ],
)
def test_the_first_port_that_all_offer_is_chosen(
    ports: tuple[tuple[int, ...] | None, ...], chosen: int
) -> None:
    made = plan(job("launcher: torchrun\n"))
    assert choose(made.launch.port, made.topology, offers(*ports))[0] == chosen


def test_the_log_names_who_has_the_default() -> None:
    made = plan(job("launcher: torchrun\n"))
    members = offers((20000,), (6060, 20000), (20000,))
    assert choose(made.launch.port, made.topology, members)[1] == (
        "port 6060 is taken on worker-0 (a) by nc, worker-2 (c) by nc; the launcher gets port 20000",
    )


@pytest.mark.parametrize("ports", [((), None, None), ((6060, 20000), (20001,), (20000,))])
def test_no_common_port_is_an_error(ports: tuple[tuple[int, ...] | None, ...]) -> None:
    made = plan(job("launcher: torchrun\n"))
    with pytest.raises(HostError, match=r"EP436 no port for the launcher is free on all nodes"):
        choose(made.launch.port, made.topology, offers(*ports))
