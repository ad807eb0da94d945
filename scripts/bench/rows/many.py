"""The boot of many real nodes, without containers: a process of the toolkit and a sshd for each, at
loopback addresses of this host. Compared with mpirun by hand, with and without tree spawn."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster import Cluster, free_port
from tests.waits import until

from ..engine import (
    HERE,
    LOGIN,
    OPTIONS,
    Failed,
    Tree,
    busy,
    by_hand,
    cpu_of,
    keygen,
    sshd_config,
    tail,
)
from ..figures import Goal
from ..table import Row, Table
from .boot import BARE, FIRST

TREE, LOGINS = "bare mpirun with tree spawn", "OpenSSH's logins alone"
CALL, CPU, OWN = "roll call", "CPU of the whole host", "CPU of worker-0"
_RANK = (sys.executable, "-IS", str(HERE / "rank.py"))
_AS_ROOT = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
_LIMIT = 120.0  # seconds of one boot
_TREE_SPAWN = OPTIONS.replace("no_tree_spawn true", "no_tree_spawn false")


def measure(table: Table) -> None:
    """64 and 128 nodes with one rank each, all ways in turn; every sshd is up before. What the
    roll call costs both sides is measured on its own, and compared with logins by OpenSSH."""
    for nodes in (4,) if table.quick else (64, 128):
        parts = ("", f": {FIRST}", f": {CPU}")
        boot = {f"{nodes} nodes{part}": "s" for part in parts}
        call = {f"{nodes} nodes: {CALL}{part}": "s" for part in ("", f": {CPU}", f": {OWN}")}
        for _ in range(table.runs):
            with _sshd(nodes) as (addresses, login):
                table.take(boot, BARE, _bare, addresses, login, OPTIONS)
                table.take(boot, TREE, _bare, addresses, login, _TREE_SPAWN)
                table.take(dict([*call.items()][:2]), LOGINS, _logins, addresses[1:], login)
            for tree in table.trees:
                table.take({**boot, **call}, tree.way, _toolkit, tree, nodes)


def _await_listeners(port: int, count: int) -> None:
    """Return when so many sockets listen at this port, and what that took to start is done."""

    def listeners() -> int:
        return len(re.findall(rf":{port:04X} 00000000:0000 0A", Path("/proc/net/tcp").read_text()))

    until(lambda: listeners() >= count, f"{count} sshd listen", _LIMIT)
    time.sleep(2)


def _parts(begun: float, ended: float, out: str, nodes: int) -> tuple[float, float]:
    """Return the seconds of the whole, and until the first rank."""
    ranks = [float(at) for at in re.findall(r"^\S+ (\d+\.\d+)$", out, re.MULTILINE)]
    if len(ranks) != nodes:
        raise Failed(f"{len(ranks)} ranks of {nodes}: {tail(out)}")
    return ended - begun, min(ranks) - begun


def _bare(addresses: Sequence[str], login: str, options: str) -> tuple[float, ...]:
    line = by_hand(addresses, login, " ".join(_RANK), options=options)
    before, begun = busy(), time.time()
    done = subprocess.run(
        ["sh", "-c", f"exec {line}"], capture_output=True, text=True, timeout=_LIMIT, check=False,
        env={**os.environ, **_AS_ROOT},
    )  # fmt: skip
    ended, cpu = time.time(), busy() - before
    if done.returncode:
        raise Failed(f"mpirun ended with {done.returncode}: {tail(done.stderr)}")
    return *_parts(begun, ended, done.stdout, len(addresses)), cpu


def _logins(addresses: Sequence[str], login: str) -> tuple[float, float]:
    """Log in everywhere at once, and return the seconds of the whole, and of CPU."""
    before, begun = busy(), time.time()
    options = shlex.split(f"{login} {LOGIN}")
    clients = [subprocess.Popen(("ssh", "-n", *options, each, "true")) for each in addresses]
    if failed := sum(client.wait(_LIMIT) != 0 for client in clients):
        raise Failed(f"{failed} logins failed")
    return time.time() - begun, busy() - before


@contextlib.contextmanager
def _sshd(nodes: int) -> Iterator[tuple[Sequence[str], str]]:
    """A sshd for each node, all up: their addresses, and the options to log in."""
    port, addresses = free_port(), [f"127.0.0.{rank + 2}" for rank in range(nodes)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        keygen(folder)
        for address in addresses:
            config = folder / f"sshd-{address}"
            config.write_text(sshd_config(folder, port) + f"ListenAddress {address}\n")
            argv = ("/usr/sbin/sshd", "-D", "-e", "-f", str(config))
            process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
        _await_listeners(port, nodes)
        yield addresses, f"-p {port} -i {folder}/client"


def _toolkit(tree: Tree, nodes: int) -> tuple[float, ...]:
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as name:
        job = Cluster(Path(name), nodes, slots=1)
        env = {"PYTHONPATH": str(tree.folder), "ENTRYPOINT_TIMEOUTS_GRACE": "(unset)"}
        try:
            for rank in range(1, nodes):
                job.start(rank, *_RANK, env=env)
            _await_listeners(job.port, nodes - 1)
            before, begun = busy(), time.time()
            job.start(0, *_RANK, env=env, stderr=subprocess.PIPE)
            leader, lines, call = job.processes[0], [], (0.0, 0.0, 0.0)
            assert leader.stderr is not None
            for line in leader.stderr:
                lines.append(line.decode(errors="replace"))
                if "nodes are here" in lines[-1]:
                    call = time.time() - begun, busy() - before, cpu_of(leader.pid)
            leader.wait(_LIMIT)
            ended, cpu = time.time(), busy() - before
            if codes := {*job.ends().values()} - {0}:
                raise Failed(f"exit statuses {codes}: {tail(''.join(lines))}")
            return *_parts(begun, ended, job.out(), nodes), cpu, *call
        finally:
            job.close()


ROW = Row(
    "many-nodes", measure, 3,
    (
        Goal("64 nodes", "ratio", 0.70, BARE),
        Goal("64 nodes", "ratio", 0.70, TREE),
        Goal("128 nodes", "ratio", 0.60, BARE),
        Goal("128 nodes", "ratio", 0.60, TREE),
        Goal(f"128 nodes: {CALL}", "value", 2.5),
    ),
)  # fmt: skip
