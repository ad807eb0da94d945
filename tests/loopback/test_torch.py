"""The launchers of torch on nodes of this machine: what the entrypoint makes of them.

The quick tests have a module that replaces torch and starts processes as torch does. The others
run the real one of the Python that --with=torch=PATH names (scripts/dev/python-with torch makes it). What has to hold in the image is in
tests/engines/test_pytorch_engine.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import Cluster, Make, free_port
from tests.waits import until


def start(job: Cluster, *program: str, python: str, **more: str) -> None:
    port = str(free_port())
    for rank in reversed(range(job.nodes)):
        temporary = job.folder / f"tmp-{rank}"
        temporary.mkdir()
        env = {
            "PYTHON": python,
            "ENTRYPOINT_PORT": port,
            "TMPDIR": str(temporary),
            "OMP_NUM_THREADS": "1",
            **more,
        }
        job.start(rank, *program, env=env, launcher="torchrun")


# --------------------------------------------------------------------------------------------------
# A module that stands for torch


STANDS_IN = """
import os, signal, subprocess, sys
from string import Template
from types import SimpleNamespace


class ChildFailedError(Exception):
    def __init__(self, failures):
        self.name, self.failures = "what torch ran", failures
        super().__init__(self.format_msg())

    def format_msg(self):
        return self.name + " FAILED"

    def get_first_failure(self):
        return min(self.failures.items())  # as torch finds it where several fail within a tenth of a second


