"""Which ports a job's nodes look at, which one worker-0 chooses, and where it looks for an sshd."""

from __future__ import annotations

import pytest

from entrypoint.errors import OsError
from entrypoint.job.ports import choose
from entrypoint.model import Facts, LaunchPort, Members, Node, NodeReport, Plan
from entrypoint.plan import settle
from entrypoint.plan.attempts import with_chosen
from entrypoint.plan.ports import candidates, ssh_ports, with_port
from entrypoint.session.search import AttemptFailed, PortSearch
from entrypoint.spec import JobSpec, load
from entrypoint.values import replace

HOSTS = (
    "hosts: [a=10.0.0.1, b=10.0.0.2, c=10.0.0.3]\ncommand: [python, train.py]\nsecret_file: /none\n"
)
FACTS = Facts(env={}, hostname="a", cwd="/job", uid=1000, user="u", home="/home/u")
SILENT = AttemptFailed("sshd at x is slow to answer", late=True, goes_on=True)
OTHER = AttemptFailed("another host key at x", refused=True, is_other_job=True)
NOBODY = AttemptFailed("nothing listens there yet")
TAKEN = AttemptFailed("another leader has it", goes_on=True)


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


@pytest.mark.parametrize(
    ("launcher", "leader", "worker"),
    [
        ("torchrun", ("torch.port", 6060, (0,), True), ()),
        ("accelerate", ("torch.port", 6060, (0,), True), ()),
        ("pytorch", ("torch.port", 6060, (0,), True), ()),
        ("deepspeed", ("torch.port", 6060, (0,), True), ()),
        ("jax", ("jax.port", 6070, (0,), True), ()),
        ("msrun", ("mindspore.port", 8118, (0,), True), ()),
        ("plain", ("torch.port", 6060, (0,), False), ()),
        ("mpirun", ("torch.port", 6060, (0,), False), ()),
        ("hydra", ("torch.port", 6060, (0,), False), ()),
        ("tensorflow", ("tensorflow.port", 2222, (0,), True), (0,)),
        ("ray", ("ray.port", 6379, (0, 1, 2, 3, 4, 5, 6), True), (1, 2, 3, 4, 5, 6)),
    ],
)
def test_what_each_launcher_needs_where(
    launcher: str, leader: tuple[object, ...], worker: tuple[int, ...]
) -> None:
    spec = job(f"launcher: {launcher}\n")
    first, other = (plan(spec, node).launch.port for node in (0, 1))
    assert first is not None
    assert other is not None
    assert (first.path, first.first, first.here, first.needed) == leader
    assert (other.here, other.span, other.everywhere) == (worker, first.span, bool(worker))


def test_a_parameter_server_needs_the_port_beside_its_worker_s() -> None:
    port = plan(job("launcher: tensorflow\ntensorflow: {ps: 1}\n"), 2).launch.port
    assert port is not None
    assert (port.first, port.span, port.here) == (2222, 2, (1,))


def test_a_dashboard_moves_with_ray_s_other_ports() -> None:
    spec = job("launcher: ray\nray: {dashboard: local}\n")
    port = plan(spec).launch.port
    assert port is not None
    assert port.also == (8265,)
    argv = plan(with_port(spec, "ray.port", 20008)).launch.programs[0].argv
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
    wanted = LaunchPort("ray.port", 6379, span=8, everywhere=True)
    spec = job("network: {ports: 21000-21999}\n")
    first, *others = candidates(spec, wanted, "job 1")
    assert first == 6379
    assert len(others) == len(set(others)) == 7
    assert all(21000 <= port <= 21999 - 7 and (port - 21000) % 8 == 0 for port in others)
    assert candidates(spec, wanted, "job 1") == (first, *others)
    assert candidates(spec, wanted, "job 2") != (first, *others)


def test_a_small_range_has_each_block_once() -> None:
    wanted = LaunchPort("ray.port", 6379, span=8, everywhere=True)
    spec = job("network: {ports: 21000-21017}\n")
    assert {*candidates(spec, wanted, "x")} == {6379, 21000, 21008}


def test_a_port_that_is_set_is_the_only_candidate() -> None:
    spec = job(MASTER_PORT="6060")
    assert candidates(spec, LaunchPort("torch.port", 6060), "x") == (6060,)
    assert ssh_ports(job(SSHD_PORT="36666"), Node(1, "b", 1), "x") == (36666,)


def test_a_chosen_port_is_in_the_plan_with_its_origin() -> None:
    spec = with_port(job("launcher: torchrun\n"), "torch.port", 20017)
    (program,) = plan(spec).launch.programs
    assert ("20017", "the roll call") in {
        (var.value, var.origin) for var in program.env if var.name == "MASTER_PORT"
    }


