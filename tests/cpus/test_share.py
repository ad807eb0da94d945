"""Who divides a node's CPUs: every launcher, other nodes, and values that the user has set."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pytest

from entrypoint import spec as specs
from entrypoint.base import registry
from entrypoint.base.model import Cards, EnvVar, Facts, Members, NodeReport, Plan
from entrypoint.base.values import replace
from entrypoint.plan import env_of_ranks
from entrypoint.plan import settle as make_plan
from entrypoint.plan.members import with_neighbours, with_report
from tests.cpus import NAMES

FACTS = Facts({}, "a", "/", 0, "root", "/root", cpus=8.0)
ALL = dict.fromkeys(NAMES, "2")
YIELD = "OMPI_MCA_mpi_yield_when_idle"


def settle(text: str, env: Mapping[str, str] | None = None, facts: Facts = FACTS) -> Plan:
    facts = replace(facts, env=env or {})
    return make_plan(specs.load(f"command: [prog]\n{text}", "job.yaml", facts.env, {}), facts)


def threads(plan: Plan) -> dict[str, str]:
    return {var.name: var.value for var in plan.env if var.name in NAMES}


@pytest.mark.parametrize("launcher", registry.names("launchers"))
def test_every_launcher(launcher: str) -> None:
    """TensorFlow's one process has all CPUs, and Ray divides them itself."""
    table = "ascend: {rank_table: none}" if launcher == "ascend" else ""
    plan = settle(f"launcher: {launcher}\nslots: 4\n{table}")
    number, origin = {"tensorflow": ("8", "8 CPUs for 1 rank")}.get(
        launcher, ("2", "8 CPUs for 4 ranks")
    )
    expected = [] if launcher == "ray" else [EnvVar(name, number, origin, True) for name in NAMES]
    assert [var for var in plan.env if var.name in NAMES] == expected


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_each_node_has_its_own_share(rank: int) -> None:
    """Worker-0 with two slots, worker-1 with eight; a parameter server has all."""
    job = f"hosts: [a:2, b:8, c]\nnode_rank: {rank}\nroll_call: none\nlauncher: "
    own = settle(f"{job}torchrun\nslots: 1")
    assert threads(own)["OMP_NUM_THREADS"] == ("4", "1", "8")[rank]
    servers = settle(f"{job}tensorflow\nslots: 4\ntensorflow: {{ps: 1}}")
    assert threads(servers)["OMP_NUM_THREADS"] == "8"


def test_nodes_on_one_machine_share_its_cpus() -> None:
    """Of four nodes, three have a loopback address, as under `entrypoint local`."""
    hosts = "hosts: [a:2=127.0.0.2, b:1=127.0.0.3, c:1=127.0.0.4, d:1=10.0.0.9]\nroll_call: none\n"
    for launcher in ("torchrun", "tensorflow"):  # 4 ranks; 3 processes
        plan = settle(f"{hosts}node_rank: 0\nlauncher: {launcher}")
        assert threads(plan)["OMP_NUM_THREADS"] == "2"
    assert threads(settle(f"{hosts}node_rank: 3\nlauncher: torchrun"))["OMP_NUM_THREADS"] == "8"


LOCAL = "hosts: [a:2=127.0.0.2, b:2=127.0.0.3]\nnode_rank: 1\nroll_call: none\n"


@pytest.mark.promise("ranks of several nodes on one machine yield their CPUs without a setting")
@pytest.mark.parametrize(
    ("cpus", "text", "env", "yields"),
    [
        (2.0, LOCAL, {}, "1"),  # 4 ranks, of which each node has only as many as CPUs
        (3.5, LOCAL, {}, "1"),
        (4.0, LOCAL, {}, None),
        (2.0, LOCAL.replace("127.0.0.3", "10.0.0.3"), {}, None),
        (2.0, LOCAL, {YIELD: "0"}, None),  # the container's own wins
        (2.0, f"{LOCAL}env: {{{YIELD}: '0'}}\n", {}, "0"),
        (2.0, f"{LOCAL}env: {{OPENMPI_MCA_ARGS: -mca mpi_yield_when_idle 0}}\n", {}, None),
    ],
)
def test_ranks_of_several_nodes_on_one_machine_yield(
    cpus: float, text: str, env: dict[str, str], yields: str | None
) -> None:
    text = f"{text}launcher: mpirun\nroll_call: required\n".replace("roll_call: none\n", "")
    env = {**env, "ENTRYPOINT_SECRET": secrets.token_hex(32)}
    plan = settle(text, env, replace(FACTS, cpus=cpus))
    assert {var.name: var.value for var in plan.env}.get(YIELD) == yields


