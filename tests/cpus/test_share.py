"""Who divides a node's CPUs: every launcher, other nodes, and values that the user has set."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pytest

from entrypoint import plan as planning
from entrypoint import registry
from entrypoint import spec as specs
from entrypoint.model import Cards, EnvVar, Facts, Members, NodeReport, Plan, Processors
from entrypoint.values import replace
from tests.cpus.test_machines import NAMES

FACTS = Facts({}, "a", "/", 0, "root", "/root", cpus=8.0)
ALL = dict.fromkeys(NAMES, "2")
# Launchers that start a process for each slot, under a supervisor of its own; others bind none.
BINDING = {"accelerate", "ascend", "deepspeed", "hydra", "jax", "mpirun", "torchlaunch", "torchrun"}


def settle(text: str, env: Mapping[str, str] | None = None, facts: Facts = FACTS) -> Plan:
    facts = replace(facts, env=env or {})
    return planning.settle(specs.load(f"command: [prog]\n{text}", "job.yaml", facts.env, {}), facts)


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


def test_ranks_of_a_rank_table_share_the_cpus_whatever_the_slots() -> None:
    spec = specs.load("command: [prog]\nlauncher: ascend\nslots: 4\n", "job.yaml", {}, {})
    cards = Cards("", ranks=(0, 1), devices=(0, 1), size=2)
    members = Members((NodeReport(0, 4, ""),), cards=cards)
    plan = planning.settle(spec, FACTS, members=members)
    assert threads(plan)["OMP_NUM_THREADS"] == "4"


def test_a_worker_of_mpirun_has_them_in_its_own_file() -> None:
    env = {"ENTRYPOINT_SECRET": secrets.token_hex(32)}
    plan = settle("launcher: mpirun\nslots: 4\nhosts: [a, b]\nnode_rank: 1", env)
    (file,) = (file for file in plan.files if file.name == "rank.env")
    assert "OMP_NUM_THREADS=2\0MKL_NUM_THREADS=2\0" in file.text


@pytest.mark.parametrize(
    ("text", "env", "left"),
    [
        ("", {"OMP_NUM_THREADS": "3"}, ()),
        ("env: {OMP_NUM_THREADS: '3'}", {}, ()),
        ("", {"OMP_NUM_THREADS": ""}, ()),
        ("mpi: {x_args: -x A -x OMP_NUM_THREADS=3}", {}, ()),
        ("mpi: {extra_args: -x OMP_NUM_THREADS}", {}, ()),
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
    plan = planning.settle(spec, FACTS, leader_env={"OMP_NUM_THREADS": "3"})
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


@pytest.mark.parametrize("launcher", registry.names("launchers"))
def test_binding_needs_a_supervisor_for_each_rank(launcher: str) -> None:
    """Others are warned of, and their plan says nothing of CPUs; ranks' own supervisors are told."""
    cores = tuple((cpu,) for cpu in range(8))
    facts = replace(FACTS, processors=Processors(cores, {0: tuple(range(8))}))
    table = "ascend: {rank_table: none}" if launcher == "ascend" else ""
    plan = settle(f"launcher: {launcher}\nslots: 4\ncpu: {{bind: cores}}\n{table}", facts=facts)
    binds = launcher in BINDING
    assert (plan.warnings == ()) is binds
    note = "cpu.bind: cores: CPUs of this node's ranks, in their order: 0-1, 2-3, 4-5, 6-7"
    assert (note in plan.later) is binds
    (file,) = (file.text for file in plan.files if file.name == "cpus")
    assert file == ("0 1\n2 3\n4 5\n6 7\n" if binds else "\n")
    scripts = [file.text for file in plan.files if file.name == "rank.sh"]
    assert all(f"--cpus {plan.topology.run_dir}/cpus --local " in text for text in scripts)
    spec = specs.load("cpu: {bind: cores}", "job.yaml", {}, {})
    words = planning.with_supervisor(plan.launch, 0, spec, plan.topology)
    # the supervisor of what starts ranks leaves it, and so them, unbound
    assert ("--cpus" in words) is (launcher in ("jax", "ascend"))


@pytest.mark.parametrize("number", [0, 1])
def test_each_program_is_bound_by_its_number(number: int) -> None:
    plan = settle("launcher: jax\nslots: 2\ncpu: {bind: cores}")
    spec = specs.load("cpu: {bind: cores}", "job.yaml", {}, {})
    words = planning.with_supervisor(plan.launch, number, spec, plan.topology)
    assert words[words.index("--local") + 1] == str(number)


def test_what_binding_needs_is_in_the_warning() -> None:
    plan = settle("launcher: plain\nslots: 4\ncpu: {bind: cores}")
    assert plan.warnings == (
        "EP428 not all ranks are bound to CPUs: the program starts the processes of its node itself"
        " | cpu.bind: cores (spec job.yaml:4:13) | remove cpu.bind, or choose a launcher that starts"
        " one for each slot",
    )


# Both cards are near the second NUMA node.
NEAR = Processors(((0,), (1,), (2,), (3,)), {0: (0, 1), 1: (2, 3)}, (("GPU-0", 1), ("GPU-1", 1)))


@pytest.mark.parametrize(
    ("text", "env", "cpus"),
    [
        ("", {}, "2 3\n2 3\n"),
        ("device: cpu", {}, "0 1\n2 3\n"),  # it uses no card
        (
            "",
            {"CUDA_VISIBLE_DEVICES": "1,2,0"},
            "2 3\n2 3\n",
        ),  # CUDA ignores what follows a wrong one
        ("", {"CUDA_VISIBLE_DEVICES": "2"}, "0 1\n2 3\n"),
    ],
)
def test_only_cards_that_the_job_uses_decide_on_cpus(
    text: str, env: dict[str, str], cpus: str
) -> None:
    facts = replace(FACTS, processors=NEAR, device_files=("nvidia0", "nvidia1"), cpus=4.0)
    plan = settle(f"launcher: mpirun\nslots: 2\ncpu: {{bind: numa}}\n{text}", env, facts)
    assert [file.text for file in plan.files if file.name == "cpus"] == [cpus]


@pytest.mark.parametrize(
    ("launcher", "cpus", "number"),
    [("jax", "0 1\n2 3\n", "2"), ("mpirun", "0 1\n0 1\n", "1")],
)
def test_two_ranks_on_a_node_with_four_cards(launcher: str, cpus: str, number: str) -> None:
    """JAX gives each process two cards, and it is near the first of them. Ranks of mpirun choose
    theirs themselves, usually the card with their own number."""
    cards = tuple((f"GPU-{number}", number // 2) for number in range(4))
    found = Processors(((0,), (1,), (2,), (3,)), {0: (0, 1), 1: (2, 3)}, cards)
    devices = tuple(f"nvidia{number}" for number in range(4))
    facts = replace(FACTS, processors=found, device_files=devices, cpus=4.0)
    plan = settle(f"launcher: {launcher}\nslots: 2\ncpu: {{bind: numa}}", facts=facts)
    assert [file.text for file in plan.files if file.name == "cpus"] == [cpus]
    assert threads(plan) == dict.fromkeys(NAMES, number)