@pytest.mark.parametrize(("chosen", "port"), [(0, 6060), (6060, 6060), (20017, 20017)])
def test_the_roll_call_s_choice_replaces_the_planned_port(chosen: int, port: int) -> None:
    spec = job("launcher: torchrun\n")
    changed = with_chosen(spec, LaunchPort("torch.port", 6060), chosen)
    assert changed.torch.port == port
    assert (changed is spec) == (port == 6060), "the same spec if nothing changes"


def test_sshds_of_a_job_look_at_the_same_ports_and_of_parameter_servers_beside_them() -> None:
    worker, server = Node(1, "b", 1), Node(2, "c", 1, task="ps", ssh_port=36667)
    ports = ssh_ports(job(), worker, "key 1")
    assert ports[0] == 36666
    assert len(ports) == 8
    assert all(20000 <= port < 20999 for port in ports[1:])
    assert ssh_ports(job(), server, "key 1") == tuple(port + 1 for port in ports)
    assert ssh_ports(job(), worker, "key 2") != ports


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
        "port 6060 is taken on worker-0 (a) by nc, worker-2 (c) by nc; torch.port is 20000",
    )


@pytest.mark.parametrize("ports", [((), None, None), ((6060, 20000), (20001,), (20000,))])
def test_no_common_port_is_an_error(ports: tuple[tuple[int, ...] | None, ...]) -> None:
    made = plan(job("launcher: torchrun\n"))
    with pytest.raises(OsError, match=r"EP436 no port for torch.port is free on all nodes"):
        choose(made.launch.port, made.topology, offers(*ports))


# --------------------------------------------------------------------------------------------------
# The search for an sshd


def round_of(search: PortSearch, answers: dict[int, AttemptFailed]) -> list[int]:
    """The ports that a round tries, if those not in `answers` do not answer."""
    left, tried = search.begin_round(), []
    while left:
        port = left.pop(0)
        tried.append(port)
        left = search.failed(port, answers.get(port, NOBODY), left)
    return tried


def test_a_peer_that_has_not_started_costs_one_attempt_a_round() -> None:
    search = PortSearch((1, 2, 3))
    assert [round_of(search, {}) for _ in range(15)] == [[1]] * 15
    assert str(search.failure()) == "nothing listens there yet"
    # It may have taken another port, from a program that has ended since.
    assert round_of(search, {}) == [1, 2, 3]
    assert round_of(search, {}) == [1]


def test_another_job_s_sshd_at_a_port_makes_the_next_one_likely() -> None:
    search = PortSearch((1, 2, 3))
    assert round_of(search, {1: OTHER}) == [1, 2, 3]
    assert round_of(search, {1: OTHER}) == [2]
    assert round_of(search, {1: OTHER, 2: OTHER}) == [2, 3, 1]
    assert search.failure() is OTHER


def test_only_a_host_key_is_a_refusal() -> None:
    search = PortSearch((1, 2))
    round_of(search, {1: SILENT})
    assert not search.failure().refused


def test_another_job_that_is_gone_is_forgotten() -> None:
    search = PortSearch((1, 2))
    round_of(search, {1: OTHER})
    for _ in range(15):
        round_of(search, {})
    assert str(search.failure()) == "nothing listens there yet"


def test_a_peer_that_another_leader_has_stays_the_likely_one() -> None:
    search = PortSearch((1, 2, 3))
    assert round_of(search, {1: TAKEN}) == [1, 2, 3]
    assert round_of(search, {1: TAKEN}) == [1, 2, 3]
    assert search.begin_round() == [1]


def test_a_port_that_is_silent_comes_last() -> None:
    """It takes time each time, and may yet be a slow peer's."""
    search = PortSearch((1, 2, 3))
    assert round_of(search, {1: SILENT}) == [1, 2, 3]
    assert round_of(search, {1: SILENT}) == [2, 3, 1]
    assert round_of(search, {}) == [2, 3, 1]
    assert round_of(search, {}) == [1]


def test_a_host_that_does_not_answer_is_not_asked_at_each_port() -> None:
    search = PortSearch((1, 2, 3))
    late = AttemptFailed("no answer from x", late=True)
    for _ in range(20):
        assert round_of(search, {1: late}) == [1]


def test_a_single_port_is_as_it_always_was() -> None:
    search = PortSearch((1,))
    for error in (SILENT, OTHER, NOBODY, TAKEN):
        assert round_of(search, {1: error}) == [1]
        assert search.failure() is error
