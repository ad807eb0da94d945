"""What one node knows, all are told: failures of its own, who leaves and who comes again, who
freezes, who leads."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import Make, until


def passed(seconds: float) -> None:
    """Let time pass, where time itself is what is tried."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, seconds + 5, "time")


# -- a node's own failure, after the leader has called it


def test_a_log_folder_that_cannot_be_made_on_a_worker_ends_all(cluster: Make) -> None:
    job = cluster(2, slots=1)
    (job.folder / "file").touch()
    for rank, logs in ((1, "file/log"), (0, "log")):
        env = {
            "ENTRYPOINT_LOG_DIR": str(job.folder / logs),
            "ENTRYPOINT_SIMULATE_ASCEND": "1",
            "ENTRYPOINT_TIMEOUTS_PEERS": "600",
            "ENTRYPOINT_ASCEND_RANK_TABLE": "none",
        }
        job.start(rank, "python", "-c", "pass", env=env, launcher="msrun")
    assert job.ends() == {0: 73, 1: 73}, job.both()
    why = f"EP410 cannot write {job.folder}/file/log | Not a directory"
    assert all(why in job.err(rank).splitlines()[-1] for rank in range(2)), job.both()
    assert "ENTRYPOINT_LOG_DIR" in job.err(1).splitlines()[-1], job.both()
    assert "node-1" in job.err(0).splitlines()[-1], job.both()


