"""What one node knows, all are told: failures of its own, who leaves and who comes again, who
freezes, who leads."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split

import pytest

from tests.cluster import RUN, Cluster, Make, until


def passed(seconds: float) -> None:
    """Let time pass, where time itself is what is tried."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, seconds + 5, "time")


# -- a node's own failure, after the leader has called it


def rank_table(job: Cluster) -> str:
    """One card on each of two nodes."""
    servers = [
        {
            "server_id": f"127.0.0.{node + 2}",
            "device": [{"device_id": "0", "device_ip": f"10.0.{node}.1", "rank_id": str(node)}],
        }
        for node in range(2)
    ]
    path = job.folder / "jobstart_hccl.json"
    whole = {"version": "1.0", "server_count": "2", "status": "completed", "server_list": servers}
    path.write_text(json.dumps(whole))
    return str(path)


@pytest.mark.parametrize("launcher", ["ascend", "msrun"])
def test_a_log_folder_that_cannot_be_made_on_a_worker_ends_all(
    cluster: Make, launcher: str
) -> None:
    job = cluster(2, slots=1)
    (job.folder / "file").touch()
    table = rank_table(job)
    for rank, logs in ((1, "file/log"), (0, "log")):
        env = {
            "ENTRYPOINT_LOG_DIR": str(job.folder / logs),
            "ENTRYPOINT_SIMULATE_ASCEND": "1",
            "ENTRYPOINT_TIMEOUTS_PEERS": "600",
            "RANK_TABLE_FILE": table,
            "MA_CURRENT_IP": f"127.0.0.{rank + 2}",
        }
        job.start(rank, "python", "-c", "pass", env=env, launcher=launcher)
    assert job.ends() == {0: 73, 1: 73}, job.both()
    why = f"EP410 cannot write {job.folder}/file/log | Not a directory"
    assert all(why in job.err(rank).splitlines()[-1] for rank in range(2)), job.both()
    assert "ENTRYPOINT_LOG_DIR" in job.err(1).splitlines()[-1], job.both()
    assert "node-1" in job.err(0).splitlines()[-1], job.both()


def test_a_worker_that_is_not_in_the_rank_table_ends_all(cluster: Make) -> None:
    job = cluster(2, slots=1)
    table = rank_table(job)
    for rank, address in ((1, "127.0.0.9"), (0, "127.0.0.2")):
        env = {
            "ENTRYPOINT_SIMULATE_ASCEND": "1",
            "ENTRYPOINT_TIMEOUTS_PEERS": "600",
            "RANK_TABLE_FILE": table,
            "MA_CURRENT_IP": address,
        }
        job.start(rank, "sleep", "600", env=env, launcher="ascend")
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "node-1" in job.err(0).splitlines()[-1], job.both()


@pytest.mark.promise("a node that cannot write its files tells the others")
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_whose_run_directory_takes_no_files_tells_all(cluster: Make, node: int) -> None:
    job = cluster(3, slots=1)
    (job.folder / "file").touch()
    for rank in range(3):
        env = {"ENTRYPOINT_RUN_DIR": str(job.folder / "file/run")} if rank == node else {}
        job.start(rank, "true", env=env)
    assert job.ends() == {0: 73, 1: 73, 2: 73}, job.both()
    why = f"EP410 cannot write {job.folder}/file/run | File exists | "
    assert all(
        why in job.err(rank) and f" on worker-{node} (node-{node}); exit 73" in job.err(rank)
        for rank in range(3)
    ), job.both()
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
@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("inodes", [4, 6, 9, 11])
@pytest.mark.parametrize("late", [False, True], ids=["checked", "taken after the check"])
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
    # of 4 even the check finds too few
    assert ("/room " in job.err(node)) is not (late and inodes > 4)
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


