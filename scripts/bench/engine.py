"""Containers and networks of one run of the benchmarks. All carry its label, so that none outlives
it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.containers import docker, stamp

HERE = Path(__file__).resolve().parent
MOUNT = ("-v", f"{HERE}:/bench:ro")  # what of this folder runs inside containers
PORT = "36666"
# What run_mpi.sh gives mpirun, docs/reference/mpirun.md; the way to the nodes is each side's own.
OPTIONS = (
    "--bind-to none --map-by slot -x HOROVOD_MPI_THREADS_DISABLE=1 -x NCCL_DEBUG=INFO -x"
    " NCCL_SOCKET_FAMILY=AF_INET -x NCCL_IB_DISABLE=0 -x NCCL_SOCKET_IFNAME=ib0,bond0,eth0 -mca pml"
    " ob1 -mca btl ^openib,ofi -mca plm_rsh_no_tree_spawn true -mca orte_keep_fqdn_hostnames 1"
)
_QUIET = "OMPI_MCA_btl_vader_single_copy_mechanism=none"  # or ranks of one container warn
# Logins by hand of one run, whose keys are thrown away with it: what most people's mpirun has.
LOGIN = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_UP = 30.0  # seconds that sshd may take


class Failed(Exception):
    """A run failed: the text says why."""


def tail(text: str) -> str:
    """Return the end of what a program printed, on one line."""
    return " ".join(text.split())[-200:]


class Engine:
    """Makes containers; `close` removes all that it made, wherever the run was interrupted."""

    def __init__(self) -> None:
        self.token = f"{os.getpid()}-{secrets.token_hex(2)}"
        self._label = f"entrypoint-bench={self.token}"
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"bench-{self.token}-{self._count}"

    def network(self) -> str:
        """Make a network and return its name."""
        name = self._name()
        docker("network", "create", "--label", self._label, name)
        return name

    def create(
        self,
        image: str,
        *command: str,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Make a container, which is not started, and return its name."""
        name = self._name()
        words = [word for key, value in (env or {}).items() for word in ("-e", f"{key}={value}")]
        own = ("--name", name, "--label", self._label, *MOUNT)
        docker("create", *own, *words, *options, image, *command)
        return name

    def remove(self, names: Sequence[str]) -> None:
        """Remove these containers, whatever they do."""
        if names:
            docker("rm", "-f", "-v", *names, check=False, timeout=300)

    def close(self) -> None:
        """Remove every container and network of this run; again for up to 10 s while the engine
        still holds one."""
        containers = (("ps", "-aq"), ("rm", "-f", "-v"))
        networks = (("network", "ls", "-q"), ("network", "rm"))
        for listing, removal in (containers, networks):
            deadline = time.monotonic() + 10
            while left := docker(*listing, "--filter", f"label={self._label}", check=False).split():
                docker(*removal, *left, check=False, timeout=300)
                if time.monotonic() > deadline:
                    print(f"cannot remove: {' '.join(left)}", file=sys.stderr)
                    break
                time.sleep(0.2)


@dataclass(frozen=True)
class State:
    """A container after its end, or while it runs. Times in seconds since the epoch."""

    running: bool
    status: int
    started: float
    finished: float
    pid: int

    @property
    def lasted(self) -> float:
        return self.finished - self.started


def states(names: Sequence[str]) -> dict[str, State]:
    """Return how each container is now."""

    def at(text: str) -> float:
        return 0.0 if text.startswith("0001") else stamp(text)

    found = {}
    for each in json.loads(docker("inspect", *names)):
        state = each["State"]
        times = at(state["StartedAt"]), at(state["FinishedAt"])
        found[each["Name"].lstrip("/")] = State(
            state["Running"], state["ExitCode"], *times, state["Pid"]
        )
    return found


