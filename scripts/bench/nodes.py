"""Nodes on this machine without containers: real entrypoints of this checkout, each with its own
sshd and address."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster import clean_environment, free_port

from .engine import Failed
from .machine import listening

TREE = Path(__file__).resolve().parents[2]


def address(rank: int) -> str:
    """Of a real node."""
    return f"127.2.{rank // 250}.{1 + rank % 250}"


def environment(**more: str) -> dict[str, str]:
    """For processes of this checkout."""
    return {**clean_environment(), "PYTHONPATH": str(TREE), **more}


class Nodes:
    """The nodes of one job. `close` leaves no process behind."""

    def __init__(self, folder: Path, hosts: str, env: Mapping[str, str]) -> None:
        self.folder, self.port = folder, free_port()
        named = {"ENTRYPOINT_HOSTS": hosts} if hosts else {}
        self._env = environment(ENTRYPOINT_SSH_PORT=str(self.port), **named, **env)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int, *command: str) -> subprocess.Popen[bytes]:
        """Start one; what it says goes into a file."""
        own = {
            "ENTRYPOINT_NODE_RANK": str(rank),
            "ENTRYPOINT_RUN_DIR": str(self.folder / f"n{rank}"),
        }
        with open(self.folder / f"said-{rank}", "wb") as said:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "entrypoint", "run", "--launcher", "plain", "--", *command],
                env={**self._env, **own}, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        return self.processes[rank]

    def await_sshd(self, count: int, seconds: float) -> None:
        """Return when so many sshd listen. Raises Failed."""
        deadline = time.monotonic() + seconds
        while (seen := listening(self.port)) < count:
            if time.monotonic() > deadline:
                raise Failed(f"{seen} of {count} sshd listen after {seconds:g} s")
            time.sleep(0.2)

    def ends(self, seconds: float) -> dict[int, int]:
        """The exit status of each node. Raises Failed if one still runs after so many seconds."""
        deadline = time.monotonic() + seconds
        for process in self.processes.values():
            try:
                process.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running = sum(each.poll() is None for each in self.processes.values())
                raise Failed(
                    f"{running} of {len(self.processes)} nodes still run after {seconds:g} s"
                ) from None
        return {rank: process.returncode for rank, process in self.processes.items()}

    def said(self, rank: int = 0) -> str:
        """What a node has printed."""
        return (self.folder / f"said-{rank}").read_text(errors="replace")

    def close(self) -> None:
        """Kill what still runs: the nodes, then what was started by them, which has their folder in
        its environment."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        mark = os.fsencode(self.folder)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)


@contextlib.contextmanager
def nodes(hosts: str, **env: str) -> Iterator[Nodes]:
    """Nodes for the time of the block; hosts as ENTRYPOINT_HOSTS has them, "" if a spec names
    them."""
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as folder:
        made = Nodes(Path(folder), hosts, env)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def real(count: int, **env: str) -> Iterator[Nodes]:
    """So many real nodes, the leader with them."""
    hosts = ",".join(f"node-{rank}={address(rank)}" for rank in range(count))
    with nodes(hosts, **{"ENTRYPOINT_SECRET": secrets.token_hex(32), **env}) as made:
        yield made