def test_who_leaves_before_the_start_is_waited_for_again(cluster: Make) -> None:
    job = cluster(3, slots=1)
    for rank in (1, 0):
        job.start(rank, "sh", "-c", "echo up $NODE")
    for rank in (1, 0):
        until(
            lambda: "waiting for 1 of 2 peers: worker-2 (node-2" in job.err(0), 60, "all but node-2"
        )
        job.signal(rank, signal.SIGTERM)
        assert job.processes[rank].wait(60) == 143, job.both()
        passed(0.3)
        assert job.processes[1 - rank].poll() is None, job.both()
        job.start(rank, "sh", "-c", "echo up $NODE")
    job.start(2, "sh", "-c", "echo up $NODE")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    assert sorted(job.out(0).split()) == ["0", "1", "2", "up", "up", "up"]


@pytest.mark.promise("a stop between two attempts ends every node with 143")
def test_a_stop_between_two_attempts_is_everybody_s(cluster: Make) -> None:
    """The session of the first attempt is closed on the nodes that are stopped, and that of the
    second not yet open. Nobody waits for the node that is lost."""
    job = cluster(3, slots=1)
    words = (*RUN, *split("--launcher mpirun --restarts 1 -- sh -c"), "echo up; exec sleep 600")
    for rank in range(3):
        job.start(rank, argv=words, env={"ENTRYPOINT_TIMEOUTS_GRACE": "1"})
    until(lambda: sum(job.out(rank).count("up") for rank in range(3)) == 3, 60, "all up")
    job.signal(2, signal.SIGKILL)
    job.processes[2].wait()
    for rank in (0, 1):
        until(lambda at=rank: "starting again" in job.err(at), 60, "the end of the first attempt")
        job.signal(rank, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143, 2: -signal.SIGKILL}, job.both()


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


def test_two_nodes_that_both_lead_notice_it(cluster: Make) -> None:
    job = cluster(2, slots=1)
    names = job.hosts.split(",")
    for rank in range(2):
        hosts = ",".join(names if rank == 0 else reversed(names))
        job.start(rank, "true", env={"ENTRYPOINT_HOSTS": hosts, "ENTRYPOINT_NODE_RANK": "0"})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    one, other = "worker-0 (node-0) has node-0, node-1; ", "worker-0 (node-1) has node-1, node-0; "
    for rank in range(2):
        assert "EP504 two nodes act as worker-0 | " in job.err(rank), job.both()
        assert one in job.err(rank), job.both()
        assert other in job.err(rank), job.both()


def test_two_nodes_with_the_first_index_and_the_same_hosts_notice_it(cluster: Make) -> None:
    job = cluster(2, slots=1)
    for rank, hosts in enumerate(
        ("node-0=127.0.0.2,node-1=127.0.0.3", "node-0=127.0.0.3,node-1=127.0.0.2")
    ):
        job.start(rank, "true", env={"ENTRYPOINT_HOSTS": hosts, "ENTRYPOINT_NODE_RANK": "0"})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    words = "EP504 two nodes act as worker-0 | both have index 0 of node-0, node-1 | "
    assert all(words in job.err(rank) for rank in range(2)), job.both()


def test_a_leader_that_finds_itself_at_a_worker_s_address_calls_again(cluster: Make) -> None:
    """As where a name server still gives it an earlier Pod's address: only if that stays is it a
    mistake."""
    job = cluster(2, slots=1)
    # it listens on all addresses
    job.start(0, "true", env={"ENTRYPOINT_HOSTS": "127.0.0.2,127.0.0.3"})
    begun = time.monotonic()
    until(
        lambda: "worker-1 (127.0.0.3, that is worker-0 of this job, at 127.0.0.3)" in job.err(0),
        60,
        "its own answer",
    )
    assert job.ends() == {0: 78}, job.both()
    assert time.monotonic() - begun > 8, job.both()
    assert (
        "EP504 two nodes act as worker-0 | both have index 0 of 127.0.0.2, 127.0.0.3 | "
        in job.err(0)
    )


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
