"""The launchers: what each process is told, and what of it nobody else may say. What they start on
the nodes of ordinary jobs is in tests/launchers."""

from __future__ import annotations

import shlex
from shlex import split
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Launch, LaunchRanks, Members, Program
from entrypoint.base.values import replace
from entrypoint.job import actions, messages
from entrypoint.job.launch import LaunchMonitor
from entrypoint.job.outbox import Shared
from entrypoint.job.scheduler import Scheduler
from entrypoint.plan import assume_members, locate, settle
from entrypoint.spec import load
from tests import table
from tests.unit.cases import FACTS, planned

TABLE = table("tests/tables/launchers.yaml")

TWO = "hosts: [a, b]\nnode_rank: 1\n"
LEADER = "hosts: [a, b]\nnode_rank: 0\nslots: 2\n"
RUN_DIR = "/tmp/entrypoint-1000-36666"


def told(program: Program, names: str) -> dict[str, str]:
    """What a program is told by variables that begin so."""
    return {var.name: var.value for var in program.env if var.name.startswith(names)}


# --------------------------------------------------------------------------------------------------
# Options


@pytest.mark.parametrize(("launcher", "words", "says"), TABLE["options"])
def test_an_option_that_is_settled_is_refused_by_name(launcher: str, words: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        planned(f"launcher: {launcher}\n{TWO}launcher_args: [{words}]")
    assert "job.yaml:4:16: launcher_args: " in str(caught.value)
    assert "is set by " in str(caught.value)
    assert says.format(words) in str(caught.value)


@pytest.mark.parametrize(
    ("launcher", "option"),
    [
        ("accelerate", "--use_fsdp"),
        ("accelerate", "--num_cpu_threads_per_process=2"),
        ("accelerate", "-q"),
        ("msrun", "--bind_core={a b}"),
    ],
)
def test_another_option_is_passed_on(launcher: str, option: str) -> None:
    made = planned(f"launcher: {launcher}\n{TWO}launcher_args: ['{option}']")
    (program,) = made.launch.programs
    assert option in program.argv[: program.argv.index("train.py")]


@pytest.mark.parametrize(
    ("field", "words", "says", "do"),
    [
        ("launcher_args", "[-machinefile, x]", "-machinefile is set by launcher hydra", "set hosts, or mpi.hostfile"),
        ("launcher_args", "[-prepend-rank, --launcher=ssh]", "-launcher is set by launcher hydra", "set nothing"),
        ("env.OPENMPI_BIND_ARGS", "-np 4", "-np is set by launcher hydra", "set mpi.np, or slots"),
        ("env.OPENMPI_MCA_ARGS", "-mca pml ob1", "mpiexec.hydra takes no options of Open MPI's", "launcher: mpirun"),
        ("env.OPENMPI_X_ARGS", "-x A", "mpiexec.hydra takes no options of Open MPI's", "launcher: mpirun"),
    ],
)  # fmt: skip
def test_what_hydra_refuses_by_name(field: str, words: str, says: str, do: str) -> None:
    section, _, key = field.rpartition(".")
    setting = f"{section}: {{{key}: {words}}}" if section else f"{key}: {words}"
    with pytest.raises(SpecError) as error:
        planned(f"launcher: hydra\n{LEADER}{setting}")
    assert f"{field}: EP119 {says}" in str(error.value)
    assert do in str(error.value)


@pytest.mark.parametrize(
    ("launcher", "words", "do"),
    [
        ("mpirun", "--output x", "logs.prefix"),
        ("mpirun", "--timestamp-output x", "logs.timestamps"),
        ("mpirun", "--xml x", "logs.prefix"),
        ("hydra", "-l", "logs.prefix, or logs.timestamps"),
        ("hydra", "-outfile-pattern=out.%r", "logs.files"),
    ],
)
def test_options_that_would_change_the_tags_of_lines(launcher: str, words: str, do: str) -> None:
    given = f"launcher: {launcher}\n{LEADER}launcher_args: [{words.replace(' ', ', ')}]\n"
    assert planned(given), "the control: nobody asked for lines"
    with pytest.raises(SpecError) as refused:
        planned(f"{given}logs: {{format: json}}")
    shown = words.removesuffix(" x")
    option = shown.partition("=")[0].replace("--", "-")
    assert refused.value.lines() == [
        f"job.yaml:5:16: launcher_args: EP119 {option} is set by launcher {launcher} | `{shown}` |"
        f" set {do}"
    ]


@pytest.mark.parametrize(
    ("version", "asks", "line"),
    [
        ("4.1.4", "logs: {format: json}", "line=(mpirun --tag-output -np"),
        ("5.0.7", "logs: {format: json}", "line=(mpirun --output tag:raw -np"),
        ("4.1.4", "", "line=(mpirun --tag-output -np"),
        ("5.0.7", "launcher_args: [--timestamp-output]", "line=(mpirun -np"),
    ],
    ids=["4", "5", "lines that nobody asked for", "the user's own"],
)
def test_mpirun_is_asked_for_tags(version: str, asks: str, line: str) -> None:
    made = planned(f"launcher: mpirun\n{LEADER}{asks}", here=replace(FACTS, mpi=version))
    assert [line in file.text for file in made.files if file.name == "mpirun.sh"] == [True]


def test_hydra_gets_the_user_s_options_and_its_tags_are_read() -> None:
    """It tags what each rank prints as Open MPI 4 does; both are read back in test_logs.py."""
    made = planned(
        f"launcher: hydra\n{LEADER}mpi: {{np: 3}}\nlauncher_args: [-prepend-rank]"
    ).launch
    line = " ".join(made.programs[0].argv)
    assert " -n 3 " in line
    assert " -prepend-rank sh -c " in line
    assert planned(f"launcher: hydra\n{LEADER}").launch.ranks.tagged == "tags"


@pytest.mark.parametrize("launcher", ["accelerate", "msrun"])
def test_as_many_processes_are_needed_on_every_node(launcher: str) -> None:
    spec = load(f"launcher: {launcher}\n{LEADER}command: [train.py]", "job.yaml", {}, {})
    topology = locate(spec, FACTS)
    first, second = assume_members(topology, FACTS).reports
    members = Members((first, replace(second, slots=3)))
    with pytest.raises(
        ConfigError,
        match=r"the same number of processes on every node .* worker-0 \(a\) has 2, worker-1 \(b\) has 3 .* set slots",
    ):
        settle(spec, FACTS, topology, members)


def test_a_rendezvous_that_accelerate_does_not_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"static rendezvous \| c10d \(spec job.yaml:4"):
        planned(f"launcher: accelerate\n{TWO}torch: {{rdzv_backend: c10d}}")


