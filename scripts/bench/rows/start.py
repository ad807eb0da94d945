"""The cost of a start: one node, a worker's CPU until its sshd answers, the version, the health
check."""

from __future__ import annotations

import secrets
import shlex

from tests.containers import docker

from ..engine import OPTIONS, Tree, await_words, finish, job_env, settings
from ..figures import Goal
from ..table import Row, Table

Numbers = tuple[float, ...]
PLAIN, ALONE, SHELL = "without ENTRYPOINT", "bare Python", "an empty shell"
_PYTHON = "/opt/entrypoint/bin/python3 -I -c pass"  # the toolkit's own, with nothing imported
_PASS = ("python", "-c", "pass")
_MPIRUN = ("-np", "1", *shlex.split(OPTIONS), "-mca", "plm", "^rsh", *_PASS)
_AS_IT_IS, _RANK = "passthrough", "one rank under mpirun"
_LOOPS = 20
_PORT = "6036"  # the kernel gives it to no connection, so that none to it meets itself
# killed as soon as its sshd answers; a port that is closed costs it nothing
_WORKER = f"""
  /usr/local/bin/image-entry --launcher mpirun -- true &
  until read -r -t 5 </dev/tcp/$HOSTNAME/{_PORT}; do read -r -t 0.002 <>/tmp/never; done
  kill -9 $!
  wait $! || :  # it was killed
"""


def one_node(table: Table) -> None:
    """One container from its start to its end, by the engine's stamps, with and without the
    toolkit."""

    def container(image: str, command: tuple[str, ...], *options: str, **env: str) -> Numbers:
        name = table.engine.create(image, *command, options=options, env=env)
        job = finish(table.engine, [name], 30)
        return ((job.ended - job.begun) * 1e3,)

    def under_mpirun(image: str) -> Numbers:
        return container(image, _PASS, ENTRYPOINT_LAUNCHER="mpirun")

    alone, rank, image = {_AS_IT_IS: "ms"}, {_RANK: "ms"}, table.trees[0].image
    for _ in range(table.runs):
        table.take(alone, PLAIN, container, image, _PASS[1:], "--entrypoint", _PASS[0])
        table.take(rank, PLAIN, container, image, _MPIRUN, "--entrypoint", "mpirun")
        for tree in table.trees:
            table.take(alone, tree.way, container, tree.image, _PASS)
            table.take(rank, tree.way, under_mpirun, tree.image)


def worker(table: Table) -> None:
    """CPU of worker-1 of 2 inside a container until its sshd answers, and the seconds of an empty
    Python."""
    cpu, answers = "a worker's start", "until its sshd answers"
    env = {**settings(2, 1, secrets.token_hex(32)), "ENTRYPOINT_SSH_PORT": _PORT}
    set_up = "mkfifo /tmp/never; entrypoint --version"  # which fills caches

    def started(tree: Tree) -> Numbers:
        return _inside(table, tree, _WORKER, set_up, env)

    for _ in range(table.runs):
        table.take({cpu: "s"}, ALONE, _alone, table)
        for tree in table.trees:
            table.take({cpu: "s", answers: "s"}, tree.way, started, tree)


def version(table: Table) -> None:
    """Wall time of `entrypoint --version` inside a container, and of an empty Python."""

    def printed(tree: Tree) -> Numbers:
        return (_inside(table, tree, _often("entrypoint --version"))[1] / _LOOPS,)

    for _ in range(table.runs):
        table.take({"entrypoint --version": "s"}, ALONE, _alone, table)
        for tree in table.trees:
            table.take({"entrypoint --version": "s"}, tree.way, printed, tree)


def health(table: Table) -> None:
    """CPU of the health check in a container whose job of two ranks runs, and of a shell."""

    def check(name: str, command: str) -> Numbers:
        return (_times(docker("exec", name, "bash", "-c", _timed(_often(command))))[0] / _LOOPS,)

    job, env = ("sh", "-c", "echo begun; exec sleep 600"), job_env(slots=2)
    names = {
        tree: table.engine.create(tree.image, *job, options=("--no-healthcheck",), env=env)
        for tree in table.trees
    }
    try:
        for name in names.values():
            docker("start", name)
            await_words(name, "begun", 30)
        for _ in range(table.runs):
            table.take({"health": "s"}, SHELL, check, names[table.trees[0]], "sh -c :")
            for tree, name in names.items():
                table.take({"health": "s"}, tree.way, check, name, "entrypoint health")
    finally:
        table.engine.remove(list(names.values()))


def _often(command: str) -> str:
    return f"for each in {{1..{_LOOPS}}}; do {command}; done"


def _timed(script: str, set_up: str = ":") -> str:
    """Return a script of bash that prints the seconds of another one, and two of CPU."""
    run = f"{{ time {{ {script}\n}} >/dev/null 2>&1; }} 2>&1"
    return f"{set_up} >/dev/null; TIMEFORMAT='%R %U %S'; {run}"


def _times(printed: str) -> Numbers:
    """Return the seconds of CPU that such a script has printed, and all."""
    took, user, system = map(float, printed.split())
    return user + system, took


def _alone(table: Table) -> Numbers:
    """Return the seconds of a Python that does nothing."""
    return (_inside(table, table.trees[0], _often(_PYTHON))[1] / _LOOPS,)


def _inside(
    table: Table, tree: Tree, script: str, set_up: str = ":", env: dict[str, str] | None = None
) -> Numbers:
    """Run a script in a container of its own, and return its times."""
    options = ("--init", "--no-healthcheck", "--hostname", "node-1", "--entrypoint", "bash")
    name = table.engine.create(tree.image, "-c", _timed(script, set_up), options=options, env=env)
    try:
        return _times(docker("start", "-a", name))
    finally:
        table.engine.remove([name])


ONE_NODE = Row(
    "one-node", one_node, 11,
    (Goal(_AS_IT_IS, "added", 60, PLAIN), Goal(_RANK, "added", 150, PLAIN)), quick=7,
)  # fmt: skip
WORKER = Row("worker-cpu", worker, 15, (Goal("a worker's start", "value", 0.10, ALONE),), quick=7)
VERSION = Row(
    "version", version, 15, (Goal("entrypoint --version", "value", 0.06, ALONE),), quick=9
)
HEALTH = Row("health", health, 15, (Goal("health", "value", 0.01, SHELL),), quick=9)