@pytest.mark.promise("a node that cannot write its files tells the others")
def test_a_node_whose_run_directory_takes_no_files_tells_all(cluster: Make) -> None:
    job = cluster(3, slots=1)
    (job.folder / "file").touch()
    for rank in range(3):
        env = {"ENTRYPOINT_RUN_DIR": str(job.folder / "file/run")} if rank == 1 else {}
        job.start(rank, "true", env=env)
    assert job.ends() == {0: 73, 1: 73, 2: 73}, job.both()
    why = f"EP410 cannot write {job.folder}/file/run | File exists | "
    assert all(why in job.err(rank) for rank in range(3)), job.both()
    assert all(" on worker-1 (node-1); exit 73" in job.err(rank) for rank in range(3)), job.both()
    assert not list(Path("/dev/shm").glob(f"entrypoint-*-{job.port}-*"))


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system with room for so many files and folders, with the one that it is
    itself."""
    mounted: list[Path] = []

    def make(inodes: int) -> Path:
        small = tmp_path / "small"
        small.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"nr_inodes={inodes}", "none", str(small)]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("may not mount here")
        mounted.append(small)
        return small

    yield make
    for each in mounted:
        subprocess.run(["umount", "-l", str(each)], check=True)


LATE = (
    "import entrypoint.system.checks as checks; checks._FILES = 1; from entrypoint.cli import"
    " script; script()"
)


@pytest.mark.promise("a node that cannot write its files tells the others")
@pytest.mark.parametrize(
    ("late", "inodes", "node"), [(False, 4, 0), (True, 11, 1)], ids=["checked", "taken after it"]
)
def test_a_node_with_few_inodes_left_tells_all(
    cluster: Make, few: Callable[[int], Path], inodes: int, late: bool, node: int
) -> None:
    """Whether its check sees that, or others take them between its check and its session."""
    job, small = cluster(2, slots=1), few(inodes)
    words = ("run", "--launcher", "mpirun", "--", "true")
    for rank in (1, 0):
        env = {"ENTRYPOINT_RUN_DIR": str(small / "run")} if rank == node else {}
        job.start(
            rank,
            argv=(sys.executable, *(("-c", LATE) if late else ("-m", "entrypoint")), *words),
            env=env,
        )
    assert job.ends() == {0: 73, 1: 73}, job.both()
    why = re.compile(
        rf"EP410 cannot write {small}/run/\S+ \| No space left on device \| .* on worker-{node} \(node-{node}\);"
        r" exit 73"
    )
    assert all(why.search(job.err(rank)) for rank in range(2)), job.both()
    assert ("/room " in job.err(node)) is not late
    assert not list(Path("/dev/shm").glob(f"entrypoint-*-{job.port}-*"))
    assert not (small / "run").exists()


@pytest.mark.control("a node that cannot write its files tells the others")
def test_a_node_with_enough_inodes_left_runs(cluster: Make, few: Callable[[int], Path]) -> None:
    """The control."""
    job, small = cluster(2, slots=1), few(30)
    for rank in (1, 0):
        job.start(rank, "true", env={"ENTRYPOINT_RUN_DIR": str(small / "run")} if rank else {})
    assert job.ends() == {0: 0, 1: 0}, job.both()


# -- who leaves before the start


# -- a node that stands still


def test_a_result_reaches_a_worker_that_wakes_after_the_leader_has_left(cluster: Make) -> None:
    job = cluster(2, slots=1)
    program = (
        "echo up; [ $NODE = 0 ] || exec sleep 60; until [ -e go ]; do sleep 0.02; done; exit 7"
    )
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "1", "ENTRYPOINT_TIMEOUTS_GRACE": "0.5"}
    job.start_all("sh", "-c", program, env=env, launcher="plain")
    until(lambda: all("up" in job.out(rank) for rank in range(2)), 60, "both up")
    job.signal(1, signal.SIGSTOP)
    (job.folder / "go").touch()
    until(lambda: job.processes[0].poll() is not None, 60, "the leader's end")
    job.signal(1, signal.SIGCONT)
    assert job.ends() == {0: 7, 1: 7}, job.both()


def test_a_leader_that_stood_still_blames_itself(cluster: Make) -> None:
    job = cluster(2, slots=1)
    program = "echo up; exec sleep 60"
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "1", "ENTRYPOINT_TIMEOUTS_GRACE": "1"}
    job.start_all("sh", "-c", program, env=env, launcher="plain")
    until(lambda: all("up" in job.out(rank) for rank in range(2)), 60, "both up")
    job.signal(0, signal.SIGSTOP)
    until(lambda: job.processes[1].poll() is not None, 60, "the worker's end")
    # It counts from when it meant to send, which may be 0.4 s after its last message.
    time.sleep(0.5)
    job.signal(0, signal.SIGCONT)
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert "EP602 worker-0 (node-0) is lost: nothing heard of it for 1s" in job.err(1), job.both()
    assert re.search(
        r"EP603 worker-0 \(node-0\) was suspended for [1-9]s, and its peers wait for 1s; exit 75",
        job.err(0),
    ), job.both()
    assert "worker-1 (node-1) is lost" not in job.err(0), job.both()


# -- who leads


@pytest.mark.promise(
    "a second leader gets no node of a running job", control="the job that runs, in the same test"
)
def test_a_second_leader_gets_no_node_of_a_running_job(cluster: Make) -> None:
    job = cluster(2, slots=1)
    program = "echo up; until [ -e go ]; do sleep 0.02; done"
    job.start_all("sh", "-c", program, launcher="plain")
    until(lambda: all("up" in job.out(rank) for rank in range(2)), 60, "both up")
    second = {
        "ENTRYPOINT_HOSTS": job.hosts.replace("node-0=127.0.0.2", "other=127.0.0.9"),
        "ENTRYPOINT_NODE_RANK": "0",
        "ENTRYPOINT_RUN_DIR": str(job.folder / "other"),
        "ENTRYPOINT_TIMEOUTS_PEERS": "2",
    }
    job.start(2, "true", env=second, launcher="plain")
    assert job.processes[2].wait(60) == 69, job.both()
    assert (
        "1 of 1 peers did not answer within 2s | worker-1 (node-1, another leader has it)"
        in job.err(2)
    ), job.both()
    (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0, 2: 69}, job.both()


# -- what a node costs while training runs


@pytest.mark.promise(
    "a node wakes for heartbeats alone once its ranks run",
    control="the same test with a heartbeat of a second",
)
@pytest.mark.parametrize(("heartbeat", "least", "most"), [("100", 0, 3), ("1", 10, 1000)])
def test_a_waiting_node_wakes_for_heartbeats_alone(
    cluster: Make, heartbeat: str, least: int, most: int
) -> None:
    """As the kernel counts how often it slept; control: a heartbeat of a second."""
    job = cluster(2, slots=1)
    job.start_all(
        "sh",
        "-c",
        "touch up.$RANK; exec sleep 60",
        env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": heartbeat},
    )
    until(lambda: all((job.folder / f"up.{rank}").exists() for rank in (0, 1)), 60, "all up")
    passed(1.5)  # what the start has left to do

    def slept(rank: int) -> int:
        text = Path(f"/proc/{job.processes[rank].pid}/status").read_text()
        return int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[0])

    before = slept(0), slept(1)
    passed(3)
    woken = [slept(rank) - before[rank] for rank in (0, 1)]
    assert all(least <= each <= most for each in woken), woken
    job.signal(0, signal.SIGTERM)
    job.ends()
