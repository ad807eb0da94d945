"""`entrypoint local`: all nodes of a job as processes of this machine, and what goes wrong with them at will."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, command, job_arguments
from entrypoint.errors import ConfigError, OsError, RetryError, UsageError
from entrypoint.plan import faults, local
from entrypoint.values import replace

if TYPE_CHECKING:
    import argparse

    from entrypoint.cli.parser import Commands
    from entrypoint.host.speaker import Logger
    from entrypoint.model import Facts
    from entrypoint.programs.guard import Child

# Debian's; the rest is Open MPI's.
_PACKAGES = {"sshd": "openssh-server", "libnss_wrapper.so": "libnss-wrapper", "mpiexec.hydra": "mpich"}


def arguments(commands: Commands, spec: str | None) -> None:
    """Add the command and its options to the command line."""
    text = "run all nodes of the job on this machine, and see what it does when one fails"
    parser = command(commands, "local", PROGRAM, text)
    job_arguments(parser, spec, hidden=local.OWN)
    parser.add_argument("--nodes", dest="count", metavar="N", help="number of nodes; the spec's hosts where not given")
    for kind, words in faults.KINDS.items():
        parser.add_argument(f"--{kind}", action="append", default=[], metavar="NODE@TIME", help=words)
    parser.add_argument("--late-dns", metavar="TIME", help="the nodes' names resolve only after that time, such as 20s")


def act(args: argparse.Namespace, log: Logger) -> int:
    """Run all nodes. Returns worker-0's exit status."""
    from entrypoint.programs import guard

    log.name = "local"
    us = guard.split("entrypoint-local-")
    if isinstance(us, guard.Parent):
        if us.code < 0:
            log(f"signal {-us.code} ended what ran the nodes, so they were killed; exit {RetryError.status}")
            return RetryError.status
        return us.code
    return _work(args, us, log)


def _work(args: argparse.Namespace, us: Child, log: Logger) -> int:
    import asyncio

    from entrypoint import registry
    from entrypoint.host import facts

    local.refuse(inputs.overrides(args))
    for name in local.unheard():
        os.environ.pop(name, None)
    spec, text = inputs.spec(args)
    log.shape(spec.logs.format, spec.logs.timestamps == "utc")
    count = local.count(spec, _number(args.count))
    wanted = faults.read({kind: getattr(args, kind) for kind in faults.KINDS}, args.late_dns, count)
    by_name = wanted.late_dns is not None
    library = facts.names_library() if by_name else None
    here = facts.of_job(facts.read())()
    device = registry.choose("devices", spec.device, here, "cpu").device(here)
    visible = registry.access(device.kind).visible
    port, envs = _free_ports(), []
    for node in range(count):
        ours = local.settings(spec, count, node, us.folder, port, by_name)
        own = {**here.env, **local.share(visible, here.env, device.count, count, node)}
        env = local.environment(own, ours, node, us.folder)
        envs.append(local.with_names(env, library, us.folder, node) if library else env)
    _check(args, text, replace(here, env=envs[0]), by_name and not library)
    names = _files(us.folder, text, args, count)
    if library:
        _check_names(envs[0], names)
    words = ("run", *(["--spec", args.spec] if args.spec else ()), *local.flags(_flags(args), args.env))
    argv = (*_this_program(), *words, *(["--", *args.command] if args.command else ()))
    places = [f"worker-{node} at {local.address(node)}" for node in sorted({0, count - 1})]
    log(f"{count} nodes on this machine: {' to '.join(places)}, ssh port {port}")
    return asyncio.run(_run(argv, envs, wanted, names, us, log))


async def _run(
    argv: tuple[str, ...], envs: list[dict[str, str]], wanted: faults.Faults, names: Names, us: Child, log: Logger
) -> int:
    from entrypoint.programs.nodes import LocalCluster, NodeCommand

    nodes = LocalCluster([NodeCommand(argv, env) for env in envs], wanted, us.signals, names.show, log)
    try:
        return await nodes.run()
    finally:
        if nodes.orphaned:
            us.close()