# --------------------------------------------------------------------------------------------------
# Variables


@pytest.mark.control("nobody but the launcher says which process of JAX one is")
def test_a_coordinator_that_a_platform_names_stays_and_its_numbers_of_nodes_do_not() -> None:
    env = {"JAX_COORDINATOR_ADDRESS": "other:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    program, _ = planned(f"launcher: jax\n{TWO}slots: 2", env).launch.programs
    assert told(program, "JAX_") == {"JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"}


@pytest.mark.promise("nobody but the launcher says which process of JAX one is")
@pytest.mark.parametrize(
    ("launcher", "name", "do"),
    [
        ("jax", "JAX_PROCESS_ID", "set hosts"),
        ("jax", "JAX_NUM_PROCESSES", "set hosts"),
        ("ray", "RAY_ADDRESS", "set launcher: plain"),
    ],
)
def test_nobody_else_may_say_where_a_process_is(launcher: str, name: str, do: str) -> None:
    with pytest.raises(SpecError) as caught:
        planned(f'launcher: {launcher}\n{TWO}env: {{{name}: "0"}}')
    assert f"EP119 {name} is set by the launcher | `0` | remove it, and {do}" in str(caught.value)
    assert "job.yaml:4" in str(caught.value)


@pytest.mark.parametrize(
    ("hosts", "where", "ids"),
    [("", "127.0.0.1:6070", ["0"]), ('hosts: ["a:3=fd00::1", b]\nnode_rank: 1', "[fd00::1]:6070", ["3"])],
)  # fmt: skip
def test_every_process_of_jax_knows_where_and_which_it_is(
    hosts: str, where: str, ids: list[str]
) -> None:
    programs = planned(f"launcher: jax\n{hosts}").launch.programs
    assert [told(each, "JAX_")["JAX_PROCESS_ID"] for each in programs] == ids
    assert {told(each, "JAX_")["JAX_COORDINATOR_ADDRESS"] for each in programs} == {where}


def test_cards_that_cannot_be_shared_evenly() -> None:
    (program,) = planned("launcher: jax\nslots: 1", cards=4).launch.programs
    assert told(program, "JAX_LOCAL") == {"JAX_LOCAL_DEVICE_IDS": "0,1,2,3"}
    with pytest.raises(
        ConfigError, match=r"shared evenly \| 4 cards, 3 processes \| set slots to 1, to 4, or "
    ):
        planned("launcher: jax\nslots: 3", cards=4)


RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("text", "env", "values"),
    [
        (TWO, {}, ("1", "2", "0", "1")),
        # of a container: of another job
        (TWO + "platform: local", {"LOCAL_RANK": "5", "RANK": "8"}, ("1", "2", "0", "1")),
        (TWO + "env: {LOCAL_RANK: '5'}", {}, ("1", "2", None, "1")),  # the user's own
        (TWO + "env: {RANK: '9'}", {"RANK": "8"}, (None, "2", "0", "1")),
        (TWO + "slots: 2", {}, (None,) * 4),  # the program starts the two itself
        ('hosts: ["a:1", "b:2"]\nnode_rank: 0', {}, (None,) * 4),
        ("", {}, (None,) * 4),
    ],
)
def test_under_plain_the_one_program_of_a_node_is_its_rank(
    text: str, env: dict[str, str], values: tuple[str | None, ...]
) -> None:
    (program,) = planned(f"launcher: plain\n{text}", env).launch.programs
    given = {var.name: var.value for var in program.env}
    assert tuple(map(given.get, RANKS)) == values


