"""A flood of lines through four ranks, and its rate beside a plain pipe's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entrypoint.system import proc
from tests.cluster import Make, clean_environment
from tests.process.bench import Process

FLOOD = str(Path(__file__).with_name("flood.py"))
RANKS = 4
# MB of memory for one of our processes, while lines of 1 MiB pass it, and by how much it may grow
# once at work: the line of each rank and the piece behind it, which wait together if the machine is
# busy. Hydra passes larger pieces on: of 2 GB, the second one added 2 MB.
MOST, GROWTH = 100.0, {"mpirun": 12.0, "jax": 12.0, "hydra": 16.0}
Note = Callable[[str, object], None]


def sizes(what: str) -> pytest.MarkDecorator:
    whole = [
        pytest.mark.see("logs", f"1 GB, {what}"),
        pytest.mark.release,
        pytest.mark.timeout(900),
    ]
    small = pytest.param(8_000_000, id="8 MB")
    large = pytest.param(1_000_000_000, id="1 GB", marks=whole)
    return pytest.mark.parametrize("size", [small, large])


WAYS = {
    "mpirun, 2 nodes, prefix": ("mpirun", 2, {"ENTRYPOINT_LOGS_PREFIX": "[{node} {rank}] "}),
    "mpirun, 2 nodes, JSON": ("mpirun", 2, {"ENTRYPOINT_LOGS_FORMAT": "json"}),
    "hydra, 2 nodes, prefix": ("hydra", 2, {"ENTRYPOINT_LOGS_PREFIX": "[{node} {rank}] "}),
    "programs, 1 node, prefix and time": (
        "jax", 1, {"ENTRYPOINT_LOGS_PREFIX": "{node} {rank}: ", "ENTRYPOINT_LOGS_TIMESTAMPS": "utc"},
    ),
}  # fmt: skip


def checker(*words: str) -> Process[bytes]:
    argv = [sys.executable, FLOOD, "check", *words]
    return Process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def found(check: Process[bytes]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(check.communicate()[0])
    return answer


def words_of(answer: dict[str, Any]) -> str:
    rate = answer["bytes"] / max(answer["seconds"], 1e-3) / 1e6
    return f"{rate:4.0f} MB/s, {answer['broken']:,} of {answer['lines']:,} lines broken"


class Memory:
    """Resident memory (MB) of our own processes below these, looked at twice a second: pid -> what
    was seen."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self.seen: dict[int, list[float]] = {}
        self._pids, self._over = pids, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            for top in self._pids():
                for pid in (top, *proc.descendants(top)):
                    try:
                        words = Path(f"/proc/{pid}/cmdline").read_text()
                        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    except (OSError, IndexError):
                        continue
                    if "keeper_main.py" in words or "entrypoint\0run" in words:
                        size = pages * os.sysconf("SC_PAGESIZE") / 1e6
                        self.seen.setdefault(pid, []).append(size)

    def most(self) -> tuple[float, float]:
        """The most of one process; and the most that any grew by after its first quarter, which a
        short run has not."""
        self._over.set()
        self._thread.join()
        long = [each for each in self.seen.values() if each[20:]]
        grown = [max(each[len(each) // 4 :]) - max(each[: len(each) // 4]) for each in long]
        return max(map(max, self.seen.values()), default=0.0), max(grown, default=0.0)


@pytest.mark.promise("a flood of lines is complete, whole, and takes constant memory")
@sizes("four ranks: {way}")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_and_no_line_is_broken(
    way: str, size: int, cluster: Make, python_with: Callable[[str], str], record_property: Note
) -> None:
    launcher, nodes, extra = WAYS[way]
    if launcher == "hydra":
        extra = {**extra, "PATH": f"{Path(python_with('mpich')).parent}:/usr/bin:/bin"}
    job = cluster(nodes=nodes, slots=RANKS // nodes)
    program = (sys.executable, FLOOD, "write", str(size // RANKS))
    check = checker(*(["json"] if "JSON" in way else []))
    if nodes > 1:
        job.start(1, *program, env=extra, launcher=launcher)
    hosts = {"ENTRYPOINT_HOSTS": "(unset)"} if nodes == 1 else {}
    stdout = check.stdin.fileno()
    job.start(0, *program, env={**extra, **hosts}, launcher=launcher, stdout=stdout)
    check.stdin.close()
    check.stdin = None  # type: ignore[assignment]
    memory = Memory(lambda: [each.pid for each in job.processes.values()])
    answer = found(check)
    statuses, (most, grown) = job.ends(), memory.most()
    record_property("seen", f"{words_of(answer)}; memory at most {most:.0f} MB, grown {grown:.1f}")
    assert set(statuses.values()) == {0}, job.both()
    assert (answer["broken"], answer["ranks"], answer["ended"]) == (0, RANKS, RANKS), answer
    assert answer["bytes"] >= size
    assert most < MOST, memory.seen
    assert grown < GROWTH[launcher], memory.seen


@pytest.mark.control("lines under every MPI have their prefix and are whole, whatever their bytes")
@pytest.mark.control("a flood of lines is complete, whole, and takes constant memory")
@sizes("{way}")
@pytest.mark.parametrize("way", ["a plain pipe, one writer", "bare mpirun, four ranks"])
def test_the_rate_of_a_plain_pipe_and_of_bare_mpirun(
    way: str, size: int, record_property: Note
) -> None:
    """The control: without us nothing is lost either, but mpirun breaks lines. And what a rate is
    worth."""
    ranks = RANKS if "mpirun" in way else 1
    bare = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]
    words = bare if ranks > 1 else []
    check = checker()
    argv = [*words, sys.executable, FLOOD, "write", str(size // ranks)]
    writer = subprocess.Popen(argv, env=clean_environment(), stdout=check.stdin)
    check.stdin.close()
    check.stdin = None  # type: ignore[assignment]
    answer = found(check)
    record_property("seen", words_of(answer))
    assert writer.wait() == 0
    assert (answer["broken"] > 0) == (ranks > 1)
    # a line that mpirun broke may begin with a number that is no rank's
    assert answer["ranks"] >= ranks


def test_under_torchrun_each_line_has_its_rank_and_torch_s_own_have_none(
    torch_python: str, cluster: Make
) -> None:
    job = cluster(nodes=2, slots=2)
    program = (
        "import os; print('x' * 20000, flush=True); print('rank', os.environ['RANK'], flush=True)"
    )
    path = f"{Path(torch_python).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "ENTRYPOINT_LOGS_FORMAT": "json", "LOGLEVEL": "INFO"}
    job.start_all("python", "-c", program, env=env, launcher="torchrun")
    assert job.ends() == {0: 0, 1: 0}
    for node in (0, 1):
        found = [json.loads(line) for line in (job.out(node) + job.err(node)).splitlines()]
        assert {each["node"] for each in found if each["stream"] != "entrypoint"} == {
            f"worker-{node}"
        }
        said = [(each["rank"], each["text"]) for each in found if each["stream"] == "stdout"]
        ranks = [2 * node, 2 * node + 1]
        assert sorted(said) == sorted(
            pair for r in ranks for pair in ((r, "x" * 20000), (r, f"rank {r}"))
        )
        assert {each["rank"] for each in found if "elastic_operator" in each["text"]} == {None}
