"""What a start costs: one node, a worker's CPU until its sshd answers, the version, the health
check."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
from typing import Any

from tests.containers import docker

from ..engine import OPTIONS, Failed, await_words, ended, settings
from ..figures import Goal
from ..page import About
from ..table import Row, Table

OURS, PLAIN = "entrypoint", "without ENTRYPOINT"
ALONE = "bare Python"
# the toolkit's own, with nothing imported
_PYTHON = [
    "/opt/entrypoint/bin/python3",
    "-I",
    "-c",
    "pass",
]
_INSIDE = ("python3", "/bench/inside.py")
_PASS = ("python", "-c", "pass")
_MPIRUN = ("-np", "1", *shlex.split(OPTIONS), "-mca", "plm", "^rsh", *_PASS)
_AS_IT_IS, _RANK = "passthrough", "one rank under mpirun"


def measure_one_node(table: Table) -> None:
    """One container from its start to its end, by the engine's stamps, with and without the
    toolkit."""
    launch = {"ENTRYPOINT_LAUNCHER": "mpirun"}
    for _ in range(table.runs):
        table.take(_AS_IT_IS, PLAIN, "ms", _container, table, _PASS[1:], _PASS[0])
        table.take(_AS_IT_IS, OURS, "ms", _container, table, _PASS)
        table.take(_RANK, PLAIN, "ms", _container, table, _MPIRUN, "mpirun")
        table.take(_RANK, OURS, "ms", _container, table, _PASS, "", launch)


def _container(
    table: Table, command: tuple[str, ...], entrypoint: str = "", env: dict[str, str] | None = None
) -> float:
    options = ("--entrypoint", entrypoint) if entrypoint else ()
    name = table.engine.create(table.image, *command, options=options, env=env)
    try:
        docker("start", name)
        state = ended([name], 30)[name]
        if state.status:
            raise Failed(f"it ended with {state.status}")
        return (state.finished - state.started) * 1e3
    finally:
        table.engine.remove([name])


def measure_worker(table: Table) -> None:
    """Inside one container: worker-1 of 2, killed as soon as its sshd answers; an empty Python
    beside it."""
    argv = [
        "banner",
        str(table.runs),
        "/usr/local/bin/image-entry",
        "--launcher",
        "mpirun",
        "--",
        "true",
    ]
    options = (
        "--rm",
        "--init",
        "--no-healthcheck",
        "--hostname",
        "node-1",
        "--entrypoint",
        "python3",
    )
    found = _inside(table, argv, "", *options, env=settings(2, 1, secrets.token_hex(32)))
    beside = _inside(table, ["times", str(table.runs)], json.dumps({ALONE: _PYTHON}), *options)[
        ALONE
    ]
    for (took, cpu, status), (_, empty, _) in zip(found, beside, strict=True):
        table.add("a worker's start", ALONE, "s", empty)
        table.add("a worker's start", OURS, "s", "its sshd did not answer" if status else cpu)
        table.add(
            "a worker's start", "seconds until sshd answers", "s", "it did not" if status else took
        )


def measure_version(table: Table) -> None:
    """Wall time of `entrypoint --version` inside one container, an empty Python beside it."""
    commands = json.dumps({ALONE: _PYTHON, OURS: ["entrypoint", "--version"]})
    options = ("--rm", "--init", "--no-healthcheck", "--entrypoint", "python3")
    found = _inside(table, ["times", str(table.runs)], commands, *options)
    _add(table, "entrypoint --version", found, 0, "s")


def measure_health(table: Table) -> None:
    """CPU of the health check in a container whose job runs, as the image has it and as a
    command."""
    config = json.loads(docker("inspect", table.image))[0]["Config"]["Healthcheck"]["Test"]
    check = config[1:] if config[0] == "CMD" else ["/bin/sh", "-c", config[1]]
    commands = {
        "sh -c :": ["/bin/sh", "-c", ":"],
        "the image's HEALTHCHECK": check,
        OURS: ["entrypoint", "health"],
    }
    env = {"ENTRYPOINT_LAUNCHER": "mpirun", "ENTRYPOINT_SLOTS": "2"}
    options = ("--no-healthcheck",)
    name = table.engine.create(
        table.image, "sh", "-c", "echo begun; exec sleep 600", options=options, env=env
    )
    try:
        docker("start", name)
        await_words(name, "begun", 30)
        argv = ["docker", "exec", "-i", name, *_INSIDE, "times", str(table.runs)]
        _add(table, "health", _answer(argv, json.dumps(commands)), 1, "s")
    finally:
        table.engine.remove([name])


def _inside(
    table: Table, argv: list[str], stdin: str, *options: str, env: dict[str, str] | None = None
) -> Any:
    name = table.engine.create(table.image, _INSIDE[1], *argv, options=("-i", *options), env=env)
    try:
        return _answer(["docker", "start", "-a", "-i", name], stdin)
    finally:
        table.engine.remove([name])


def _answer(argv: list[str], stdin: str) -> Any:
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise Failed(f"{argv[-1]}: {done.stderr[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _add(table: Table, case: str, found: Any, which: int, unit: str) -> None:
    for run in range(table.runs):
        for name, runs in found.items():
            status = runs[run][2]
            table.add(case, name, unit, f"it ended with {status}" if status else runs[run][which])


ONE_NODE = Row(
    About(
        "one-node", "One node",
        "`docker run IMAGE python -c pass`, from the container's start to its end by Docker's timestamps, "
        "compared with the same container with `--entrypoint python`. One rank under mpirun is compared with "
        "`--entrypoint mpirun` with the same options.",
        (
            Goal(_AS_IT_IS, OURS, PLAIN, "more", 60),
            Goal(_RANK, OURS, PLAIN, "more", 150),
        ),
    ),
    measure_one_node, 11, 7,
)  # fmt: skip
WORKER = Row(
    About(
        "worker-cpu", "A worker's start",
        "CPU of worker-1 of 2 nodes from its exec until its sshd sends its banner to a connection; then it is "
        "killed. The CPU is counted inside the container with `wait4`: that of the entrypoint, and of the "
        "children that it has waited for. sshd, which still runs, is not included. The comparison is an empty run "
        "of the toolkit's own Python.",
        (Goal("a worker's start", OURS, "", "value", 0.10),),
    ),
    measure_worker, 15, 7, (Goal("a worker's start", OURS, ALONE, "ratio", 0),),
)  # fmt: skip
VERSION = Row(
    About(
        "version", "entrypoint --version",
        "Wall time inside a container, alternating with an empty run of the toolkit's own Python.",
        (Goal("entrypoint --version", OURS, "", "value", 0.06),),
    ),
    measure_version, 15, 9, (Goal("entrypoint --version", OURS, ALONE, "ratio", 0),),
)  # fmt: skip
HEALTH = Row(
    About(
        "health", "The health check",
        "CPU (user and system, by `wait4`) of the image's HEALTHCHECK command and of `entrypoint health`, in a "
        "container with two running ranks, alternating with a shell that does nothing.",
        (
            Goal("health", OURS, "", "value", 0.01),
            Goal("health", "the image's HEALTHCHECK", "", "value", 0.01),
        ),
    ),
    measure_health, 15, 9, (Goal("health", OURS, "sh -c :", "more", 0),),
)  # fmt: skip
