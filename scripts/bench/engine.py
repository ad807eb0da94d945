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

from .machine import Process, process

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


@dataclass(frozen=True)
class State:
    """A container after its end, or while it runs. Times in seconds since the epoch."""

    running: bool
    status: int
    started: float
    finished: float
    pid: int


class Engine:
    """Makes containers; `close` removes all that it made, wherever the run was interrupted."""

    def __init__(self) -> None:
        self.token = f"{os.getpid()}-{secrets.token_hex(2)}"
        self._label = f"entrypoint-bench={self.token}"
        self._count = 0

    def network(self) -> str:
        """A new network's name."""
        self._count += 1
        name = f"bench-{self.token}-{self._count}"
        docker("network", "create", "--label", self._label, name)
        return name

    def create(
        self,
        image: str,
        *command: str,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> str:
        """A new container's name; it is not started."""
        self._count += 1
        name = f"bench-{self.token}-{self._count}"
        words = [word for key, value in (env or {}).items() for word in ("-e", f"{key}={value}")]
        docker(
            "create",
            "--name",
            name,
            "--label",
            self._label,
            *MOUNT,
            *words,
            *options,
            image,
            *command,
        )
        return name

    def remove(self, names: Sequence[str], network: str = "") -> None:
        """Remove these containers, whatever they do, and their network, of which there are few."""
        if names:
            docker("rm", "-f", "-v", *names, check=False, timeout=300)
        if network:
            docker("network", "rm", network, check=False)

    def close(self) -> None:
        """Remove every container and network of this run; again for up to 10 s while the engine
        still holds one."""
        for kind, listing in (("container", ("ps", "-aq")), ("network", ("network", "ls", "-q"))):
            deadline = time.monotonic() + 10
            while left := docker(*listing, "--filter", f"label={self._label}", check=False).split():
                docker(
                    kind,
                    "rm",
                    *(("-f", "-v") if kind == "container" else ()),
                    *left,
                    check=False,
                    timeout=300,
                )
                if time.monotonic() > deadline:
                    print(f"cannot remove: {kind} {' '.join(left)}", file=sys.stderr)
                    break
                time.sleep(0.2)


def states(names: Sequence[str]) -> dict[str, State]:
    """How each container is now."""
    found = {}
    for each in json.loads(docker("inspect", *names)):
        state = each["State"]
        ended = stamp(state["FinishedAt"]) if not state["FinishedAt"].startswith("0001") else 0.0
        started = stamp(state["StartedAt"]) if not state["StartedAt"].startswith("0001") else 0.0
        found[each["Name"].lstrip("/")] = State(
            state["Running"], state["ExitCode"], started, ended, state["Pid"]
        )
    return found


def ended(names: Sequence[str], seconds: float) -> dict[str, State]:
    """How each container has ended. Raises Failed with those that still run after so many
    seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        docker("wait", *names, timeout=seconds)
    after = states(names)
    running = [name for name, state in after.items() if state.running]
    if running:
        first = "still runs" if after[names[0]].running else f"ended with {after[names[0]].status}"
        last = {
            which: " ".join(said(name)[1].split())[-120:]
            for which, name in (("first", names[0]), ("last", running[-1]))
        }
        what = (
            f"{len(running)} of {len(names)} containers still run after {seconds:g} s, the first"
            f" {first}"
        )
        raise Failed(f"{what} | it said last: {last['first']} | one that runs: {last['last']}")
    return after


def said(name: str) -> tuple[str, str]:
    """What a container printed: stdout, stderr."""
    done = subprocess.run(
        ["docker", "logs", name], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, done.stderr


def processes(name: str) -> list[Process]:
    """All processes of a container."""
    rows = docker("top", name, "-eo", "pid").split()[1:]
    return [found for row in rows if (found := process(int(row))) is not None]


# --------------------------------------------------------------------------------------------------
# Jobs


@dataclass(frozen=True)
class Job:
    """A job whose containers have ended."""

    names: tuple[str, ...]
    states: tuple[State, ...]
    out: str  # what worker-0 printed on stdout
    err: str

    @property
    def seconds(self) -> float:
        """From the start of the last container to the end of worker-0."""
        return self.states[0].finished - max(each.started for each in self.states)


def members(rank: int, network: str) -> tuple[str, ...]:
    """The options by which a container is the node of this rank."""
    return ("--network", network, "--hostname", f"node-{rank}", "--network-alias", f"node-{rank}")


def settings(nodes: int, rank: int, secret: str) -> dict[str, str]:
    """The variables by which the toolkit knows of the job."""
    hosts = ",".join(f"node-{each}" for each in range(nodes))
    return {
        "ENTRYPOINT_HOSTS": hosts,
        "ENTRYPOINT_NODE_RANK": str(rank),
        "ENTRYPOINT_SECRET": secret,
    }


def create_job(
    engine: Engine, image: str, nodes: int, network: str, *command: str,
    env: Mapping[str, str] | None = None, options: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """The containers of a job of the toolkit, none of them started."""
    secret = secrets.token_hex(32)
    return [
        engine.create(
            image,
            *command,
            options=(*members(rank, network), *options),
            env={**settings(nodes, rank, secret), **(env or {})},
        )
        for rank in range(nodes)
    ]


def finish(names: Sequence[str], seconds: float) -> Job:
    """Start the containers, worker-0 first, and wait for their ends. Raises Failed unless all end
    with 0."""
    docker("start", *names, timeout=300)
    after = ended(names, seconds)
    out, err = said(names[0])
    codes = {state.status for state in after.values()}
    if codes != {0}:
        raise Failed(f"exit statuses {sorted(codes)}: {' '.join(err.split())[-200:]}")
    return Job(tuple(names), tuple(after[name] for name in names), out, err)


def boot(
    engine: Engine, image: str, nodes: int, network: str, *command: str,
    env: Mapping[str, str] | None = None, seconds: float = 120,
) -> Job:  # fmt: skip
    """A whole job of the toolkit, from `docker start` to the last container's end."""
    names = create_job(engine, image, nodes, network, *command, env=env)
    try:
        return finish(names, seconds)
    finally:
        engine.remove(names)


# --------------------------------------------------------------------------------------------------
# Bare mpirun


class Bare:
    """Containers that run sshd with throw-away keys and nothing else, for mpirun by hand: the
    floor."""

    def __init__(self, engine: Engine, image: str, nodes: int, network: str, keys: Path) -> None:
        self._engine, self.nodes = engine, nodes
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
        """mpirun's line for so many ranks on each node, for a shell."""
        hosts = ",".join(f"{address}:{slots}" for address in self._addresses)
        login = f"-p {PORT} -i /keys/client {LOGIN}"
        start = f"env {_QUIET} mpirun -np {self.nodes * slots} -host {hosts}"
        return f"{start} -mca plm_rsh_args '{login}' {OPTIONS} {command}"

    def run(self, command: str, slots: int = 1, seconds: float = 120) -> tuple[float, str]:
        """Seconds of mpirun alone, and what it printed on stdout. Raises Failed."""
        script = f"TIMEFORMAT=%R; time {self.line(command, slots)}"
        argv = [
            "docker",
            "exec",
            self.names[0],
            "timeout",
            "-k",
            "5",
            f"{seconds:g}",
            "bash",
            "-c",
            script,
        ]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=seconds + 30, check=False
        )
        if done.returncode != 0:
            raise Failed(
                f"mpirun ended with {done.returncode}: {' '.join(done.stderr.split())[-200:]}"
            )
        return float(done.stderr.split()[-1]), done.stdout

    def close(self) -> None:
        """Remove its containers."""
        self._engine.remove(self.names)


