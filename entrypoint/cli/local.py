"""`entrypoint local`: run all nodes of a job as processes of this machine, with faults on
request."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from entrypoint.base.errors import CantCreateError, ConfigError, HostError
from entrypoint.base.model import Facts
from entrypoint.base.values import replace
from entrypoint.cli import inputs
from entrypoint.cli.parser import PROGRAM, Command
from entrypoint.output.log import Logger
from entrypoint.tools.local import faults
from entrypoint.tools.local import settings as local

if TYPE_CHECKING:
    from entrypoint.system.signals import Signals

# Seconds within which two stop signals are one: timeout(1) signals its child, then the group.
_SAME = 0.2
# Debian's; the rest is Open MPI's.
_PACKAGES = {"sshd": "openssh-server", "mpiexec.hydra": "mpich"}


COMMAND = Command(
    "run all nodes of the job on this host, and inject faults",
    PROGRAM,
    (
        "--nodes N  number of nodes; that of the spec's hosts if not given",
        *(f"--{kind} NODE@TIME ...  {text}" for kind, text in faults.KINDS.items()),
    ),
    hidden=local.OWN,
    defaults={kind: [] for kind in faults.KINDS},
    more={"nodes": {"dest": "count"}},
)


def act(args: argparse.Namespace, log: Logger) -> int:
    """Run all nodes. Returns worker-0's exit status."""
    import shutil

    from entrypoint.system import proc, process
    from entrypoint.system.signals import Signals

    log.name = "local"
    signals = Signals(log, _SAME)
    signals.watch()
    signals.hold()
    folder = _own_folder()
    try:
        process.adopt_orphans()
        return _run_nodes(args, folder, signals, log)
    finally:
        proc.sweep()
        shutil.rmtree(folder, ignore_errors=True)


def _own_folder() -> str:
    """Make a folder that only this user can read, for this run. Raises CantCreateError."""
    import tempfile

    try:
        return tempfile.mkdtemp(prefix="entrypoint-local-")
    except OSError as error:
        hint = "make room, start the container with --tmpfs /tmp, or set TMPDIR to a writable place"
        raise CantCreateError(
            "EP410 cannot make a folder for the nodes", error.strerror or str(error), hint
        ) from None


def _run_nodes(args: argparse.Namespace, folder: str, signals: Signals, log: Logger) -> int:
    import asyncio

    from entrypoint.base import registry
    from entrypoint.plan.callin import with_names
    from entrypoint.spec import paths_in_file
    from entrypoint.system import facts
    from entrypoint.tools.local.cluster import LocalCluster

    overrides = inputs.overrides(args)
    local.refuse(overrides)
    for name in local.unheard():
        os.environ.pop(name, None)
    given, text = inputs.spec(args)
    log.shape(given.logs)
    count = local.node_count(spec := with_names(given), args.count)
    wanted = faults.read({kind: getattr(args, kind) for kind in faults.KINDS}, count)
    here = facts.of_job(facts.read())()
    device = registry.choose("devices", spec.device, here, "cpu").device(here)
    visible = registry.access(device.kind).visible
    port, envs = _free_ports(), []
    # A spec that is not a file is copied to another folder.
    paths = {} if not args.spec or os.path.isfile(args.spec) else paths_in_file(spec)
    for node in range(count):
        settings = local.settings(spec, count, node, folder, port)
        inherited = {**here.env, **local.share(visible, here.env, device.count, count, node)}
        env = local.environment(inherited, settings, node, folder)
        envs.append(paths | env)
    _check(args, text, replace(here, env=envs[0]))
    _files(folder, text, args, count)
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # this Python's arguments
    argv = (
        sys.executable,
        *own,
        "run",
        *(["--spec", args.spec] if args.spec else ()),
        *local.flags(overrides),
    )
    places = [f"worker-{node} at {local.address(node)}" for node in sorted({0, count - 1})]
    log(f"{count} nodes on this machine: {' to '.join(places)}, ssh port {port}")

    async def run() -> int:
        return await LocalCluster(argv, envs, wanted, signals, log).run()

    return asyncio.run(run())


def _free_ports() -> int:
    """Return the first of some free ports, below those that the kernel gives to connections
    (ip(7)).

    They are random, so that a second run at the same time has others.
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
    detail = f"{local.PORTS} in a row, from 20000 to 32000"
    raise HostError("EP021 there are no free ports", detail, "end the programs that use them")


def _check(args: argparse.Namespace, text: str, here: Facts) -> None:
    """Raise EntrypointError for what worker-0 would refuse, and if this machine lacks what the job
    needs."""
    from entrypoint import spec as specs
    from entrypoint.plan import settle
    from entrypoint.system import process, sshd

    spec = specs.load(
        text if args.spec else None,
        args.spec or "",
        here.env,
        inputs.overrides(args),
        inputs.folders(args.spec),
    )
    plan = settle(spec, here)
    many = len(plan.topology.nodes) > 1
    missing = ["sshd"] if many and "sshd" not in here.programs else []
    missing += [
        name
        for name in plan.launch.needs_programs
        if not process.which(name, here.env.get("PATH", ""))
    ]
    if missing:
        packages = dict.fromkeys(_PACKAGES.get(name, "openmpi-bin") for name in missing)
        hint = f"install them; on Debian: apt-get install {' '.join(packages)}"
        raise ConfigError("EP022 this machine lacks what the job needs", ", ".join(missing), hint)
    if many:
        sshd.check(here)


def _files(folder: str, text: str, args: argparse.Namespace, count: int) -> None:
    """Write what the nodes read: the job's secret, made for this run, and a spec that is not a
    file."""
    import secrets

    _put(f"{folder}/secret", secrets.token_hex(32))
    for node in range(count):
        os.mkdir(f"{folder}/tmp-{node}", 0o700)
    if args.spec and not os.path.isfile(args.spec):  # such as <(...): it can be read once
        args.spec = f"{folder}/job.yaml"
        _put(args.spec, text)


def _put(file: str, text: str) -> None:
    from pathlib import Path

    from entrypoint.system import files

    with files.explained(Path(file), "TMPDIR"):
        files.put(Path(file), text.encode("utf-8", "surrogateescape"), 0o600)
