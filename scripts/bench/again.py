"""Jobs that lose a rank or a container, and starts by hand beside them. Ranks tell by files when
they start, so that nothing is asked of the engine meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.containers import docker, stamp

from .engine import Bare, Failed, create_job, members, said, states
from .table import Table

_SCRIPT = "/bench/rank.py"
RANK = ("python3", _SCRIPT, "mark")
_ENV = {"OMP_NUM_THREADS": "1"}
_LOOK = 0.02  # seconds between two looks at the marks
_CALM = 1.0  # seconds after which the rest of a start is over, too
# Docker waits longer before it restarts a container that has run for less than ten seconds.
_FORGIVEN = 10.5


@dataclass(frozen=True)
class Mark:
    """A start of a rank: when, on which node, and its process id there."""

    at: float  # seconds since the epoch
    node: str
    pid: int


class Marks:
    """A folder in which each rank leaves a mark when it starts, and each program by hand a file
    when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount = ("-v", f"{folder}:/marks")

    def since(self, begun: float) -> dict[int, Mark]:
        """The first mark of each rank after this time."""
        found: dict[int, Mark] = {}
        for path in self.folder.glob("rank-*"):
            rank = int(path.name.removeprefix("rank-"))
            for line in path.read_text().splitlines():
                node, at, pid = line.split()
                if float(at) > begun:
                    found.setdefault(rank, Mark(float(at), node, int(pid)))
        return found

    def all_run(self, begun: float, count: int, seconds: float) -> dict[int, Mark]:
        """Return once so many ranks have started after this time. Raises Failed."""
        deadline = time.monotonic() + seconds
        while len(found := self.since(begun)) < count:
            if time.monotonic() > deadline:
                raise Failed(f"{len(found)} of {count} ranks run after {seconds:g} s")
            time.sleep(_LOOK)
        return found


def last(found: Mapping[int, Mark]) -> float:
    """When the last of these ranks started."""
    return max(mark.at for mark in found.values())


@contextlib.contextmanager
def marks() -> Iterator[Marks]:
    """Such a folder for the time of the block; the images' user may write into it."""
    with tempfile.TemporaryDirectory(prefix="bench-marks-") as name:
        Path(name).chmod(0o777)
        yield Marks(Path(name))


def limit(nodes: int) -> float:
    """Seconds in which every rank of so many nodes has to run."""
    return 30.0 + 10 * nodes


class Job:
    """A job of the toolkit with one rank on each node, which starts again after each loss."""

    def __init__(
        self, table: Table, launcher: str, nodes: int, place: Marks, spares: int = 0
    ) -> None:
        self._engine, self._nodes, self._marks = table.engine, nodes, place
        self._ran: dict[int, Mark] = {}
        env = {
            **_ENV,
            "ENTRYPOINT_LAUNCHER": launcher,
            "ENTRYPOINT_SLOTS": "1",
            "ENTRYPOINT_RESTARTS": "100",
            "ENTRYPOINT_RESTARTS_ON": "any",
            **({"ENTRYPOINT_SPARES": str(spares)} if spares else {}),
        }
        policy = () if spares else ("--restart", "always")
        self._network = self._engine.network()
        self.names = create_job(
            self._engine, table.image, nodes + spares, self._network, *RANK,
            env=env, options=(*place.mount, *policy),
        )  # fmt: skip

    def start(self) -> None:
        """Start the containers; return when every rank runs. Raises Failed."""
        begun = time.time()
        docker("start", *self.names, timeout=300)
        self._await(begun)

    def _await(self, begun: float) -> float:
        """When every rank runs again."""
        try:
            self._ran = self._marks.all_run(begun, self._nodes, limit(self._nodes))
        except Failed as error:
            words = " ".join("".join(said(self.names[0])).split())[-300:]
            raise Failed(f"{error} | worker-0 said last: {words}") from None
        time.sleep(_CALM)
        return last(self._ran)

    def lose_rank(self) -> float:
        """Seconds from the SIGKILL of the last node's rank until every rank runs."""
        mark = next(each for each in self._ran.values() if each.node == f"node-{self._nodes - 1}")
        pid = _process_of(self.names[self._nodes - 1], mark.pid)
        begun = time.time()
        os.kill(pid, signal.SIGKILL)
        return self._await(begun) - begun

    def lose_container(self) -> tuple[float, float]:
        """Kill the last node's container, which the engine restarts; return the seconds that the
        engine takes, and those from its start until every rank runs."""
        lost = self.names[self._nodes - 1]
        before = states([lost])[lost]
        time.sleep(max(0.0, before.started + _FORGIVEN - time.time()))
        begun = time.time()
        os.kill(before.pid, signal.SIGKILL)
        again = self._await(begun)
        started = states([lost])[lost].started
        if started < begun:
            raise Failed("the engine has not restarted the container")
        return started - begun, again - started

    def lose_node(self) -> tuple[float, float]:
        """Kill the last worker's container for good; return the seconds until the leader knows of
        the loss, and those from then until every rank runs."""
        lost = self.names[self._nodes - 1]
        before = states([lost])[lost]
        begun = time.time()
        os.kill(before.pid, signal.SIGKILL)
        again = self._await(begun)
        known = _lost_at(self.names[0], f"node-{self._nodes - 1}")
        return known - begun, again - known

    def close(self) -> None:
        """Remove its containers and their network."""
        self._engine.remove(self.names, self._network)


