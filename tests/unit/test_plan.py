"""The plan: what each node will do, from values alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base import registry
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.kept import OWN_STACKS
from entrypoint.base.model import Device, EnvVar, Interface, Members, NodeReport, Plan, Program
from entrypoint.base.render import TEMPLATES
from entrypoint.base.values import replace
from entrypoint.cli.plan_text import plan_json, plan_text
from entrypoint.node import deadline
from entrypoint.plan import env_of_ranks, environment, form_of, locate, rendered, warnings
from entrypoint.plan import settle as make_plan
from entrypoint.spec import JobSpec, Override, load
from entrypoint.system import checks
from tests import table
from tests.unit.plans import SECRET, build, facts, settle

TABLE = table("tests/tables/plan.yaml")

TWO = "hosts: [a, b=10.0.0.2]\nnode_rank: {}\n"


def file(made: Plan, name: str) -> str:
    return next(file.text for file in made.files if file.name == name)


def values(variables: tuple[EnvVar, ...]) -> dict[str, str]:
    return {var.name: var.value for var in variables}


# --------------------------------------------------------------------------------------------------
# Which launcher


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("", "plain"),
        ("slots: 1", "plain"),
        ("slots: 2", "mpirun"),
        (TWO.format(0), "mpirun"),
        ("launcher: mpirun", "mpirun"),
        ("launcher: plain\nslots: 2", "plain"),
        (TWO.format(0) + "launcher: plain", "plain"),
    ],
)
def test_launcher(text: str, launcher: str) -> None:
    assert build(text).launcher == launcher


def test_no_program() -> None:
    spec, topology = settle("slots: 2", facts())
    with pytest.raises(ConfigError, match="EP115 there is no program to run") as caught:
        make_plan(spec, facts(), topology)
    assert caught.value.status == 78


# --------------------------------------------------------------------------------------------------
# What each node does


@pytest.mark.parametrize("sshd", [True, False])
@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.parametrize("text", ["", "roll_call: required", "roll_call: none"])
def test_only_the_spec_does_without_a_roll_call(text: str, secret: bool, sshd: bool) -> None:
    """Neither a missing secret nor a missing sshd does: `run` refuses these."""
    container = facts(programs={"sshd": "/usr/sbin/sshd"} if sshd else {})
    made = build(
        TWO.format(0) + f"launcher: ascend\n{text}",
        container,
        env={"ENTRYPOINT_SECRET": SECRET} if secret else {},
    )
    alone = "roll_call: none (spec job.yaml:4:12)" if text == "roll_call: none" else ""
    assert (made.roll_call, made.no_roll_call) == ("none" if alone else "required", alone)
    assert ("host_key" in {file.name for file in made.files}) == (not alone)
    spec, _ = settle("", container)
    shown = [
        line
        for line in plan_text(spec, made).splitlines()
        if line.startswith("roll call: none, by")
    ]
    assert shown == [f"roll call: none, by {alone}: each node ends with its own status"] * bool(
        alone
    )


@pytest.mark.parametrize("launcher", registry.names("launchers"))
@pytest.mark.parametrize("more", ["", "restarts: 1", "ssh: {client: files}"])
def test_who_needs_the_roll_call(launcher: str, more: str) -> None:
    """The control: others do without it."""
    text = f"hosts: [a, b, c]\nlauncher: {launcher}\nroll_call: none\n{more}"
    if not more and launcher not in ("hydra", "mpirun", "ray"):
        assert build(text).roll_call == "none"
    else:
        with pytest.raises(
            ConfigError, match=rf"EP313 (launcher {launcher}|{more}|ssh.client: files) needs "
        ):
            build(text)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("", "exec"),
        ("logs: {files: ranks}", "local"),
        ("stall: {minutes: 5}", "local"),
        ("restarts: 1", "local"),
        ("timeouts: {job: 60}", "local"),
        ("launcher: mpirun", "local"),
    ],
)
def test_one_node_becomes_its_program_unless_something_has_to_stay(text: str, mode: str) -> None:
    assert build(text).mode == mode


@pytest.mark.parametrize(("name", "mode"), [("sagemaker", "local"), ("kubernetes", "exec")])
def test_a_platform_that_reads_the_reason_gets_it_from_one_program_too(
    name: str, mode: str
) -> None:
    """SageMaker reads /opt/ml/output/failure, which is written at the end"""
    _, topology = settle("command: [prog]", facts())
    spec = load("command: [prog]", "job.yaml", {}, {})
    assert make_plan(spec, facts(), replace(topology, platform=name)).mode == mode


# --------------------------------------------------------------------------------------------------
# How many ranks really start


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("slots: 2", 2),
        ("slots: 4\nmpi: {np: 3}", 3),
        (TWO.format(0) + "slots: 4\nmpi: {np: 3}", 3),
        (TWO.format(1) + "slots: 4\nmpi: {np: 3}", 3),
        ("slots: 8\nlauncher: plain", 1),
        (TWO.format(1) + "slots: 8\nlauncher: plain", 2),
        ("slots: 8\nlauncher: tensorflow", 1),
        (TWO.format(0) + "slots: 8\nlauncher: tensorflow", 2),
        (TWO.format(0) + "slots: 8\nlauncher: pytorch", 2),
        (TWO.format(0) + "slots: 8\nlauncher: torchrun", 16),
        (TWO.format(0) + "slots: 8\nlauncher: torchlaunch", 16),
        (TWO.format(0) + "slots: 8\nlauncher: msrun", 16),
        (TWO.format(0) + "slots: 8\nlauncher: ascend", 16),
    ],
)
def test_the_ranks_shown_are_those_that_start(text: str, ranks: int) -> None:
    made, (spec, _) = build(text), settle(text, facts())
    assert json.loads(plan_json(spec, made))["world_size"] == ranks
    assert (
        f" {ranks} rank{'s' * (ranks > 1)}, launcher {made.launcher},"
        in plan_text(spec, made).splitlines()[0]
    )


UNEQUAL = (
    "hosts: [a:1, b:3]\nrun_dir: /run/job\nnode_rank: {}\nlauncher: {}\nascend: {{rank_table:"
    " none}}\n"
)


@pytest.mark.parametrize("launcher", ["torchrun", "torchlaunch"])
def test_slots_of_a_host_under_torch(launcher: str) -> None:
    plans = [build(UNEQUAL.format(rank, launcher)) for rank in (0, 1)]
    for made, slots in zip(plans, (1, 3), strict=True):
        assert f"--nproc_per_node={slots}" in made.launch.programs[0].argv
    assert [made.ranks for made in plans] == [4, 4]


def test_slots_of_a_host_under_ascend() -> None:
    programs = build(UNEQUAL.format(1, "ascend")).launch.programs
    assert [values(program.env)["RANK_ID"] for program in programs] == ["1", "2", "3"]


# --------------------------------------------------------------------------------------------------
# Devices that were asked for, or that ranks need


def refused(text: str, device: Device) -> str:
    spec, topology = settle(text + "\ncommand: [prog]", facts(), device)
    try:
        checks._check_device(spec, make_plan(spec, facts(), topology))
    except ConfigError as error:
        return f"{error.status} {error.summary}"
    return ""


NONE, CARDS = Device("nvidia", 0, "0 /dev/nvidia*"), Device("nvidia", 2, "2 /dev/nvidia*")
SERVER = "hosts: [w, p]\nnode_rank: {}\ntensorflow: {{ps: 1}}\nlauncher: tensorflow\ndevice: nvidia"
MISSING = "78 EP400 device nvidia is requested but not in this container (spec job.yaml:{}:9)"
MANY = "78 EP401 3 ranks on this node, but fewer accelerators (spec job.yaml:1:8)"


@pytest.mark.parametrize(
    ("text", "device", "message"),
    [
        ("device: nvidia", NONE, MISSING.format(1)),
        ("device: nvidia", CARDS, ""),
        ("device: cpu", Device("cpu", 0, "no accelerator"), ""),
        ("", Device("cpu", 0, "no accelerator"), ""),
        (SERVER.format(0), NONE, MISSING.format(5)),
        (SERVER.format(1), NONE, ""),  # a parameter server computes on none
        ("slots: 3", CARDS, MANY),
        ("slots: 3\nlauncher: torchrun", CARDS, MANY),
        ("slots: 3\nlauncher: ascend\nascend: {rank_table: none}", CARDS, MANY),
        ("slots: 2", CARDS, ""),
        ("slots: 1", CARDS, ""),
        ("slots: 3\nlauncher: ascend", CARDS, ""),  # the rank table decides, and is compared itself
        ("slots: 3\nlauncher: plain", CARDS, ""),  # one program, whatever the slots
        ("slots: 3", NONE, ""),  # hidden by CUDA_VISIBLE_DEVICES
        ("slots: 3", Device("cpu", 0, "no accelerator"), ""),
    ],
)
def test_devices_that_are_not_there(text: str, device: Device, message: str) -> None:
    assert refused(text, device) == message


def of_sshd(made: Plan) -> dict[str, str]:
    """sshd's configuration: keyword -> value."""
    lines = [
        line for line in file(made, "sshd_config").splitlines() if line and not line.startswith("#")
    ]
    assert len({line.split()[0] for line in lines}) == len(lines), "sshd takes the first of two"
    return dict(line.split(" ", 1) for line in lines)


