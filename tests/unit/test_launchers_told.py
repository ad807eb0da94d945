"""The launchers jax, accelerate, deepspeed and plain: what each process is told, and what of it
nobody else may say."""

from __future__ import annotations

import shlex
from shlex import split

import pytest

from entrypoint import plan as planning
from entrypoint.errors import ConfigError, SpecError
from entrypoint.launchers import accelerate
from entrypoint.model import Device, Facts, Members, Plan, Program, Site
from entrypoint.plan import topology as topologies
from entrypoint.spec import load
from entrypoint.values import replace

FACTS = Facts(env={}, hostname="a", cwd="/job", uid=1000, user="ma-user", home="/home/ma-user")
TWO = "hosts: [a, b]\nnode_rank: 1\n"
RUN_DIR = "/tmp/entrypoint-1000-36666"


def build(
    text: str, env: dict[str, str] | None = None, cards: int = 0, platform: str = "local"
) -> Plan:
    facts = replace(FACTS, env=env or {})
    spec = load(
        text if "command:" in text else f"{text}\ncommand: [train.py, --epochs, '5']",
        "job.yaml",
        facts.env,
        {},
    )
    device = Device("nvidia" if cards else "cpu", cards, f"{cards} cards")
    return planning.settle(spec, facts, topologies.build(spec, facts, Site(platform), device))


def told(program: Program, names: str) -> dict[str, str]:
    """What a program is told by variables that begin so."""
    return {var.name: var.value for var in program.env if var.name.startswith(names)}


# --------------------------------------------------------------------------------------------------
# JAX


@pytest.mark.parametrize(
    ("text", "where", "ids"),
    [
        ("", "127.0.0.1:6070", ["0"]),
        ("slots: 3", "127.0.0.1:6070", ["0", "1", "2"]),
        (TWO, "a:6070", ["1"]),
        (TWO + "slots: 2\njax: {port: 7}", "a:7", ["2", "3"]),
        ('hosts: ["a:3=fd00::1", "b:1"]\nnode_rank: 1', "[fd00::1]:6070", ["3"]),
    ],
)
def test_every_process_of_jax_knows_where_and_which_it_is(
    text: str, where: str, ids: list[str]
) -> None:
    made = build(f"launcher: jax\n{text}")
    size = str(made.ranks)
    assert [told(each, "JAX_") for each in made.launch.programs] == [
        {"JAX_COORDINATOR_ADDRESS": where, "JAX_NUM_PROCESSES": size, "JAX_PROCESS_ID": number}
        for number in ids
    ]
    assert {each.argv for each in made.launch.programs} == {("python", "train.py", "--epochs", "5")}
    assert [each.label for each in made.launch.programs] == (
        [f"rank {n}" for n in ids] if len(ids) > 1 else [""]
    )
    assert made.launch.ends.completion == "first-failure"