class Names:
    """The files that the nodes' resolver reads, in the form of hosts(5)."""

    def __init__(self, folder: str, nodes: int) -> None:
        self._folder, self._nodes = folder, range(nodes)

    def show(self, all_known: bool = True) -> None:
        """Have all names resolve from now on, or on each node its own alone, as a container has it."""
        for node in self._nodes:
            _put(f"{self._folder}/{local.HOSTS}-{node}", local.names(self._nodes if all_known else [node]))


def _number(given: str | None) -> int | None:
    if given is None or (given.isdecimal() and len(given) < 9):
        return int(given) if given else None
    raise UsageError(f"EP020 --nodes is a number from 1 to {local.MOST}", given, "write --nodes 3")


def _flags(args: argparse.Namespace) -> dict[str, str]:
    """The fields that flags give, but for the program and its variables."""
    return {path: str(each.value) for path, each in inputs.overrides(args).items() if path not in ("env", "command")}


def _this_program() -> list[str]:
    """The words that started this Python, up to our own first one."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]


def _free_ports() -> int:
    """The first of some ports that nobody has, below those that the kernel gives to connections (ip(7)).

    They are random, so that a second run beside this one has others.
    """
    import secrets
    import socket

    for _ in range(100):
        first = 20000 + secrets.randbelow(12000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + local.PORTS):
                    held.enter_context(socket.socket()).bind(("", port))
                return first
            except OSError:
                continue
    raise OsError(
        "EP021 there are no free ports", f"{local.PORTS} beside each other, from 20000 to 32000", "end what has them"
    )


def _check(args: argparse.Namespace, text: str, here: Facts, no_library: bool) -> None:
    """Refuse what worker-0 would refuse, and a machine without what the job needs. Raises EntrypointError."""
    from entrypoint import spec as specs
    from entrypoint.host import process, sshd
    from entrypoint.plan import settle
    from entrypoint.plan.topology import NAMES

    spec = specs.load(text if args.spec else None, args.spec or "", here.env, inputs.overrides(args))
    plan = settle(spec, here)
    many = len(plan.topology.nodes) > 1
    missing = ["sshd"] if many and "sshd" not in here.programs else []
    missing += [name for name in plan.launch.start.needs_programs if not process.which(name, here.env.get("PATH", ""))]
    missing += [NAMES] if no_library else []
    if missing:
        packages = dict.fromkeys(_PACKAGES.get(name, "openmpi-bin") for name in missing)
        do = f"install them; on Debian: apt-get install {' '.join(packages)}"
        raise ConfigError("EP022 this machine lacks what the job needs", ", ".join(missing), do)
    if many:
        sshd.check(here)


def _files(folder: str, text: str, args: argparse.Namespace, count: int) -> Names:
    """Write what the nodes read: the job's secret, made for this run, and a spec that is no file."""
    import secrets

    _put(f"{folder}/secret", secrets.token_hex(32))
    for node in range(count):
        os.mkdir(f"{folder}/tmp-{node}", 0o700)
    if args.spec and not os.path.isfile(args.spec):  # such as <(...): it can be read once
        args.spec = f"{folder}/job.yaml"
        _put(args.spec, text)
    return Names(folder, count)


def _check_names(env: dict[str, str], names: Names) -> None:
    """Write those files, and see that a Python of ours asks them. Raises ConfigError."""
    import subprocess

    names.show(all_known=False)
    code = "import socket; socket.getaddrinfo('worker-0', 1)"
    if subprocess.run([sys.executable, "-I", "-c", code], env=env, check=False, capture_output=True).returncode:
        do = "use a toolkit that runs on this system's own Python"
        raise ConfigError("EP023 names cannot be made late here", f"{sys.executable} loads no libnss_wrapper", do)


def _put(file: str, text: str) -> None:
    from pathlib import Path

    from entrypoint.host import files

    with files.explained(Path(file), "TMPDIR"):
        files.put(Path(file), text.encode("utf-8", "surrogateescape"), 0o600)