@pytest.mark.parametrize(
    ("node", "address"),
    [("b", None), ("b=10.0.0.2", "10.0.0.2"), ('"b=fe80::1%eth0"', "fe80::1%eth0")],
)
def test_sshd_listens_where_the_node_is_called(node: str, address: str | None) -> None:
    assert of_sshd(build(f"hosts: [a, {node}]\nnode_rank: 1\n")).get("ListenAddress") == address


@pytest.mark.parametrize(
    ("user", "uid", "allowed"),
    [
        ("ma-user", 1000, "no"),
        ("root", 0, "prohibit-password"),
        ("toor", 0, "prohibit-password"),  # sshd calls every user with this uid root
    ],
)
def test_root_logs_in_only_where_the_job_is_root_s_and_with_its_key(
    user: str, uid: int, allowed: str
) -> None:
    made = of_sshd(build(TWO.format(1), facts(user=user, uid=uid)))
    assert (made["PermitRootLogin"], made["AllowUsers"]) == (allowed, user)
    assert (made["PasswordAuthentication"], made["AuthenticationMethods"]) == ("no", "publickey")


KEYS = "this job's keys"


def test_files_have_a_mode_an_origin_and_whether_they_are_secret() -> None:
    """Of the leader of a job under an unnamed uid, with all that a spec can add."""
    text = "launcher: mpirun\nssh: {client: files}\nstall: {minutes: 5}"
    made = build(TWO.format(0) + text, facts(user=""), env={"ENTRYPOINT_SECRET": SECRET})
    assert [(file.name, f"{file.mode:o}", file.origin, file.secret) for file in made.files] == [
        ("hostfile", "600", "mpirun/hostfile.j2", False),
        ("mpirun.sh", "700", "mpirun/mpirun.sh.j2", False),
        ("rank.sh", "600", "ranks/rank.sh.j2", False),
        ("agent", "600", "mpirun/agent.sh.j2", False),
        ("sshd_config", "600", "ssh/sshd_config.j2", False),
        ("host_key", "600", KEYS, True),
        ("authorized_keys", "600", KEYS, False),
        ("passwd", "600", "a name for this uid, for sshd and ssh alone", False),
        ("ssh_config", "600", "ssh/ssh_config.j2", False),
        ("ssh", "700", "ssh/ssh.sh.j2", False),
        ("client_key", "600", KEYS, True),
        ("known_hosts", "600", KEYS, False),
    ]