# --------------------------------------------------------------------------------------------------
# DeepSpeed


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("train.py --x", "python {} train.py --x"),
        ("python train.py --x", "python {} train.py --x"),
        ("/opt/bin/python3.11 -u train.py", "/opt/bin/python3.11 {} train.py"),
        ("python -u -m package.train", "python {} --module package.train"),
        ("python -W error train.py", "python {} --no_python --no_local_rank python -W error train.py"),
    ],
)  # fmt: skip
def test_how_deepspeed_s_launcher_is_started(command: str, line: str) -> None:
    made = planned(f"launcher: deepspeed\n{TWO}command: {split(command)}")
    (program,) = made.launch.programs
    slots = """'{"a": 1, "b": 1}'"""
    options = (
        f"{RUN_DIR}/deepspeed_launch.py {slots} --node_rank=1 --master_addr=a --master_port=6060"
    )
    assert shlex.join(program.argv) == line.format(options)
    assert (made.launch.ranks.kind.in_programs, made.launch.completion) == (True, "first-failure")


@pytest.mark.parametrize("node", [0, 1])
def test_with_an_ssh_client_deepspeed_logs_in_from_worker_0(node: int) -> None:
    text = (
        f"launcher: deepspeed\nhosts: [a, b]\nslots: 2\nssh: {{client: files}}\nnode_rank: {node}"
    )
    launch = planned(text).launch
    assert (launch.completion, launch.needs_roll_call) == ("leader", True)
    assert (launch.ranks.count, len(launch.programs)) == (4, 1 - node)


# --------------------------------------------------------------------------------------------------
# Hydra's agents


@pytest.mark.parametrize("stays", [True, False])
def test_an_agent_ends_with_its_daemon(stays: bool) -> None:
    """Under Open MPI it ends once the daemon has started: the control."""
    job = load("hosts: [a, b]\nnode_rank: 0\ncommand: [prog]", "job.yaml", {}, {})
    machine, outbox = Scheduler(), SimpleNamespace(tell=lambda node, message: None)
    plan = SimpleNamespace(launch=Launch(ranks=LaunchRanks(agents_stay=stays)))
    state = SimpleNamespace(
        scheduler=machine, spec=job, topology=locate(job, FACTS), plan=plan, me=0, peers={}
    )
    shared = Shared(cast(Any, state), cast(Any, outbox), Mock(), lambda outcome: None)
    watch = LaunchMonitor(shared, [], lambda end: None)
    answered: list[list[int]] = []

    def step(then: Any) -> None:
        done = machine.step(then, lambda outcome: None, 0.0)
        answered.append(
            [action.status for action in done if isinstance(action, actions.AnswerAgent)]
        )

    step(lambda: watch.start_daemon(1, "proxy"))
    step(lambda: watch.daemon_started(1, 0))
    step(lambda: watch.daemon(1, messages.Daemon("hydra_pmi_proxy", 0, "")))
    assert answered == ([[], [], [0]] if stays else [[], [0], []])
    assert planned(f"launcher: hydra\n{LEADER}").launch.ranks.agents_stay