program, node = sys.argv[sys.argv.index("--") + 1 :], int(os.environ["NODE"])
for attempt in range(1 + int(os.environ.get("RESTARTS", "0"))):
    ranks = {}
    for rank in range(2 * node, 2 * node + 2):
        env = {**os.environ, "RANK": str(rank), "ATTEMPT": str(attempt)}
        words = [program[0], *(Template(word).safe_substitute(local_rank=rank % 2) for word in program[1:])]
        ranks[rank] = subprocess.Popen(words, env=env, start_new_session=True)
    if "ITSELF" in os.environ:  # its own failure, such as that of its store
        fifo = os.open("itself", os.O_RDWR)
        for rank in ranks:
            os.read(fifo, 1)  # it is there
        if os.environ["ITSELF"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        for process in ranks.values():
            os.killpg(process.pid, signal.SIGTERM)
    ends = {rank: process.wait() for rank, process in ranks.items()}
    if "ITSELF" in os.environ:
        raise ConnectionError("the store")
    failed = {rank: SimpleNamespace(exitcode=status) for rank, status in ends.items() if status}
    if not failed:
        break
else:
    raise ChildFailedError(failed)
"""


def stand_in(job: Cluster, program: str, **more: str) -> None:
    package = job.folder / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "run.py").write_text(STANDS_IN)
    start(job, "sh", "-c", program, python=sys.executable, **more)


def ours(job: Cluster, rank: int = 0) -> list[str]:
    """What the entrypoint itself said."""
    return re.findall(r"^\[entrypoint[^]]*\] (.*)", job.err(rank), re.M)


def test_the_rank_that_failed_on_another_node(cluster: Make) -> None:
    job = cluster(2)
    fails = "for line in $(seq 30); do echo line $line; done; exit 7"
    # Rank 2 loses its peer, and its end is the one that torch would take for the first.
    stand_in(
        job, f"case $RANK in 3) {fails} ;; 2) sleep 0.3; echo lost; exit 1 ;; esac; exec sleep 600"
    )
    assert job.ends() == {0: 7, 1: 7}, job.both()
    said = ours(job)
    at = said.index("last 20 lines of rank 3 on worker-1 (node-1):")
    assert said[at + 1 : at + 21] == [f"  | line {line}" for line in range(11, 31)], job.both()
    assert said[-1] == "EP600 rank 3 on worker-1 (node-1) exited with 7; exit 7"
    assert "ChildFailedError: sh FAILED" in job.err(1), job.both()
    assert job.survivors() == []


def test_a_launcher_that_fails_by_itself_is_not_its_ranks_failure(cluster: Make) -> None:
    job = cluster(1)
    os.mkfifo(job.folder / "itself")
    stand_in(job, "printf x >itself; exec sleep 600", ITSELF="yes", ENTRYPOINT_HOSTS="node-0")
    assert job.ends() == {0: 1}, job.both()
    assert ours(job)[-1] == "EP600 torchrun exited with 1; exit 1", job.both()


def test_ranks_of_a_launcher_that_was_killed_have_the_grace(cluster: Make) -> None:
    job = cluster(1)
    os.mkfifo(job.folder / "itself")
    saves = (
        "trap 'sleep 0.5; echo saved; exit' TERM; printf x >itself; while :; do sleep 0.05; done"
    )
    stand_in(job, saves, ITSELF="killed", ENTRYPOINT_HOSTS="node-0")
    assert job.ends() == {0: 137}, job.both()  # less than the grace
    assert job.out().count("saved") == 2, job.both()
    assert job.survivors() == []


def test_what_a_launcher_starts_again_is_no_failure(cluster: Make) -> None:
    job = cluster(1)
    program = "[ $ATTEMPT = 1 ] || exit 7; [ $RANK = 1 ] || exit 0; exit 9"
    stand_in(job, program, RESTARTS="1", ENTRYPOINT_HOSTS="node-0")
    assert job.ends() == {0: 9}, job.both()
    started, *said = ours(job)
    assert started.startswith("started: torchrun with 2 ranks | ")
    assert said == ["EP600 rank 1 exited with 9; exit 9"], job.both()


# --------------------------------------------------------------------------------------------------
# The real one


# Bytes that are not UTF-8, a progress bar, a line without an end; on stderr as well.
AWKWARD = r"""
import os, sys, time
time.sleep(5 * int(os.environ["RANK"]))
for stream in sys.stdout, sys.stderr:
    stream.buffer.write(b"one\r two\r\n\xff\x00 " + os.environ["RANK"].encode() + b" no end")
    stream.buffer.flush()
"""
PRINTED = b"one\r two\r\n\xff\x00 %d no end"
# torch's own limit, lowered where its launcher's Python starts.
LOWERED = """
import sys
if "torch.distributed.run" in sys.orig_argv or "torch.distributed.launch" in sys.orig_argv:
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent as Agent
    assert 300 in Agent.__init__.__defaults__
    Agent.__init__.__defaults__ = tuple(1 if value == 300 else value for value in Agent.__init__.__defaults__)
"""


def test_output_is_the_program_s_byte_for_byte_and_nothing_is_left(
    cluster: Make, torch_python: str
) -> None:
    """A node may end long after the first."""
    job = cluster(2, slots=1)
    (job.folder / "train.py").write_text(AWKWARD)
    (job.folder / "sitecustomize.py").write_text(LOWERED)
    start(job, "train.py", python=torch_python, PYTHONPATH=str(job.folder))
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "Error waiting on exit barrier" not in job.both()
    for rank in range(2):
        assert (job.folder / f"out-{rank}").read_bytes() == PRINTED % rank
        assert PRINTED % rank in (job.folder / f"err-{rank}").read_bytes()
        assert list((job.folder / f"tmp-{rank}").iterdir()) == []
        assert not job.run_dir(rank).exists()
    assert job.survivors() == []


@pytest.mark.promise(
    "torchrun's nodes are numbered in the order of `hosts`", control="its case `c10d`"
)
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "ranks"), [("auto", "01"), ("c10d", "10")])
def test_nodes_keep_the_order_of_the_hosts(
    cluster: Make, backend: str, ranks: str, torch_python: str
) -> None:
    """c10d by itself numbers them by the spelling of their addresses."""
    job = cluster(2, slots=1)
    more = {
        "ENTRYPOINT_HOSTS": "node-0=127.0.0.9,node-1=127.0.0.10",
        "ENTRYPOINT_TORCH_RDZV_BACKEND": backend,
    }
    start(job, "sh", "-c", 'echo "rank $RANK"', python=torch_python, **more)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert [job.out(node) for node in range(2)] == [f"rank {rank}\n" for rank in ranks]


# --------------------------------------------------------------------------------------------------
# Without a roll call: what torch's own store lets the nodes know of each other

NONE = {
    "ENTRYPOINT_ROLL_CALL": "none",
    "ENTRYPOINT_SECRET": "(unset)",
    "ENTRYPOINT_TIMEOUTS_PEERS": "20",
}


def launcher_of(job: Cluster, rank: int) -> int:
    """The process of torch's launcher on this node, once its rank runs."""

    def found() -> list[int]:
        script, seen = os.fsencode(job.run_dir(rank) / "torch_launch.py"), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().split(b"\0")[1:2] == [script]:
                    seen.append(int(process.name))
        return seen

    until(lambda: (job.folder / f"up-{rank}").exists() and found(), f"a launcher on node {rank}")
    (pid,) = found()
    return pid


@pytest.mark.promise(
    "torch's launchers without a roll call fail together and never end with 0 early"
)
@pytest.mark.parametrize(
    ("fails", "more"),
    [("0", {}), ("1", {"ENTRYPOINT_TORCH_RDZV_BACKEND": "c10d"})],
    ids=["static, worker-0", "c10d, worker-1"],
)
def test_a_failure_is_every_node_s_without_a_roll_call(
    cluster: Make, fails: str, more: dict[str, str], torch_python: str
) -> None:
    """Also a node's whose ranks have ended well, and one's whose ranks would stay."""
    job = cluster(3, slots=1)
    program = f"case $RANK in {fails}) sleep 2; exit 9 ;; 2) exit 0 ;; esac; exec sleep 600"
    start(job, "sh", "-c", program, python=torch_python, **NONE, **more)
    assert job.ends() == {0: 9, 1: 9, 2: 9}, job.both()
    for rank in range(3):
        assert (
            "warning: EP506 no roll call, roll_call: none (env ENTRYPOINT_ROLL_CALL) | "
            in job.err(rank)
        )
        told = f"EP631 worker-{fails} has failed | its launcher ended with 9" in job.err(rank)
        assert told is (rank != int(fails)), job.both()
    assert job.survivors() == []


def test_nodes_that_end_well_apart_from_each_other_without_a_roll_call(
    cluster: Make, torch_python: str
) -> None:
    """The control: 0 on all, also where one works for longer than another waits for a sign of
    it."""
    job = cluster(2, slots=1)
    program = "[ $RANK = 0 ] || sleep 6; exit 0"
    start(job, "sh", "-c", program, python=torch_python, EXIT_BARRIER="2", **NONE)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    for rank in range(2):
        assert ours(job, rank)[-1] == "this node's part is done: torchrun exited with 0", job.both()


@pytest.mark.promise(
    "torch's launchers without a roll call fail together and never end with 0 early"
)
@pytest.mark.parametrize(
    ("killed", "program", "status", "says"),
    [
        (1, "exit 0", 69, "EP633 1 of 2 nodes have exited with 0 | nothing was heard from the others within 20s"),
        (0, "exec sleep 600", 75, "EP632 the state of the other nodes is unknown | "),
    ],
    ids=["worker-1", "worker-0"],
)  # fmt: skip
def test_a_launcher_that_is_lost_is_no_success_without_a_roll_call(
    cluster: Make, killed: int, program: str, status: int, says: str, torch_python: str
) -> None:
    job = cluster(2, slots=1)
    other = 1 - killed
    program = (
        f"touch up-$NODE; [ $NODE = {killed} ] && exec sleep 600; while [ ! -e go ]; do sleep 0.1;"
        f" done; {program}"
    )
    start(job, "sh", "-c", program, python=torch_python, **NONE)
    launcher_of(job, other)
    os.kill(launcher_of(job, killed), signal.SIGKILL)
    (job.folder / "go").touch()
    assert job.ends() == {killed: 137, other: status}, job.both()
    assert says in job.err(other), job.both()


def test_a_node_that_never_comes_is_no_success_without_a_roll_call(
    cluster: Make, torch_python: str
) -> None:
    job = cluster(2, slots=1)
    env = {
        "PYTHON": torch_python,
        "ENTRYPOINT_PORT": str(free_port()),
        **NONE,
        "ENTRYPOINT_TIMEOUTS_PEERS": "3",
    }
    job.start(0, "sh", "-c", "echo ran", env=env, launcher="torchrun")
    assert job.ends() == {0: 69}, job.both()
    assert "EP633 nothing was heard from the other nodes | " in job.err(0), job.both()
    assert job.out(0) == ""


@pytest.mark.control(
    "torch's launchers without a roll call fail together and never end with 0 early"
)
def test_a_script_started_by_hand_fails_as_torch_does_and_says_so(
    cluster: Make, torch_python: str
) -> None:
    """What shows that the tests above can fail. A node waits for 1 s here, and not for 300 s."""
    job, port = cluster(2, slots=1), str(free_port())
    (job.folder / "sitecustomize.py").write_text(LOWERED)
    asked = ("--out", str(job.folder), "--hosts", job.hosts, "--slots", "1", "--node-rank", "0")
    subprocess.run([sys.executable, "-m", "entrypoint", "render", *asked], check=True)
    ours = dict.fromkeys(
        ("ENTRYPOINT_TIMEOUTS_PEERS", "ENTRYPOINT_TIMEOUTS_GRACE", "ENTRYPOINT_RUN_DIR"), "(unset)"
    )
    where = {"MASTER_PORT": port, "PYTHON": torch_python, **ours}
    for rank in range(2):
        argv = ("bash", str(job.folder / "torchrun.sh"), "sh", "-c", "[ $RANK = 0 ] || exit 9")
        job.start(
            rank, argv=argv, env={"NODE_RANK": str(rank), "PYTHONPATH": str(job.folder), **where}
        )
    assert job.ends() == {0: 0, 1: 1}, job.both()
    for rank in range(2):
        alone = f"torch alone, node {rank} of 2: a failure on another node may end this one with 0"
        assert f"torchrun.sh: {alone}\n" in job.err(rank), job.both()