@pytest.mark.control("ranks of several nodes on one machine yield their CPUs without a setting")
def test_parameters_of_open_mpis_own_files_win() -> None:
    facts = replace(FACTS, cpus=2.0, mpi_params=("mpi_yield_when_idle",))
    plan = settle("launcher: mpirun\nslots: 4", facts=facts)
    assert YIELD not in {var.name for var in plan.env}


def test_nodes_that_have_told_the_same_cpus_share_them() -> None:
    """As after a roll call: a and c are on one machine, and the spare d has no ranks."""
    pools = ("one", "two", "one", "one", "")
    heard = Members(
        tuple(NodeReport(rank, rank + 1, "", cpu_pool=pool) for rank, pool in enumerate(pools))
    )
    known = with_neighbours(heard, lambda rank: rank != 3)
    assert [report.neighbours for report in known.reports] == [(3,), (), (1,), (1, 3), ()]
    told = with_report(heard, 2, neighbours=(1,))
    assert [report.neighbours for report in told.reports] == [(), (), (1,), (), ()]
    spec = specs.load(
        "command: [prog]\nlauncher: torchrun\nhosts: [a:1, b:2, c:3, d:4, e:5]\nnode_rank: 2\n"
        "roll_call: none\n",
        "job.yaml",
        {},
        {},
    )
    plan = make_plan(spec, FACTS, members=known)
    (omp,) = (var for var in plan.env if var.name == "OMP_NUM_THREADS")
    assert (omp.value, omp.origin) == ("2", "8 CPUs for 4 ranks of 2 nodes on this host")


def test_ranks_of_a_rank_table_share_the_cpus_whatever_the_slots() -> None:
    spec = specs.load("command: [prog]\nlauncher: ascend\nslots: 4\n", "job.yaml", {}, {})
    cards = Cards("", ranks=(0, 1), devices=(0, 1), size=2)
    members = Members((NodeReport(0, 4, ""),), cards=cards)
    plan = make_plan(spec, FACTS, members=members)
    assert threads(plan)["OMP_NUM_THREADS"] == "4"


def test_ranks_on_a_worker_of_mpirun_have_them() -> None:
    env = {"ENTRYPOINT_SECRET": secrets.token_hex(32)}
    plan = settle("launcher: mpirun\nslots: 4\nhosts: [a, b]\nnode_rank: 1", env)
    assert {b"OMP_NUM_THREADS=2", b"MKL_NUM_THREADS=2"} < {*env_of_ranks(FACTS, plan)}


@pytest.mark.parametrize(
    ("text", "env", "left"),
    [
        ("", {"OMP_NUM_THREADS": "3"}, ()),
        ("env: {OMP_NUM_THREADS: '3'}", {}, ()),
        ("", {"OMP_NUM_THREADS": ""}, ()),
        ("env: {OPENMPI_X_ARGS: -x A -x OMP_NUM_THREADS=3}", {}, ()),
        ("launcher_args: [-x, OMP_NUM_THREADS]", {}, ()),
        ("", {"MKL_NUM_THREADS": "3"}, (NAMES[0], *NAMES[2:])),
        ("env: {OPENBLAS_NUM_THREADS: '3'}", {}, (*NAMES[:2], NAMES[3])),
        ("", {"GOTO_NUM_THREADS": "3"}, (*NAMES[:2], NAMES[3])),
        ("", {"NUMEXPR_NUM_THREADS": "3"}, NAMES[:3]),
    ],
)
def test_the_users_own_value_wins(text: str, env: dict[str, str], left: tuple[str, ...]) -> None:
    plan = settle(f"launcher: mpirun\nslots: 4\n{text}", env)
    ours = [var for var in plan.env if var.name in NAMES and var.origin.startswith("8 CPUs")]
    assert {var.name: var.value for var in ours} == {name: ALL[name] for name in left}


def test_what_the_leader_has_set_counts_on_every_node() -> None:
    spec = specs.load("command: [prog]\nlauncher: mpirun\nslots: 4\n", "job.yaml", {}, {})
    plan = make_plan(spec, FACTS, leader_env={"OMP_NUM_THREADS": "3"})
    assert [var for var in plan.env if var.name in NAMES] == [
        EnvVar("OMP_NUM_THREADS", "3", "worker-0's spec")
    ]


def test_numexpr_gets_no_more_than_it_takes() -> None:
    many = replace(FACTS, cpus=512.0)
    given = threads(settle("slots: 4\nlauncher: jax", facts=many))
    assert (given["OMP_NUM_THREADS"], given["NUMEXPR_NUM_THREADS"]) == ("128", "64")
    env = {"NUMEXPR_MAX_THREADS": "100"}
    given = threads(settle("slots: 4\nlauncher: jax", env, many))
    assert (given["OMP_NUM_THREADS"], given["NUMEXPR_NUM_THREADS"]) == ("128", "100")


def test_unknown_cpus_are_not_divided() -> None:
    assert threads(settle("slots: 4", facts=replace(FACTS, cpus=None))) == {}
