"""The launcher hydra: the line of mpiexec.hydra, and what it refuses by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from entrypoint import registry, spec
from entrypoint.errors import SpecError
from entrypoint.job import actions, messages
from entrypoint.job.launch import LaunchMonitor
from entrypoint.job.scheduler import Scheduler
from entrypoint.launchers import hydra
from entrypoint.model import Facts, Launch, LaunchRanks
from entrypoint.plan import assume_members, topology

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me")
LAST = ("sh", "-c", '. "$ENTRYPOINT_RUN_DIR/rank.sh"', "rank")


def launch(text: str, hosts: str = "[a, b]") -> Launch:
    job = spec.load(f"hosts: {hosts}\nslots: 2\nrun_dir: /run/x\n{text}", "job.yaml", {}, {})
    site = registry.choose("platforms", None, FACTS, "local").site(FACTS)
    device = registry.choose("devices", None, FACTS, "cpu").device(FACTS)
    there = topology.build(job, FACTS, site, device)
    return hydra.plan(job, there, assume_members(there, FACTS))


def test_the_line() -> None:
    (program,) = launch('command: [prog, ":", "a:b", "\\\\:"]').programs
    assert program.argv == (
        *("mpiexec.hydra", "-machinefile", "/run/x/hostfile", "-n", "4", "-localhost", "a"),
        *(
            "-genvnone",
            "-prepend-pattern",
            "[%g,%r]<stdout>:",
            *LAST,
            "prog",
            "\\:",
            "a:b",
            "\\\\:",
        ),
    )
    told = {var.name: var.value for var in program.env}
    assert told["HYDRA_LAUNCHER"] == told["I_MPI_HYDRA_BOOTSTRAP"] == "rsh"
    assert (
        told["HYDRA_LAUNCHER_EXTRA_ARGS"]
        == told["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"]
        == "/run/x/agent"
    )


def test_options_of_the_user_s_own() -> None:
    (program,) = launch(
        'command: [prog]\nmpi: {np: 3, bind_args: "-bind-to core", extra_args: "-prepend-rank"}'
    ).programs
    assert program.argv[3:5] == ("-n", "3")
    assert program.argv[8:11] == ("-bind-to", "core", "-prepend-rank")


def test_the_line_where_lines_are_asked_for() -> None:
    """It tags what each rank prints as Open MPI 4 does; both are read back in test_logs.py."""
    made = launch('command: [prog]\nlogs: {prefix: "[{rank}] "}')
    assert made.programs[0].argv[8:11] == ("-prepend-pattern", "[%g,%r]<stdout>:", "sh")
    assert made.ranks.tagged == "tags"


@pytest.mark.parametrize(
    ("words", "do"),
    [("-l", "logs.prefix, or logs.timestamps"), ("-outfile-pattern=out.%r", "logs.files")],
)
def test_options_that_would_change_the_tags(words: str, do: str) -> None:
    given = f'mpi: {{extra_args: "{words}"}}\ncommand: [prog]'
    assert words in launch(given).programs[0].argv, "the control: nobody asked for lines"
    with pytest.raises(SpecError) as refused:
        launch(f"{given}\nlogs: {{format: json}}")
    option = words.partition("=")[0]
    assert refused.value.lines() == [
        f"job.yaml:4:19: mpi.extra_args: EP119 {option} is set by launcher hydra | `{words}` | set"
        f" {do}"
    ]


def test_one_node_needs_no_agent() -> None:
    made = launch("command: [prog]", hosts="[a]")
    assert [file.name for file in made.files] == ["hostfile", "rank.sh"]
    assert made.files[0].text.splitlines()[-1] == "localhost:2"
    assert {"HYDRA_LAUNCHER": "fork"}.items() <= {
        var.name: var.value for var in made.programs[0].env
    }.items()
    assert not made.start.needs_roll_call


@pytest.mark.parametrize(
    ("field", "words", "names", "do"),
    [
        (
            "extra_args",
            "-machinefile x",
            "EP119 -machinefile is set by launcher hydra",
            "set hosts, or mpi.hostfile",
        ),
        (
            "extra_args",
            "-prepend-rank --launcher=ssh",
            "EP119 -launcher is set by launcher hydra",
            "set nothing",
        ),
        ("bind_args", "-np 4", "EP119 -np is set by launcher hydra", "set mpi.np, or slots"),
        (
            "mca_args",
            "-mca pml ob1",
            "EP119 mpiexec.hydra takes no options of Open MPI's",
            "launcher: mpirun",
        ),
        (
            "x_args",
            "-x A",
            "EP119 mpiexec.hydra takes no options of Open MPI's",
            "launcher: mpirun",
        ),
    ],
)
def test_what_it_refuses_by_name(field: str, words: str, names: str, do: str) -> None:
    with pytest.raises(SpecError) as error:
        launch(f'command: [prog]\nmpi: {{{field}: "{words}"}}')
    assert f"mpi.{field}: {names}" in str(error.value)
    assert do in str(error.value)


@pytest.mark.parametrize("command", ["mpiexec.hydra", "/usr/bin/mpiexec.mpich"])
def test_a_launcher_is_no_program(command: str) -> None:
    with pytest.raises(SpecError, match="EP118 the command is a launcher itself"):
        launch(f"command: [{command}, -n, '2', prog]")


@pytest.mark.parametrize("stays", [True, False])
def test_an_agent_ends_with_its_daemon(stays: bool) -> None:
    """Under Open MPI it ends once the daemon has started: the control."""
    job = spec.load("hosts: [a, b]\nnode_rank: 0\ncommand: [prog]", "job.yaml", {}, {})
    site = registry.choose("platforms", None, FACTS, "local").site(FACTS)
    there = topology.build(
        job, FACTS, site, registry.choose("devices", None, FACTS, "cpu").device(FACTS)
    )
    machine, outbox = Scheduler(), SimpleNamespace(tell=lambda node, message: None)
    plan = SimpleNamespace(launch=Launch(ranks=LaunchRanks(agents_stay=stays)))
    state = SimpleNamespace(scheduler=machine, spec=job, topology=there, plan=plan)
    watch = LaunchMonitor(
        cast(Any, state), cast(Any, outbox), [], lambda outcome: None, lambda end: None
    )
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
    assert launch("command: [prog]").ranks.agents_stay