@pytest.mark.control("nobody but the launcher says which process of JAX one is")
def test_a_coordinator_that_a_platform_names_stays_and_its_numbers_of_nodes_do_not() -> None:
    env = {"JAX_COORDINATOR_ADDRESS": "other:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    program, _ = build(f"launcher: jax\n{TWO}slots: 2", env).launch.programs
    assert told(program, "JAX_") == {"JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"}


@pytest.mark.parametrize(
    ("slots", "shares"), [(1, ["0,1,2,3"]), (2, ["0,1", "2,3"]), (4, ["0", "1", "2", "3"])]
)
def test_the_cards_of_a_node_are_shared_by_its_processes(slots: int, shares: list[str]) -> None:
    made = build(f"launcher: jax\nslots: {slots}", cards=4)
    assert [
        told(each, "JAX_LOCAL")["JAX_LOCAL_DEVICE_IDS"] for each in made.launch.programs
    ] == shares


def test_cards_that_cannot_be_shared_evenly() -> None:
    with pytest.raises(
        ConfigError, match=r"shared evenly \| 4 cards, 3 processes \| set slots to 1, to 4, or "
    ):
        build("launcher: jax\nslots: 3", cards=4)


@pytest.mark.promise("nobody but the launcher says which process of JAX one is")
@pytest.mark.parametrize("name", ["JAX_PROCESS_ID", "JAX_NUM_PROCESSES"])
def test_nobody_else_may_say_which_process_one_is(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        build(f'launcher: jax\n{TWO}env: {{{name}: "0"}}')
    assert f"EP119 {name} is set by the launcher | `0` | remove it, and set hosts" in str(
        caught.value
    )
    assert "job.yaml:4" in str(caught.value)


# --------------------------------------------------------------------------------------------------
# DeepSpeed


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("train.py --x", "python {} train.py --x"),
        ("python train.py --x", "python {} train.py --x"),
        ("/opt/bin/python3.11 -u train.py", "/opt/bin/python3.11 {} train.py"),
        ("python -m package.train --x", "python {} --module package.train --x"),
        ("python -u -m package.train", "python {} --module package.train"),
        (
            "python -W error train.py",
            "python {} --no_python --no_local_rank python -W error train.py",
        ),
        ("./train --x", "python {} --no_python --no_local_rank ./train --x"),
    ],
)
def test_how_deepspeed_s_launcher_is_started(command: str, line: str) -> None:
    made = build(f"launcher: deepspeed\n{TWO}command: {shlex.split(command)}")
    (program,) = made.launch.programs
    slots = """'{"a": 1, "b": 1}'"""
    options = (
        f"{RUN_DIR}/deepspeed_launch.py {slots} --node_rank=1 --master_addr=a --master_port=6060"
    )
    assert shlex.join(program.argv) == line.format(options)
    assert (made.launch.ranks.reports, made.launch.ends.completion) == ("both", "first-failure")


def test_deepspeed_s_launcher_knows_the_slots_of_each_node() -> None:
    made = build('launcher: deepspeed\nhosts: ["a:2", "b:1"]\nnode_rank: 0')
    assert made.launch.programs[0].argv[2] == '{"a": 2, "b": 1}'
    assert made.ranks == 3


@pytest.mark.parametrize(
    "option", ["--node_rank=0", "--master-port=1", "--hostfile=x", "--include=a", "--no_ssh"]
)
def test_deepspeed_s_options_that_are_settled_are_refused_by_name(option: str) -> None:
    with pytest.raises(SpecError) as caught:
        build(f"launcher: deepspeed\n{TWO}deepspeed: {{extra_args: [{option}]}}")
    assert f"is set by the launcher | `{option}` | set " in str(caught.value)


def test_another_option_of_deepspeed_s_is_passed_as_it_is() -> None:
    made = build(f"launcher: deepspeed\n{TWO}deepspeed: {{extra_args: [--bind_cores_to_rank]}}")
    assert made.launch.programs[0].argv[-4:] == (
        *split("--bind_cores_to_rank train.py --epochs 5"),
    )


def test_with_an_ssh_client_deepspeed_logs_in_from_worker_0() -> None:
    text = "launcher: deepspeed\nhosts: [a, b]\nslots: 2\nssh: {client: files}\n"
    leader, worker = (build(f"{text}node_rank: {node}").launch for node in range(2))
    (program,) = leader.programs
    options = f"--hostfile={RUN_DIR}/hostfile --no_ssh_check --master_addr=a --master_port=6060"
    assert (
        shlex.join(program.argv)
        == f"python -m deepspeed.launcher.runner {options} train.py --epochs 5"
    )
    assert told(program, "PDSH") == {"PDSH_SSH_ARGS_APPEND": f"-F {RUN_DIR}/ssh_config"}
    (hostfile,) = (file.text for file in leader.files if file.name == "hostfile")
    assert hostfile.endswith("\na slots=2\nb slots=2\n")
    assert (worker.programs, worker.files) == ((), ())
    for launch in (leader, worker):
        assert (launch.ends.completion, launch.start.needs_roll_call, launch.ranks.count) == (
            "leader",
            True,
            4,
        )