NAMELESS = {"uid": 12345, "user": ""}


@pytest.mark.parametrize(
    ("env", "more", "expected"),
    [
        ({"HOME": "/"}, NAMELESS, {"USER": "uid12345", "HOME": "/run-home"}),
        ({}, NAMELESS, {"USER": "uid12345", "HOME": "/run-home"}),
        ({"HOME": "/data", "LOGNAME": "me"}, NAMELESS, {}),
        ({"HOME": "/", "USERNAME": "me"}, NAMELESS, {"HOME": "/run-home"}),
        ({"HOME": "/data", "USERS": "2"}, NAMELESS, {"USER": "uid12345"}),
        ({"HOME": "/"}, {"uid": 1000, "user": "ma-user"}, {}),
    ],
)
@pytest.mark.parametrize("launcher", ["plain", "mpirun", "torchrun"])
def test_ranks_of_a_nameless_uid_get_a_name_and_a_home(
    env: dict[str, str], more: dict[str, Any], expected: dict[str, str], launcher: str
) -> None:
    """`getpass.getuser()` fails without; who has them keeps them."""
    made = build(f"launcher: {launcher}\nrun_dir: /run\nslots: 1\n", facts(env, **more))
    given = {var.name: var.value for var in made.env if var.name in ("USER", "HOME")}
    assert given == expected
    assert ("/run-home" in made.launch.folders) == ("HOME" in expected)
    own = build(f"launcher: {launcher}\nslots: 1\nenv: {{USER: me, HOME: /h}}", facts(env, **more))
    assert environment(env, own.env)["USER"] == "me"
    assert environment(env, own.env)["HOME"] == "/h"