def ended(names: Sequence[str], seconds: float) -> dict[str, State]:
    """Return how each container has ended. Raises Failed if one still runs after so many
    seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        docker("wait", *names, timeout=seconds)
    after = states(names)
    if running := [name for name, state in after.items() if state.running]:
        raise Failed(
            f"{len(running)} of {len(names)} containers still run after {seconds:g} s | one of them"
            f" said last: {tail(said(running[-1])[1])}"
        )
    return after


def said(name: str) -> tuple[str, str]:
    """Return what a container printed: stdout, stderr."""
    argv = ["docker", "logs", name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def await_words(name: str, words: str, seconds: float) -> None:
    """Return when a container has printed these words. Raises Failed with its last ones."""
    deadline = time.monotonic() + seconds
    while words not in (text := "".join(said(name))):
        if time.monotonic() > deadline or not states([name])[name].running:
            raise Failed(f"it did not say {words!r} within {seconds:g} s: {tail(text)}")
        time.sleep(0.05)


# --------------------------------------------------------------------------------------------------
# Jobs


@dataclass(frozen=True)
class Job:
    """A job whose containers have ended with 0."""

    states: tuple[State, ...]
    out: str  # what worker-0 printed on stdout
    err: str

    @property
    def seconds(self) -> float:
        """From the start of the last container to the end of worker-0."""
        return self.states[0].finished - max(each.started for each in self.states)


def members(rank: int, network: str) -> tuple[str, ...]:
    """Return the options by which a container is the node of this rank."""
    return ("--network", network, "--hostname", f"node-{rank}", "--network-alias", f"node-{rank}")


def settings(nodes: int, rank: int, secret: str) -> dict[str, str]:
    """Return the variables by which the toolkit knows of the job."""
    hosts = ",".join(f"node-{each}" for each in range(nodes))
    return {
        "ENTRYPOINT_HOSTS": hosts,
        "ENTRYPOINT_NODE_RANK": str(rank),
        "ENTRYPOINT_SECRET": secret,
    }


def job_env(launcher: str = "mpirun", slots: int = 1, **more: str) -> dict[str, str]:
    """Return the settings of a job: ENTRYPOINT_ goes before each name."""
    values = {"LAUNCHER": launcher, "SLOTS": str(slots), **more}
    named = {f"ENTRYPOINT_{name}": value for name, value in values.items()}
    return {**named, "OMP_NUM_THREADS": "1"}


def create_job(
    engine: Engine, image: str, nodes: int, network: str, *command: str,
    env: Mapping[str, str], options: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Make the containers of a job of the toolkit, none of them started."""
    secret = secrets.token_hex(32)
    return [
        engine.create(
            image,
            *command,
            options=(*members(rank, network), *options),
            env={**settings(nodes, rank, secret), **env},
        )
        for rank in range(nodes)
    ]


def finish(engine: Engine, names: Sequence[str], seconds: float = 200) -> Job:
    """Start the containers, worker-0 first, wait for their ends, and remove them. Raises Failed
    unless all end with 0."""
    try:
        docker("start", *names, timeout=300)
        after = ended(names, seconds)
        out, err = said(names[0])
    finally:
        engine.remove(names)
    if codes := sorted({state.status for state in after.values()} - {0}):
        raise Failed(f"exit statuses {codes}: {tail(err)}")
    return Job(tuple(after[name] for name in names), out, err)


# --------------------------------------------------------------------------------------------------
# Bare mpirun


class Bare:
    """Containers that run sshd with throw-away keys and nothing else, for mpirun by hand: the
    floor."""

    def __init__(self, engine: Engine, image: str, nodes: int, network: str, keys: Path) -> None:
        self.nodes = nodes
        options = ("--no-healthcheck", "-v", f"{keys}:/keys:ro", "--entrypoint", "/usr/sbin/sshd")
        words = ("-D", "-e", "-f", "/keys/sshd_config")
        self.names = [
            engine.create(image, *words, options=(*members(rank, network), *options))
            for rank in range(nodes)
        ]
        docker("start", *self.names, timeout=300)
        for name in self.names:
            await_words(name, "Server listening", _UP)
        found = json.loads(docker("inspect", *self.names))
        self._addresses = [
            each["NetworkSettings"]["Networks"][network]["IPAddress"] for each in found
        ]

    def line(self, command: str, slots: int = 1) -> str:
        """Return mpirun's line for so many ranks on each node, for a shell."""
        hosts = ",".join(f"{address}:{slots}" for address in self._addresses)
        login = f"-p {PORT} -i /keys/client {LOGIN}"
        start = f"env {_QUIET} mpirun -np {self.nodes * slots} -host {hosts}"
        return f"{start} -mca plm_rsh_args '{login}' {OPTIONS} {command}"

    def run(self, command: str, slots: int = 1, seconds: float = 200) -> tuple[float, str]:
        """Return the seconds of mpirun alone, and what it printed on stdout. Raises Failed."""
        within = ["docker", "exec", self.names[0], "timeout", "-k", "5", f"{seconds:g}"]
        argv = [*within, "bash", "-c", f"TIMEFORMAT=%R; time {self.line(command, slots)}"]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds + 30, check=False
        )
        if done.returncode != 0:
            raise Failed(f"mpirun ended with {done.returncode}: {tail(done.stderr)}")
        return float(done.stderr.split()[-1]), done.stdout


@contextlib.contextmanager
def bare(engine: Engine, image: str, nodes: int) -> Iterator[Bare]:
    """Such containers for the time of the block, all sshd up. Their network is their own: jobs have
    the same names."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        keygen(folder)
        (folder / "sshd_config").write_text(
            f"Port {PORT}\nPidFile none\nUsePAM no\nMaxStartups 100\nStrictModes no\n"
            "HostKey /keys/host\nAuthorizedKeysFile /keys/client.pub\n"
        )
        folder.chmod(0o755)
        for path in folder.iterdir():
            os.chown(path, 1000, 100)  # the images' user
        group = Bare(engine, image, nodes, engine.network(), folder)
        try:
            yield group
        finally:
            engine.remove(group.names)


def keygen(folder: Path) -> None:
    """Make the keys `host` and `client` in a folder."""
    for key in ("host", "client"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(argv, check=True, timeout=20)