def test_options_of_the_form_that_logs_in() -> None:
    option = "deepspeed: {extra_args: [--include=a]}"
    with pytest.raises(SpecError, match=r"set ssh\.client: files"):
        build(f"launcher: deepspeed\n{TWO}{option}")
    text = f"launcher: deepspeed\nhosts: [a, b]\nnode_rank: 0\nssh: {{client: files}}\n{option}"
    assert "--include=a" in build(text).launch.programs[0].argv


# --------------------------------------------------------------------------------------------------
# Accelerate


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--num_machines=3", "hosts"),
        ("--num-processes", "hosts and slots"),
        ("--machine_rank=0", "node_rank"),
        ("--main_process_port=1", "torch.port"),
        ("--rdzv_backend=c10d", "nothing: it is static"),
        ("--nnodes=2", "hosts"),
    ],
)
def test_accelerate_s_options_that_are_settled_are_refused_by_name(option: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        build(f"launcher: accelerate\n{TWO}accelerate: {{extra_args: [{option}]}}")
    assert f"is set by launcher accelerate | `{option}` | set {field}" in str(caught.value)


@pytest.mark.parametrize(
    "option", ["--config_file=a.yaml", "--use_fsdp", "--num_cpu_threads_per_process=2", "-q"]
)
def test_other_options_of_accelerate_s_are_passed_on(option: str) -> None:
    made = build(f"launcher: accelerate\n{TWO}accelerate: {{extra_args: [{option}]}}")
    argv = made.launch.programs[0].argv
    assert argv[argv.index("--no_python") - 1] == option


def test_accelerate_needs_as_many_processes_on_every_node() -> None:
    spec = load(f"launcher: accelerate\n{TWO}slots: 2\ncommand: [train.py]", "job.yaml", {}, {})
    topology = topologies.build(spec, FACTS, Site("local"), Device("cpu", 0, ""))
    first, second = planning.assume_members(topology, FACTS).reports
    with pytest.raises(
        ConfigError,
        match=r"as many processes on one node .* worker-0 \(a\) has 2, worker-1 \(b\) has 3 .* set slots",
    ):
        accelerate.plan(spec, topology, Members((first, replace(second, slots=3))))


def test_a_rendezvous_that_accelerate_does_not_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"static rendezvous \| c10d \(spec job.yaml:4"):
        build(f"launcher: accelerate\n{TWO}torch: {{rdzv_backend: c10d}}")


# --------------------------------------------------------------------------------------------------
# Plain


RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("text", "env", "values"),
    [
        (TWO, {}, ("1", "2", "0", "1")),
        # of a container: of another job
        (TWO + "platform: local", {"LOCAL_RANK": "5"}, ("1", "2", "0", "1")),
        (TWO + "env: {LOCAL_RANK: '5'}", {}, ("1", "2", None, "1")),  # the user's own
        (TWO + "slots: 2", {}, (None,) * 4),  # the program starts the two itself
        ('hosts: ["a:1", "b:2"]\nnode_rank: 0', {}, (None,) * 4),
        ("", {}, (None,) * 4),
    ],
)
def test_under_plain_the_one_program_of_a_node_is_its_rank(
    text: str, env: dict[str, str], values: tuple[str | None, ...]
) -> None:
    (program,) = build(f"launcher: plain\n{text}", env).launch.programs
    given = {var.name: var.value for var in program.env}
    assert tuple(map(given.get, RANKS)) == values


@pytest.mark.parametrize(("text", "rank"), [("", "1"), ("env: {RANK: '9'}", None)])
def test_under_plain_a_platform_s_rank_counts_for_nothing(text: str, rank: str | None) -> None:
    (program,) = build(
        f"launcher: plain\n{TWO}{text}", {"RANK": "8"}, platform="volcano"
    ).launch.programs
    assert told(program, "RANK") == ({"RANK": rank} if rank else {})
