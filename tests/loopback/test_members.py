"""What one node knows, all are told: failures of its own, and who leads. And what a node costs while
training runs."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.cluster import Make
from tests.waits import until


def passed(seconds: float) -> None:
    """Let time pass, where time itself is what is tried."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, "time")


@pytest.mark.promise("a node that cannot write its files tells the others")
def test_a_node_whose_run_directory_takes_no_files_tells_all(cluster: Make) -> None:
    job = cluster(3, slots=1)
    (job.folder / "file").touch()
    for rank in range(3):
        env = {"ENTRYPOINT_RUN_DIR": str(job.folder / "file/run")} if rank == 1 else {}
        job.start(rank, "true", env=env)
    assert job.ends() == {0: 73, 1: 73, 2: 73}, job.both()
    why = f"EP410 cannot write {job.folder}/file/run | File exists"
    assert f"{why} | " in job.err(1), job.both()
    placed = f"{why} on worker-1 (node-1) | "
    assert all(placed in job.err(rank).splitlines()[-1] for rank in range(3)), job.both()
    assert not list(Path("/dev/shm").glob(f"entrypoint-*-{job.port}-*"))


@pytest.mark.promise(
    "a second leader gets no node of a running job", control="the job that runs, in the same test"
)
def test_a_second_leader_gets_no_node_of_a_running_job(cluster: Make) -> None:
    job = cluster(2, slots=1)
    program = "echo up; until [ -e go ]; do sleep 0.02; done"
    job.start_all("sh", "-c", program, launcher="plain")
    until(lambda: all("up" in job.out(rank) for rank in range(2)), "both up")
    second = {
        "ENTRYPOINT_HOSTS": job.hosts.replace("node-0=127.0.0.2", "other=127.0.0.9"),
        "ENTRYPOINT_NODE_RANK": "0",
        "ENTRYPOINT_RUN_DIR": str(job.folder / "other"),
        "ENTRYPOINT_TIMEOUTS_PEERS": "2",
    }
    job.start(2, "true", env=second, launcher="plain")
    assert job.processes[2].wait() == 69, job.both()
    assert (
        "1 of 1 peers did not answer within 2s | worker-1 (node-1, busy with an attempt)"
        in job.err(2)
    ), job.both()
    (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0, 2: 69}, job.both()


@pytest.mark.promise(
    "a node wakes for heartbeats alone once its ranks run",
    control="the same test with a heartbeat of a second",
)
@pytest.mark.parametrize("heartbeat", [100, 1])
def test_a_waiting_node_wakes_for_heartbeats_alone(cluster: Make, heartbeat: int) -> None:
    """As the kernel counts how often it slept; control: a heartbeat of a second."""
    job = cluster(2, slots=1)
    program = ("sh", "-c", "touch up.$RANK; exec sleep 600")
    job.start_all(*program, env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": str(heartbeat)})
    until(lambda: all((job.folder / f"up.{rank}").exists() for rank in (0, 1)), "all up")

    def slept() -> list[int]:
        files = (Path(f"/proc/{job.processes[rank].pid}/status") for rank in (0, 1))
        counts = [
            re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", file.read_text(), re.M)
            for file in files
        ]
        return [int(count) for (count,) in counts]

    def woken(seconds: float) -> list[int]:
        before = slept()
        passed(seconds)
        return [now - then for now, then in zip(slept(), before, strict=True)]

    if heartbeat == 1:
        until(lambda: min(woken(3)) >= 10, "heartbeats")
    else:
        until(lambda: woken(1) == [0, 0], "the end of what the start has left to do")
        assert max(woken(3)) <= 3
    job.signal(0, signal.SIGTERM)
    job.ends()