EXAMPLES = sorted(Path(TEMPLATES, "../examples").glob("*/*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_spec_of_the_examples_has_a_plan(path: Path) -> None:
    """The fields that a launcher refuses are known only to its plan, not to the schema"""
    spec = load(path.read_text(), path.name, {}, {"node_rank": Override("0", "--node-rank")})
    nodes = make_plan(spec, facts()).topology.nodes
    assert len(nodes) == len(spec.hosts or ["a"])


@pytest.mark.parametrize("client", ["none", "files"])
def test_a_rendered_sshd_config_is_a_sample_without_the_renderer_s_own_environment(
    client: str,
) -> None:
    text = TWO.format(0) + f"ssh: {{client: {client}}}"
    here = facts(env={"PATH": "/renderer/bin", "LD_LIBRARY_PATH": "/renderer/lib", "SHLVL": "3"})
    spec, _ = settle(text, here)
    sample = rendered(spec, here, "job.yaml")[0].text
    assert "`entrypoint run` does not read this file; it renders its own" in sample
    assert [word for word in ("/renderer", "SHLVL") if word in sample] == []
    made = file(build(text, here), "sshd_config")
    assert "PATH=/renderer/bin" in made
    assert "does not read this file" not in made
    # what a session runs is written by `run` alone
    for config, forces in ((sample, False), (made, client == "none")):
        assert ("attend" in config, "ForceCommand" in config) == (forces,) * 2


@pytest.mark.parametrize(
    ("launcher", "number", "expected"),
    [
        ("plain", 0, ("text", "")),
        ("torchrun", 0, ("text", "")),
        ("jax", 1, ("text", "1")),
        ("mpirun", 0, ("text", "")),  # a launcher's own text is that of no rank
    ],
)
def test_a_program_s_form_has_its_rank(
    launcher: str, number: int, expected: tuple[str, str]
) -> None:
    text = f"launcher: {launcher}\nslots: 2\nlogs: {{timestamps: utc}}\n"
    made = build(text)
    spec, _ = settle(text, facts())
    form = form_of(made.launch, number, spec, made.topology)
    assert (form.output.lines, form.output.rank) == expected
    assert form.output.node == "worker-0"
    assert (form.output.tags, form.is_launcher) == (
        ("tags", True) if launcher == "mpirun" else ("", launcher == "torchrun")
    )


@pytest.mark.parametrize(
    ("text", "nested"),
    [
        ("launcher: plain\nnode_rank: 1", "node 1"),
        ("launcher: plain\nnode_rank: 0", ""),  # one node alone makes no copies
        ("launcher: plain\nnode_rank: 1\nroll_call: none", ""),  # each is a job of its own
        ("launcher: jax\nnode_rank: 1", "1"),
    ],
)
def test_a_program_s_form_says_which_launchers_may_start(text: str, nested: str) -> None:
    text = f"hosts: [a, b]\nlogs: {{timestamps: utc}}\n{text}"
    made = build(text)
    spec, _ = settle(text, facts())
    assert form_of(made.launch, 0, spec, made.topology).nested == nested


# --------------------------------------------------------------------------------------------------
# What the roll call brought


def members(*reports: tuple[int, str]) -> Members:
    return Members(
        tuple(NodeReport(rank, slots, "0.1.0", mpi) for rank, (slots, mpi) in enumerate(reports))
    )


def test_a_dry_run_assumes_and_says_so() -> None:
    assert build(TWO.format(0)).members.assumed
    assert not build("slots: 2").members.assumed


@pytest.mark.parametrize(
    ("more", "np", "origin"),
    [("", "12", "slots of the roll call"), ("mpi: {np: 3}\n", "3", "spec job.yaml:3:11")],
)
def test_slots_are_what_each_node_counted_unless_the_spec_says_np(
    more: str, np: str, origin: str
) -> None:
    spec, topology = settle(TWO.format(0) + more + "slots: 8\ncommand: [prog]", facts())
    made = make_plan(spec, facts(), topology, members((8, "4.1.4"), (4, "4.1.4")))
    assert file(made, "hostfile").splitlines()[1:] == ["a slots=8", "b slots=4"]
    (told,) = (var for var in made.launch.programs[0].env if var.name == "OPENMPI_NP")
    assert (told.value, str(told.origin)) == (np, origin)


def test_ssh_goes_where_the_roll_call_went() -> None:
    spec, topology = settle(TWO.format(0) + "command: [prog]\nssh: {client: files}", facts())
    called = members((1, "4.1.4"), (1, "4.1.4"))
    called = Members((called.reports[0], replace(called.reports[1], address="10.9.9.9")))
    for answers, address in ((called, "10.9.9.9"), (None, "10.0.0.2")):  # or is expected to go
        config = file(make_plan(spec, facts(), topology, answers), "ssh_config")
        lines = [line.split() for line in config.splitlines()]
        start = lines.index(["Host", "b"])
        assert lines[start + 1 : start + 3] == [["HostName", address], ["HostKeyAlias", "b"]]


THREE = "hosts: [a, b, c]\nlauncher: mpirun\ncommand: [prog]"


@pytest.mark.parametrize(
    ("odd", "seen"), [("5.0.7", "worker-1 (b) has 5.0.7"), ("", "worker-1 (b) has none")]
)
def test_different_majors(odd: str, seen: str) -> None:
    spec, topology = settle(THREE, facts())
    make_plan(spec, facts(), topology, members((1, "4.1.4"), (1, "4.1.6"), (1, "4.0.3")))
    with pytest.raises(ConfigError) as caught:
        make_plan(spec, facts(), topology, members((1, "4.1.4"), (1, odd), (1, "4.1.6")))
    assert (str(caught.value), caught.value.status) == (
        "EP450 the nodes have different major versions of Open MPI | worker-0 (a) has 4.1.4, worker-2 (c) has"
        f" 4.1.6; {seen} | use one image for all nodes",
        78,
    )


# --------------------------------------------------------------------------------------------------
# The environment


@pytest.mark.parametrize(
    "name", ["ENTRYPOINT_SECRET", "ENTRYPOINT_STAGE", "_", "PWD", "OLDPWD", "SHLVL"]
)
def test_what_is_ours_or_the_shell_s_is_not_passed_on(name: str) -> None:
    assert environment({name: "x", "KEPT": "y"}, ()) == {"KEPT": "y"}


def test_defaults_yield_and_the_rest_wins() -> None:
    own = {"PATH": "/usr/bin", "JOB_ID": "mine", "X": "user", "RANK_ID": "7"}
    logs = "ASCEND_PROCESS_LOG_PATH"
    made = build(
        f"launcher: ascend\nascend: {{rank_table: none}}\nenv: {{X: asked, {logs}: /logs}}",
        facts(own),
    )
    (program,) = made.launch.programs
    got = environment(own, (*made.env, *program.env))
    assert (got["JOB_ID"], got["X"], got["RANK_ID"], got[logs]) == ("mine", "asked", "0", "/logs")
    assert {"JOB_ID", logs} & values(program.env).keys() == set(), (
        "what has no effect is not in the plan"
    )


def test_a_user_s_value_wins_over_the_number_that_each_rank_gets() -> None:
    made = build("slots: 2\nenv: {RANK: '7'}")
    assert "RANK" not in values(made.launch.ranks.env_of_each)
    assert b"RANK=7" in env_of_ranks(facts(), made)


def test_order_of_the_plan_s_variables() -> None:
    """The spec's own value wins over the device's default, and every value says where it is
    from."""
    device = Device("nvidia", 1, "1 /dev/nvidia*", env={"NCCL_DEBUG": "INFO", "X": "device"})
    made = build("run_dir: /run/job\nenv: {X: mine}", device=device)
    assert [(var.name, var.value, var.origin, var.default) for var in made.env] == [
        ("NCCL_DEBUG", "INFO", "device nvidia", True),
        ("X", "device", "device nvidia", True),
        ("X", "mine", "spec job.yaml:2:10", False),
        ("ENTRYPOINT_RUN_DIR", "/run/job", "spec job.yaml:1:10", False),
    ]
    assert environment({"X": "container"}, made.env)["X"] == "mine"


YIELD = "OMPI_MCA_mpi_yield_when_idle"


@pytest.mark.parametrize(
    ("cpus", "more", "env", "yields"),
    [
        (4.0, "", {}, None),
        (None, "", {}, None),
        (3.5, "", {}, "1"),
        (2.0, "env: {OPENMPI_MCA_ARGS: -mca mpi_yield_when_idle 0}", {}, None),
        (2.0, f"env: {{{YIELD}: '0'}}", {}, "0"),
        (2.0, "", {YIELD: "0"}, "0"),  # the container's own choice
        (2.0, "launcher: plain", {}, None),
    ],
)
def test_ranks_without_a_cpu_each_yield_theirs(
    cpus: float | None, more: str, env: dict[str, str], yields: str | None
) -> None:
    made = build(f"slots: 4\n{more}", facts(env, cpus=cpus), env=env)
    assert environment(env, made.env).get(YIELD) == yields


@pytest.mark.parametrize(("mpi", "env", "params", "listed"), TABLE["names"])
def test_open_mpi_4_lists_the_nodes_names(
    mpi: str, env: dict[str, str], params: tuple[str, ...], listed: str | None
) -> None:
    """Its own map of names takes no underscore; the user's choice wins."""
    made = build("hosts: [gpu_node_0]\nlauncher: mpirun", facts(env, mpi=mpi, mpi_params=params))
    (program,) = made.launch.programs
    got = environment(env, (*made.env, *program.env)).get("OMPI_MCA_regx")
    assert got == listed


@pytest.mark.parametrize("name", ["a" * 57, "a" * 57 + ".b", "a-" * 28 + "ab"])
def test_names_that_crash_open_mpi_4(name: str) -> None:
    with pytest.raises(ConfigError, match="EP205 Open MPI 4 crashes at 57 characters without"):
        build(f"hosts: [{name}]\nlauncher: mpirun", facts(mpi="4.1.4"))
    build(f"hosts: [{name}]\nlauncher: mpirun", facts(mpi="5.0.3"))
    build(f"hosts: [{name[:56]}0{'a' * 5}]\nlauncher: mpirun", facts(mpi="4.1.4"))


def test_a_worker_takes_the_leader_s_variables() -> None:
    spec, topology = settle(TWO.format(1) + "command: [prog]\nenv: {X: here}", facts())
    made = make_plan(spec, facts(), topology, leader_env={"X": "there"})
    assert [(var.value, var.origin) for var in made.env if var.name == "X"] == [
        ("there", "worker-0's spec")
    ]


@pytest.mark.parametrize(
    ("env", "text", "rest"),
    [
        ({}, "", ""),
        ({"PYTHONPATH": "/container"}, "", ":/container"),
        ({"PYTHONPATH": "/container"}, "env: {PYTHONPATH: /spec}", ":/spec"),
    ],
)
def test_what_prints_stacks_comes_before_the_user_s_pythonpath(
    env: dict[str, str], text: str, rest: str
) -> None:
    made = build(f"stall: {{minutes: 5}}\n{text}", facts(env))
    assert environment(env, made.env)["PYTHONPATH"] == OWN_STACKS + rest


@pytest.mark.parametrize(
    ("launcher", "needs_table"), [("ascend", True), ("mpirun", False), ("torchrun", False)]
)
def test_a_plan_waits_for_a_rank_table_only_if_its_launcher_needs_one(
    launcher: str, needs_table: bool
) -> None:
    made = build(TWO.format(0) + f"launcher: {launcher}")
    assert any("from the rank table" in note for note in made.later) == needs_table


def test_values_are_on_no_command_line() -> None:
    given = facts({"a.b": "hush"})
    made = build("launcher: mpirun", given)
    assert not [each for each in made.files if "hush" in each.text]
    assert b"a.b=hush" in env_of_ranks(given, made)


@pytest.mark.parametrize("launcher", sorted({*registry.names("launchers")} - {"plain"}))
def test_every_launcher_refuses_a_command_that_is_a_launcher(launcher: str) -> None:
    """But for `plain`, the control. test_nested.py has what such a command is."""
    text = f"{TWO.format(0)}command: [/opt/bin/mpirun, -np, '2', prog]\nlauncher: "
    with pytest.raises(SpecError) as raised:
        make_plan(settle(text + launcher, facts())[0], facts())
    assert f"launcher {launcher} would start it once for each rank or node" in str(raised.value)
    says = "give it the program alone" if launcher == "mpirun" else "set launcher: mpirun "
    assert says in str(raised.value)
    assert make_plan(settle(f"{text}plain", facts())[0], facts()).launcher == "plain"


@pytest.mark.parametrize(
    ("mpi", "addresses", "refused"),
    [
        ("5.0.7", ["fd00::7"], True),
        ("5.0.7", ["fd00::7", "10.0.0.7"], False),
        ("5.0.7", [], False),  # of which nothing is known
        ("4.1.4", ["fd00::7"], False),
    ],
)
def test_open_mpi_5_on_ipv6_alone_is_refused(
    mpi: str, addresses: list[str], refused: bool, tmp_path: Path
) -> None:
    for name in ("mpirun", "orted", "prted"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o700)
    found = tuple(Interface("eth0", each, "n") for each in addresses)
    here = facts({"PATH": str(tmp_path)}, mpi=mpi, interfaces=found)
    for text, refuses in (
        (TWO.format(0), refused),
        ("slots: 2", False),
        (TWO.format(0) + "launcher: plain", False),
    ):
        error = checks.launcher(here, build(text, here).launch)
        assert (error is not None) == refuses
        says = "78 EP405 Open MPI 5.0.7 cannot start ranks over IPv6 alone | eth0 fd00::7 | "
        assert error is None or f"{error.status} {error.reason}".startswith(says)


def test_a_plan_shows_the_values_that_were_settled() -> None:
    """Not those of the spec, which leaves them out."""
    spec, _ = settle("", facts())
    made = build(TWO.format(1))
    settings = json.loads(plan_json(spec, made))["settings"]
    assert settings["launcher"]["value"] == "mpirun"
    assert settings["hosts"]["value"] == ["a", "b"]
    assert settings["node_rank"]["value"] == 1
    assert settings["tensorflow.chief"]["value"] == "none"
    chief = replace(made, topology=replace(made.topology, chief=True))
    settings = json.loads(plan_json(spec, chief))["settings"]
    assert settings["tensorflow.chief"]["value"] == "worker-0"


@pytest.mark.parametrize(("text", "env", "asked_by"), TABLE["logs"])
def test_a_directory_for_logs_that_nothing_uses(
    text: str, env: dict[str, str], asked_by: str
) -> None:
    spec, _ = settle(text, facts(), env=env)
    hint = "add --log-files ranks for a copy of each rank's output, or remove it"
    said = f"EP131 nothing writes logs into /logs | {asked_by} | {hint}"
    assert [*warnings(spec, build(text, env=env))] == ([said] if asked_by else [])


@pytest.mark.parametrize(
    ("show", "is_told"),
    [("7", True), ("2-5", True), ("0", False), ("9,1", False), ("1-8", False), ("all", False)],
)
def test_ranks_to_show_that_the_job_does_not_have(show: str, is_told: bool) -> None:
    text = f"logs: {{show: '{show}'}}\nlauncher: jax\nslots: 2"
    spec, _ = settle(text, facts())
    told = [*warnings(spec, build(text))]
    assert len(told) == is_told
    assert all(it.startswith("EP131 logs.show names no rank of this job | ") for it in told)


def test_a_plan_shows_which_nodes_work_and_which_are_spares() -> None:
    text = "hosts: [a, b, c]\nspares: 1\nnode_rank: 0\nlauncher: torchrun\nsecret_file: /none\n"
    made = build(text)
    spec, _ = settle(text, facts())
    shown = plan_text(spec, made)
    assert "  1    worker-1 (b)  slots 1\n  2    worker-2 (c)  slots 1  spare\n" in shown
    assert "no spare takes the place of a lost node, since the job never boots again" in shown
    nodes = json.loads(plan_json(spec, made))["nodes"]
    assert [node["role"] for node in nodes] == ["leader", "worker", "spare"]
    assert values(made.launch.programs[0].env)["NNODES"] == "2", "the spare is none of them"
    again, _ = settle(text + "restarts: 2\n", facts())
    assert "a spare takes the place of a lost node when the job boots again" in plan_text(
        again, build(text + "restarts: 2\n")
    )


@pytest.mark.parametrize(("text", "reason"), TABLE["ends"])
def test_a_job_whose_end_cannot_be_known(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build(f"{text}\nhosts: [a, b]\nnode_rank: 0\nsecret_file: /none\n")


def test_the_scheduler_s_limit_is_the_job_s_deadline() -> None:
    step = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    limited = {**step, "SLURM_STEP_NODELIST": "n1", "SLURM_JOB_END_TIME": "1795871290"}
    asked = load("timeouts: {job: scheduler}", "job.yaml", {}, {})
    ends = locate(asked, facts(env=limited)).ends
    assert ends == 1795871290
    assert deadline(asked, ends) < float("inf")
    assert deadline(JobSpec(), ends) == float("inf"), "nobody has asked for it"


def test_a_plan_shows_each_program_with_its_label_and_log_and_no_text_of_a_secret_file() -> None:
    made = build(TWO.format(0))
    spec, _ = settle(TWO.format(0), facts())
    programs = (
        Program(("one", "a b"), label="the head", log="/logs/head"),
        Program(("two",), label="the rest"),
        Program(("three",)),
    )
    shown = plan_text(spec, replace(made, launch=replace(made.launch, programs=programs)))
    lines = "  one 'a b'  # the head, also into /logs/head\n  two  # the rest\n  three\n"
    assert f"\ncommand\n{lines}" in shown
    waits = plan_text(spec, replace(made, launch=replace(made.launch, programs=())))
    assert "\ncommand\n  none: waits until worker-0 releases it\n" in waits
    assert "every node is assumed to be like this one" in shown
    files = json.loads(plan_json(spec, made))["files"]
    assert {each["name"] for each in files if each["secret"] and "text" in each} == set()
    assert "Port" in next(each["text"] for each in files if each["name"] == "sshd_config")


@pytest.mark.parametrize(("text", "reason"), TABLE["spares"])
def test_a_job_that_cannot_have_spares(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"^EP211 .* \(spec job.yaml:2:9\)") as error:
        build(f"{text}\nnode_rank: 0\nsecret_file: /none\n")
    assert reason in str(error.value)
