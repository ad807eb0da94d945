"""The trees to measure, and the containers and networks of one run of the benchmarks. All carry its
label, so that none outlives it."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.containers import IMAGE, docker, exit_code, finished_at, inspect, logs, started_at, wait
from tests.waits import until

from .figures import OURS

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
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


class Failed(Exception):
    """A run failed: the text says why."""


def tail(text: str) -> str:
    """Return the end of what a program printed, on one line."""
    return " ".join(text.split())[-200:]


@dataclass(frozen=True)
class Tree:
    """A checkout that is measured: this one, or a clone at an older commit."""

    folder: Path = TREE
    commit: str = ""

    @property
    def way(self) -> str:
        """The name of its series."""
        return f"{OURS} of {self.commit}" if self.commit else OURS

    @functools.cached_property
    def image(self) -> str:
        """The id of its image, since another build may take the name meanwhile. That of an older
        commit is built first, once, and the name of this checkout's is given back."""
        name = f"{IMAGE.partition(':')[0]}:{self.commit}" if self.commit else IMAGE
        if self.commit and not image_id(name):
            own = image_id(IMAGE)
            subprocess.run([self.folder / "scripts/build-image", "gpu"], check=True)
            docker("tag", IMAGE, name)
            if own:
                docker("tag", own, IMAGE)
        return image_id(name) or name


def image_id(name: str) -> str:
    """Return the id of the image that has this name now, or "" where none has."""
    return first_line("docker", "image", "ls", "--quiet", "--no-trunc", name)


def first_line(*argv: str) -> str:
    """Return the first line that a program prints; "" if it prints none or is not there."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "").strip()


def busy() -> float:
    """Return the seconds of CPU that all processes of this host have used."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # idle, and iowait


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU of a process, in steps of a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
    return found


class Engine:
    """Makes containers; `close` removes all that it made, wherever the run was interrupted."""

    def __init__(self) -> None:
        self.token = f"bench-{os.getpid()}-{secrets.token_hex(2)}"
        self._label = f"entrypoint-bench={self.token}"
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"{self.token}-{self._count}"

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
        own = ("--name", name, "--label", self._label, "-v", f"{HERE}:/bench:ro")
        docker("create", *own, *words, *options, image, *command)
        return name

    def remove(self, names: Sequence[str]) -> None:
        """Remove these containers, whatever they do."""
        if names:
            docker("rm", "-f", "-v", *names, check=False, timeout=300)

    def close(self) -> None:
        """Remove every container and network of this run."""
        if self._count:
            mine = ("--filter", f"label={self._label}")
            self.remove(docker("ps", "-aq", *mine, check=False).split())
            docker("network", "prune", "-f", *mine, check=False)


def await_words(name: str, words: str, seconds: float) -> None:
    """Return when a container has printed these words. Raises AssertionError."""
    until(lambda: words in logs(name), f"{name} says {words!r}", seconds)


# --------------------------------------------------------------------------------------------------
# Jobs


@dataclass(frozen=True)
class Job:
    """A job that has ended with 0. Times in seconds since the epoch."""

    begun: float  # the start of the last container, or of mpirun by hand
    ended: float  # the end of worker-0, or of mpirun
    over: float  # the end of the last container, or of mpirun
    out: str  # what worker-0 or mpirun printed on stdout


def members(rank: int, network: str) -> tuple[str, ...]:
    """Return the options by which a container is the node of this rank."""
    return ("--network", network, "--hostname", f"node-{rank}", "--network-alias", f"node-{rank}")


def settings(nodes: int, rank: int, secret: str) -> dict[str, str]:
    """Return the variables by which the toolkit knows of the job."""
    return {
        "ENTRYPOINT_HOSTS": ",".join(f"node-{each}" for each in range(nodes)),
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


def finish(
    engine: Engine, names: Sequence[str], seconds: float = 200, ends: Sequence[int] = (0,)
) -> Job:
    """Start the containers, worker-0 first, wait for their ends, and remove them. Raises Failed or
    TimeoutError unless each `ends` so."""
    try:
        docker("start", *names, timeout=300)
        wait(*names, timeout=seconds)
        if codes := {exit_code(name) for name in names}.difference(ends):
            raise Failed(f"exit statuses {codes}: {tail(logs(names[0]))}")
        begun, ended = (list(map(at, names)) for at in (started_at, finished_at))
        return Job(max(begun), ended[0], max(ended), logs(names[0], stderr=False))
    finally:
        engine.remove(names)


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
            await_words(name, "Server listening", 30)
        networks = [inspect(name)["NetworkSettings"]["Networks"] for name in self.names]
        self._addresses = [each[network]["IPAddress"] for each in networks]

    def run(self, command: str, slots: int = 1) -> Job:
        """Run so many ranks on each node. Raises Failed."""
        line = by_hand(self._addresses, f"-p {PORT} -i /keys/client", command, slots)
        script = f"date +%s.%N; {line}; date +%s.%N"
        argv = ["docker", "exec", self.names[0], "timeout", "-k", "5", "200", "bash", "-ec", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=230, check=False)
        if done.returncode:
            raise Failed(f"mpirun ended with {done.returncode}: {tail(done.stderr)}")
        begun, *out, ended = done.stdout.splitlines()
        return Job(float(begun), float(ended), float(ended), "\n".join(out))


def by_hand(
    addresses: Sequence[str], login: str, command: str, slots: int = 1, options: str = OPTIONS
) -> str:
    """Return mpirun's line for so many ranks at each address, with these options of ssh."""
    hosts = ",".join(f"{address}:{slots}" for address in addresses)
    start = f"env {_QUIET} mpirun -np {len(addresses) * slots} -host {hosts}"
    return f"{start} -mca plm_rsh_args '{login} {LOGIN}' {options} {command}"


def sshd_config(folder: Path, port: int | str) -> str:
    """Return the settings of a sshd that has the keys of this folder, and nothing else."""
    return (
        f"Port {port}\nPidFile none\nUsePAM no\nMaxStartups 100\nStrictModes no\n"
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n"
    )


@contextlib.contextmanager
def bare(engine: Engine, image: str, nodes: int) -> Iterator[Bare]:
    """Such containers for the time of the block, all sshd up. Their network is their own: jobs have
    the same names."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        keygen(folder)
        (folder / "sshd_config").write_text(sshd_config(Path("/keys"), PORT))
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
