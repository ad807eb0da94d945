"""What a start costs: one node, a worker's CPU until its sshd answers, the version, the health
check."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
from typing import Any

from tests.containers import docker

from ..engine import OPTIONS, Failed, await_words, finish, job_env, settings, tail
from ..figures import Goal
from ..table import Row, Table

OURS, PLAIN, ALONE = "entrypoint", "without ENTRYPOINT", "bare Python"
_SHELL, _CHECK = "sh -c :", "the image's HEALTHCHECK"
# the toolkit's own, with nothing imported
_PYTHON = ["/opt/entrypoint/bin/python3", "-I", "-c", "pass"]
_PASS = ("python", "-c", "pass")
_MPIRUN = ("-np", "1", *shlex.split(OPTIONS), "-mca", "plm", "^rsh", *_PASS)
_AS_IT_IS, _RANK = "passthrough", "one rank under mpirun"
_QUIET = ("--init", "--no-healthcheck", "--entrypoint", "python3")


def one_node(table: Table) -> None:
    """One container from its start to its end, by the engine's stamps, with and without the
    toolkit."""

    def container(command: tuple[str, ...], *options: str, **env: str) -> float:
        name = table.engine.create(table.image, *command, options=options, env=env)
        return finish(table.engine, [name], 30).states[0].lasted * 1e3

    def under_mpirun() -> float:
        return container(_PASS, ENTRYPOINT_LAUNCHER="mpirun")

    for _ in range(table.runs):
        table.take(_AS_IT_IS, PLAIN, "ms", container, _PASS[1:], "--entrypoint", _PASS[0])
        table.take(_AS_IT_IS, OURS, "ms", container, _PASS)
        table.take(_RANK, PLAIN, "ms", container, _MPIRUN, "--entrypoint", "mpirun")
        table.take(_RANK, OURS, "ms", under_mpirun)


def worker(table: Table) -> None:
    """Inside one container: worker-1 of 2, killed as soon as its sshd answers; an empty Python
    beside it."""
    line = "/usr/local/bin/image-entry --launcher mpirun -- true"
    argv = ["banner", str(table.runs), *line.split()]
    env = settings(2, 1, secrets.token_hex(32))
    found = _inside(table, argv, "", *_QUIET, "--hostname", "node-1", env=env)
    beside = _inside(table, ["times", str(table.runs)], json.dumps({ALONE: _PYTHON}), *_QUIET)
    case = "a worker's start"
    for (took, cpu, status), (_, empty, _) in zip(found, beside[ALONE], strict=True):
        table.add(case, ALONE, "s", empty)
        table.add(case, OURS, "s", "its sshd did not answer" if status else cpu)
        table.add(case, "seconds until sshd answers", "s", "it did not" if status else took)


def version(table: Table) -> None:
    """Wall time of `entrypoint --version` inside one container, an empty Python beside it."""
    commands = json.dumps({ALONE: _PYTHON, OURS: ["entrypoint", "--version"]})
    found = _inside(table, ["times", str(table.runs)], commands, *_QUIET)
    _add(table, "entrypoint --version", found, 0)


def health(table: Table) -> None:
    """CPU of the health check in a container whose job runs, as the image has it and as a
    command."""
    config = json.loads(docker("inspect", table.image))[0]["Config"]["Healthcheck"]["Test"]
    check = config[1:] if config[0] == "CMD" else ["/bin/sh", "-c", config[1]]
    commands = {_SHELL: ["/bin/sh", "-c", ":"], _CHECK: check, OURS: ["entrypoint", "health"]}
    job = ("sh", "-c", "echo begun; exec sleep 600")
    name = table.engine.create(
        table.image, *job, options=("--no-healthcheck",), env=job_env(slots=2)
    )
    try:
        docker("start", name)
        await_words(name, "begun", 30)
        argv = ["docker", "exec", "-i", name, "python3", "/bench/inside.py", "times"]
        _add(table, "health", _answer([*argv, str(table.runs)], json.dumps(commands)), 1)
    finally:
        table.engine.remove([name])


def _inside(
    table: Table, argv: list[str], stdin: str, *options: str, env: dict[str, str] | None = None
) -> Any:
    """Run inside.py in a container of its own, and return what it prints."""
    words = ("/bench/inside.py", *argv)
    name = table.engine.create(table.image, *words, options=("-i", *options), env=env)
    try:
        return _answer(["docker", "start", "-a", "-i", name], stdin)
    finally:
        table.engine.remove([name])


def _answer(argv: list[str], stdin: str) -> Any:
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise Failed(f"{argv[-1]}: {tail(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def _add(table: Table, case: str, found: dict[str, list[list[float]]], which: int) -> None:
    for run in range(table.runs):
        for name, runs in found.items():
            status = runs[run][2]
            table.add(case, name, "s", f"it ended with {status:g}" if status else runs[run][which])


ONE_NODE = Row(
    "one-node", "One node", one_node, 11,
    (Goal(_AS_IT_IS, OURS, PLAIN, "more", 60), Goal(_RANK, OURS, PLAIN, "more", 150)),
    quick=7,
)  # fmt: skip
WORKER = Row(
    "worker-cpu", "A worker's start", worker, 15,
    (Goal("a worker's start", OURS, "", "value", 0.10),),
    quick=7, also=(Goal("a worker's start", OURS, ALONE, "ratio", 0),),
)  # fmt: skip
VERSION = Row(
    "version", "entrypoint --version", version, 15,
    (Goal("entrypoint --version", OURS, "", "value", 0.06),),
    quick=9, also=(Goal("entrypoint --version", OURS, ALONE, "ratio", 0),),
)  # fmt: skip
HEALTH = Row(
    "health", "The health check", health, 15,
    (Goal("health", OURS, "", "value", 0.01), Goal("health", _CHECK, "", "value", 0.01)),
    quick=9, also=(Goal("health", OURS, _SHELL, "more", 0),),
)  # fmt: skip