@contextlib.contextmanager
def bare(engine: Engine, image: str, nodes: int) -> Iterator[Bare]:
    """Such containers for the time of the block, all sshd up. Their network is their own: jobs have
    the same names."""
    with throwaway_keys() as keys:
        group = Bare(engine, image, nodes, engine.network(), keys)
        try:
            yield group
        finally:
            group.close()


@contextlib.contextmanager
def throwaway_keys() -> Iterator[Path]:
    """A folder that holds a client's key, a host's key, and sshd's configuration, owned by the
    images' user."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        for key in ("host", "client"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(argv, check=True, timeout=20)
        (folder / "sshd_config").write_text(
            f"Port {PORT}\nPidFile none\nUsePAM no\nMaxStartups 100\nStrictModes no\n"
            "HostKey /keys/host\nAuthorizedKeysFile /keys/client.pub\n"
        )
        folder.chmod(0o755)
        for path in folder.iterdir():
            os.chown(path, 1000, 100)
        yield folder


def await_words(name: str, words: str, seconds: float) -> None:
    """Return when a container has printed these words. Raises Failed with its last ones."""
    deadline = time.monotonic() + seconds
    while words not in "".join(said(name)):
        if time.monotonic() > deadline or not states([name])[name].running:
            last = " ".join("".join(said(name)).split())[-200:]
            raise Failed(f"it did not say {words!r} within {seconds:g} s: {last}")
        time.sleep(0.05)
