"""Nodes of one job on this machine: real entrypoints, each with its own sshd on its own loopback
address."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import split

import pytest

from tests.waits import PATIENCE

SECRET = secrets.token_hex(32)
RUN = (sys.executable, "-m", "entrypoint", "run")

# Code for a Python: the command, and the command where /dev/shm seems to have 1 MiB.
BEGIN = "from entrypoint.cli import script; script()"
SMALL = f"""
import os
real = os.statvfs
def statvfs(path):
    return os.statvfs_result((4096, 4096, 256, 256, 256, 0, 0, 0, 0, 255)) if str(path) == "/dev/shm" else real(path)
os.statvfs = statvfs
{BEGIN}
"""


@functools.cache
def mpi_major() -> int:
    """Return the major version of this machine's Open MPI: Debian 12 has 4, Debian 13 has 5."""
    argv = ["mpirun", "--version"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return int(said.split("(Open MPI) ")[1].split(".")[0])


def skip_with_open_mpi_5(why: str) -> None:
    """Skip a test of what Open MPI 4 does and 5 does not."""
    if mpi_major() >= 5:
        pytest.skip(f"Open MPI 5: {why}")


CLAIMS = 64
_claims: collections.deque[socket.socket] = collections.deque()


def free_port(count: int = 1) -> int:
    """The first of so many ports in a row that nobody has, on any address, and that no other test
    on this machine is given.

    They are below those that the kernel gives to connections (ip(7)): one of them may be taken
    meanwhile. They are above those that jobs choose from (`network.ports`), for the same reason.
    They are random whatever the tests' seed, since other tests run at the same time. The claim of
    each is a name in the abstract namespace (unix(7)), which ends with this process; the last
    `CLAIMS` are held.
    """
    while True:
        first = random.SystemRandom().randrange(21000, 32768 - count)
        claims = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        try:
            for port, claim in enumerate(claims, first):
                claim.bind(f"\0entrypoint-tests/{port}")
                with socket.socket() as listener:
                    listener.bind(("", port))
        except OSError:
            for claim in claims:
                claim.close()
            continue
        _claims.extend(claims)
        while len(_claims) > CLAIMS:
            _claims.popleft().close()
        return first


def clean_environment() -> dict[str, str]:
    """This process's environment without what a platform or a developer may have set for us."""
    ours = (*split("ENTRYPOINT_ MA_ VC_ VK_ MY_ OPENMPI_ OMPI_ SSHD_PORT TUNE_ENV_FILE"),)
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def processes(mark: str | Path) -> dict[int, str]:
    """Return the live processes that have this in their environment or command line: pid -> command
    line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if os.fsencode(mark) in (entry / "environ").read_bytes() + words:
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


class Cluster:
    """`start` nodes, then look at what they print and how they end. `close` leaves nothing
    behind."""

    def __init__(self, folder: Path, nodes: int, slots: int = 2) -> None:
        self.folder, self.nodes, self.slots = folder, nodes, slots
        self.port = free_port(2)  # of sshd; a second node at the same address takes the next one
        # Where programs meet; None: the default, which jobs of other tests may have at this time.
        self.meeting: int | None = free_port()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def hosts(self) -> str:
        return ",".join(f"node-{rank}=127.0.0.{rank + 2}" for rank in range(self.nodes))

    def environment(self, rank: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            **clean_environment(),
            "ENTRYPOINT_HOSTS": self.hosts,
            "ENTRYPOINT_NODE_RANK": str(rank),
            "ENTRYPOINT_SLOTS": str(self.slots),
            "ENTRYPOINT_SSH_PORT": str(self.port),
            **({"ENTRYPOINT_PORT": str(self.meeting)} if self.meeting else {}),
            "ENTRYPOINT_SECRET": SECRET,
            "ENTRYPOINT_RUN_DIR": str(self.run_dir(rank)),
            "ENTRYPOINT_TIMEOUTS_PEERS": str(PATIENCE),
            # what need not wait for it ends within any bound of a test, and what would does not
            "ENTRYPOINT_TIMEOUTS_GRACE": "600",
            "NODE": str(rank),
            **(extra or {}),
        }

    def run_dir(self, rank: int) -> Path:
        return self.folder / f"n{rank}"

    def start(
        self,
        rank: int,
        *command: str,
        env: Mapping[str, str] | None = None,
        argv: tuple[str, ...] = (),
        launcher: str = "mpirun",
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        """Start a node with this program under this launcher, or with other words (`argv`); its
        output goes to files, unless there are other streams for it."""
        out, err = ((self.folder / f"{name}-{rank}").open("wb") for name in ("out", "err"))
        self.processes[rank] = subprocess.Popen(
            argv or [*RUN, "--launcher", launcher, "--", *command],
            env={
                name: value
                for name, value in self.environment(rank, env).items()
                if value != "(unset)"
            },
            stdin=subprocess.DEVNULL,
            stdout=out if stdout is None else stdout,
            stderr=err if stderr is None else stderr,
            cwd=self.folder,
            start_new_session=True,
        )
        out.close()
        err.close()

    def start_all(
        self, *command: str, env: Mapping[str, str] | None = None, launcher: str = "mpirun"
    ) -> None:
        # The leader last or first must make no difference; the workers first is what a platform
        # usually does.
        for rank in reversed(range(self.nodes)):
            self.start(rank, *command, env=env, launcher=launcher)

    def out(self, rank: int = 0) -> str:
        return (self.folder / f"out-{rank}").read_text(errors="replace")

    def err(self, rank: int = 0) -> str:
        return (self.folder / f"err-{rank}").read_text(errors="replace")

    def both(self) -> str:
        return "\n".join(
            f"--- node {rank}\n{self.out(rank)}{self.err(rank)}" for rank in self.processes
        )

    def signal(self, rank: int, signum: int) -> None:
        self.processes[rank].send_signal(signum)

    def ends(self) -> dict[int, int]:
        """Return the exit status of every node, once all have ended."""
        deadline = time.monotonic() + PATIENCE
        while any(process.poll() is None for process in self.processes.values()):
            assert time.monotonic() < deadline, f"still running:\n{self.both()}"
            time.sleep(0.01)
        return {rank: process.returncode for rank, process in sorted(self.processes.items())}

    def survivors(self) -> list[str]:
        """Processes that still carry this cluster's run directories in their environment."""
        return [*processes(self.folder).values()]

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in processes(self.folder):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


Make = Callable[..., Cluster]  # the fixture's type