def _process_of(name: str, inside: int) -> int:
    """The process that has this id inside a container, as this machine numbers it."""
    for row in docker("top", name, "-eo", "pid").split()[1:]:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{row}/status").read_text()
            if (ids := re.search(r"(?m)^NSpid:.*\s(\d+)$", status)) and int(ids[1]) == inside:
                return int(row)
    raise Failed(f"{name} has no process {inside}")


def _lost_at(leader: str, host: str) -> float:
    """When the leader first said that this node is lost, by the engine's clock."""
    done = subprocess.run(
        ["docker", "logs", "-t", leader], capture_output=True, text=True, timeout=120, check=True
    )
    for line in (done.stdout + done.stderr).splitlines():
        if re.search(rf"\({host}\) is lost: |\b{host} is lost: ", line):
            return stamp(line.partition(" ")[0])
    raise Failed(f"worker-0 has not said that {host} is lost")


def by_mpirun(floor: Bare, seconds: float) -> float:
    """Seconds from the start of mpirun by hand until every rank runs."""
    line = floor.line(f"python3 {_SCRIPT} place")
    words = ["docker", "exec", floor.names[0], "timeout", "-k", "5", f"{seconds:g}"]
    done = subprocess.run(
        [*words, "bash", "-c", f"date +%s.%N; {line}"],
        capture_output=True, text=True, timeout=seconds + 30, check=False,
    )  # fmt: skip
    begun, *ranks = done.stdout.splitlines()
    if done.returncode or len(ranks) != floor.nodes:
        words_of = " ".join(done.stderr.split())[-200:]
        raise Failed(f"mpirun ended with {done.returncode}, {len(ranks)} ranks: {words_of}")
    return max(float(rank.split()[1]) for rank in ranks) - float(begun)


class TorchByHand:
    """Containers that wait for a line, which each starts as soon as it comes: torchrun by hand, on
    all nodes at once and at no cost of the engine's."""

    def __init__(self, table: Table, nodes: int, place: Marks) -> None:
        self._engine, self._nodes, self._marks = table.engine, nodes, place
        self.names = []
        network = self._engine.network()
        for rank in range(nodes):
            os.mkfifo(place.folder / f"go-{rank}")
            loop = (
                f'while read -r line </marks/go-{rank}; do eval "$line"; >/marks/ended-{rank}; done'
            )
            self.names.append(
                self._engine.create(
                    table.image, "-c", loop, env=_ENV,
                    options=(*members(rank, network), "--init", "--no-healthcheck", *place.mount,
                             "--entrypoint", "bash"),
                )
            )  # fmt: skip
        docker("start", *self.names, timeout=300)

    def run(self) -> float:
        """Seconds from the start of torchrun until every rank runs."""
        for path in self._marks.folder.glob("ended-*"):
            path.unlink()
        lines = [f"{self._line(rank)} {_SCRIPT} mark once\n" for rank in range(self._nodes)]
        begun = time.time()
        for rank, line in enumerate(lines):
            (self._marks.folder / f"go-{rank}").write_text(line)
        seconds = last(self._marks.all_run(begun, self._nodes, limit(self._nodes))) - begun
        deadline = time.monotonic() + limit(self._nodes)
        while len(list(self._marks.folder.glob("ended-*"))) < self._nodes:
            if time.monotonic() > deadline:
                raise Failed(f"torchrun by hand runs after {limit(self._nodes):g} s")
            time.sleep(_LOOK)
        return seconds

    def _line(self, rank: int) -> str:
        """With c10d, as torch documents it, unless that would number node-10 before node-2."""
        line = (
            f"torchrun --nnodes={self._nodes} --nproc_per_node=1 --rdzv_id=bench --max_restarts=0"
        )
        if self._nodes > 10:
            line += f" --rdzv_backend=static --master_addr=node-0 --node_rank={rank}"
            return f"{line} --master_port=6060 --rdzv_conf=timeout=600"
        conf = f"is_host={int(rank == 0)},join_timeout=600,read_timeout=600"
        line += f" --rdzv_backend=c10d --rdzv_endpoint=node-0:6060 --rdzv_conf={conf}"
        return f"{line} --local_addr=node-{rank}"

    def close(self) -> None:
        """Remove its containers."""
        self._engine.remove(self.names)
