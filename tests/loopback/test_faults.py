"""What goes wrong, and what every node makes of it: one verdict, the right status, nothing left
behind."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import RUN, Cluster, Make, until

# Says that it is up, saves when it is told to stop, and needs a second for it.
SAVES = (
    'trap "sleep 1; echo saved $OMPI_COMM_WORLD_RANK; exit 0" TERM; echo up; while :; do sleep 0.1;'
    " done"
)
STUBBORN = 'trap "" TERM; echo up; while :; do sleep 0.1; done'


def all_up(job: Cluster) -> None:
    until(lambda: job.out(0).count("up") == job.nodes * job.slots, 60, "every rank up")


def daemon(job: Cluster, node: int) -> int:
    """The process that mpirun starts the ranks of another node by."""
    pid = job.processes[node].pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(
        int(child)
        for child in children
        if Path(f"/proc/{child}/comm").read_text() in ("orted\n", "prted\n")
    )


@pytest.mark.promise("all nodes exit with the status of the first rank that failed on its own")
@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("exit 7", 7, "rank 3 on worker-1 (node-1) exited with 7"),
        ("kill -9 $$", 137, "rank 3 on worker-1 (node-1) was ended by SIGKILL (137)"),
        ("kill -11 $$", 139, "rank 3 on worker-1 (node-1) was ended by SIGSEGV (139)"),
    ],
)
def test_the_first_failing_rank_is_the_job_s_result_on_every_node(
    cluster: Make, program: str, status: int, words: str
) -> None:
    job = cluster(3)
    # the inner shell is the program, so that it can be killed without its wrapper
    job.start_all(
        "sh", "-c", f"sh -c '[ $OMPI_COMM_WORLD_RANK = 3 ] || sleep 60; {program}'; exit $?"
    )
    assert job.ends() == {0: status, 1: status, 2: status}, job.both()
    assert all(words in job.err(rank) for rank in range(3)), job.both()
    assert job.survivors() == []


def test_a_worker_that_is_killed_stops_the_job_with_75(cluster: Make) -> None:
    job = cluster(3)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    job.signal(2, signal.SIGKILL)
    statuses = job.ends()
    assert statuses == {0: 75, 1: 75, 2: -9}, job.both()
    for rank in (0, 1):
        assert "worker-2 (node-2) is lost: " in job.err(rank)
        assert "nothing heard of it for" not in job.err(rank), "its silence is not awaited"


def test_a_loss_is_told_at_once_and_when_all_are_stopped_already(cluster: Make) -> None:
    """As compose stops every container when one is killed."""
    job = cluster(2)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    job.signal(0, signal.SIGTERM)
    until(lambda: "SIGTERM: stopping" in job.err(0), 60, "the stop")
    job.signal(1, signal.SIGKILL)
    assert job.ends() == {0: 143, 1: -9}, job.both()
    lines = job.err(0).splitlines()
    (told,) = [line for line in lines if "] EP602 worker-1 (node-1) is lost: " in line]
    assert lines.index(told) < len(lines) - 1
    assert lines[-1].endswith("; exit 143")


@pytest.mark.parametrize(("launcher", "stopping"), [("mpirun", False), ("plain", True)])
def test_programs_have_their_grace_when_the_leader_is_killed(
    cluster: Make, launcher: str, stopping: bool
) -> None:
    """Whoever prints may be gone, so each notes it in a file. The leader dies at once, or while all
    are stopping."""
    job = cluster(2, slots=1)
    saves = (
        "trap 'echo told >>told-$NODE; sleep 1; echo saved >saved-$NODE; exit 0' TERM; echo up"
        " >up-$NODE"
    )
    job.start_all("sh", "-c", f"{saves}; while :; do sleep 0.1; done", launcher=launcher)
    until(lambda: all((job.folder / f"up-{node}").exists() for node in (0, 1)), 60, "both up")
    if stopping:
        job.signal(0, signal.SIGTERM)
        until((job.folder / "told-1").exists, 60, "the worker's program is told")
    job.signal(0, signal.SIGKILL)
    assert job.ends() == {0: -9, 1: 75}, job.both()
    assert "worker-0 (node-0) is lost" in job.err(1)
    assert (job.folder / "saved-1").exists(), job.both()


@pytest.mark.promise("a stop gives every program SIGTERM, then the grace, then SIGKILL")
@pytest.mark.parametrize("node", [0, 1])
def test_sigterm_gives_every_rank_the_grace_and_143_everywhere(cluster: Make, node: int) -> None:
    job = cluster(2)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert sorted(line for line in job.out(0).splitlines() if "saved" in line) == [
        f"saved {rank}" for rank in range(4)
    ]
    assert job.survivors() == []


def test_a_grace_longer_than_the_heartbeat_timeout_is_kept(cluster: Make) -> None:
    job = cluster(2)
    slow = SAVES.replace("sleep 1", "sleep 4")
    job.start_all("sh", "-c", slow, env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "1"})
    all_up(job)
    job.signal(0, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert sorted(line for line in job.out(0).splitlines() if "saved" in line) == [
        f"saved {rank}" for rank in range(4)
    ]


@pytest.mark.promise("a lost or frozen node ends the job with 75 within the heartbeat timeout")
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_node_that_falls_silent_is_lost_after_the_heartbeat_timeout(
    cluster: Make, frozen: int
) -> None:
    job = cluster(2)
    job.start_all(
        "sh",
        "-c",
        SAVES,
        env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "2", "ENTRYPOINT_TIMEOUTS_GRACE": "1"},
    )
    all_up(job)
    job.signal(frozen, signal.SIGSTOP)
    other = job.processes[1 - frozen]
    until(lambda: other.poll() is not None, 60, "the other node's end")
    assert other.returncode == 75, job.both()
    assert f"EP602 worker-{frozen} (node-{frozen}) is lost: nothing heard of it for" in job.err(
        1 - frozen
    )
    job.signal(frozen, signal.SIGKILL)


@pytest.mark.promise("a stop gives every program SIGTERM, then the grace, then SIGKILL")
def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(cluster: Make) -> None:
    job = cluster(2)
    job.start_all("sh", "-c", STUBBORN, env={"ENTRYPOINT_TIMEOUTS_GRACE": "2"})
    all_up(job)
    job.signal(0, signal.SIGTERM)
    asked = time.monotonic()
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert max(job.ended_at.values()) - asked >= 2
    assert job.survivors() == []


@pytest.mark.promise("a second signal skips the grace")
@pytest.mark.parametrize("node", [0, 1])
def test_a_second_signal_skips_the_rest_of_the_grace(cluster: Make, node: int) -> None:
    job = cluster(2)
    job.start_all("sh", "-c", STUBBORN)
    all_up(job)
    job.signal(node, signal.SIGTERM)
    until(lambda: "SIGTERM: stopping" in job.err(node), 60, "the first signal heard")
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()


@pytest.mark.promise("no rank starts until every node has answered; missing nodes are named")
def test_missing_peers_are_all_named_at_the_deadline_and_the_others_leave(cluster: Make) -> None:
    job = cluster(4)
    job.start(2, "hostname")
    job.start(0, "hostname", env={"ENTRYPOINT_TIMEOUTS_PEERS": "4"})
    assert job.ends() == {0: 69, 2: 69}, job.both()
    assert (
        "2 of 3 peers did not answer within 4s | worker-1 (node-1, nothing listens there yet), worker-3 (node-3, nothing listens there yet)"
        in job.err(0)
    )


def test_a_worker_whose_leader_never_comes_leaves_at_the_deadline(cluster: Make) -> None:
    job = cluster(2)
    job.start(1, "hostname", env={"ENTRYPOINT_TIMEOUTS_PEERS": "2"})
    assert job.ends() == {1: 69}
    assert (
        "EP501 worker-0 (node-0) did not call within 2s | worker-0 (node-0): it has not called yet"
        in job.err(1)
    )


@pytest.mark.parametrize("node", [0, 1])
def test_an_sshd_that_dies_is_never_silent(cluster: Make, node: int) -> None:
    job = cluster(2)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    children = (
        Path(f"/proc/{job.processes[node].pid}/task/{job.processes[node].pid}/children")
        .read_text()
        .split()
    )
    sshd = next(int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "sshd\n")
    os.kill(sshd, signal.SIGKILL)
    assert job.ends() == {0: 71, 1: 71}, job.both()
    assert "sshd died | it exited with -9" in job.err(0)
    assert "sshd died" in job.err(1)


def test_an_mpirun_that_starts_nothing_is_not_waited_for_for_ever(cluster: Make) -> None:
    job = cluster(2)
    real = shutil.which("mpirun")
    fake = job.folder / "bin/mpirun"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\nexec sleep 600\n')
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    job.start_all("hostname", env={"PATH": path, "ENTRYPOINT_TIMEOUTS_LAUNCH": "2"})
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert (
        "EP605 mpirun has started no rank within 2s | see that the nodes reach each other's ports"
        in job.err(1)
    )


@pytest.mark.promise("a launcher that starts too few ranks is no success")
@pytest.mark.parametrize(
    ("extra", "seen"),
    [
        ("-np 1", "1 of 2 ranks | 1 rank on 1 node: worker-0 (node-0) 0"),
        ("--do-not-launch", "0 of 2 ranks | none ran"),
    ],
)
def test_an_mpirun_that_is_told_to_start_too_few_ranks_is_no_success(
    cluster: Make, extra: str, seen: str
) -> None:
    job = cluster(2, slots=1)
    job.start_all("true", env={"OPENMPI_EXTRA_ARGS": extra})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert f"EP606 mpirun exited with 0 and has started {seen} | -np is 2 by " in job.err(1), (
        job.both()
    )


def test_a_daemon_that_is_frozen_when_every_rank_ends_well_is_not_waited_for(cluster: Make) -> None:
    job = cluster(2, slots=1)
    job.start_all("sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done")
    all_up(job)
    os.kill(daemon(job, 1), signal.SIGSTOP)
    (job.folder / "go").touch()
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert "EP613 mpirun did not end, though every rank did: it is ended" in job.err(0)
    assert job.survivors() == []


@pytest.mark.promise("a dead login or daemon of mpirun is named at once")
def test_a_daemon_that_is_killed_is_named_at_once_with_its_node(cluster: Make) -> None:
    job = cluster(3, slots=1)
    job.start_all("sh", "-c", SAVES.replace("sleep 1;", ""))
    all_up(job)
    os.kill(daemon(job, 1), signal.SIGKILL)
    assert job.ends() == {0: 75, 1: 75, 2: 75}, job.both()
    words = "EP608 mpirun's daemon orted on worker-1 (node-1) was ended by SIGKILL (137); exit 75"
    assert all(words in job.err(node) for node in range(3)), job.both()
    assert job.survivors() == []


@pytest.mark.parametrize("most", [6, 8, 9])
def test_a_limit_on_processes_that_keeps_ranks_from_starting_is_named(
    most: int, cluster: Make
) -> None:
    pids = (
        Path("/sys/fs/cgroup/pids")
        if Path("/sys/fs/cgroup/pids").is_dir()
        else Path("/sys/fs/cgroup")
    )
    job = cluster(2, slots=4)
    group = pids / job.folder.name
    try:
        group.mkdir()
        (group / "pids.max").write_text(f"{most}")
    except OSError as error:
        pytest.skip(f"no cgroup of our own can be made here: {error}")
    command = ("sh", "-c", "sleep 60")
    entrypoint = (*RUN, "--launcher", "mpirun", "--", *command)
    try:
        job.start(
            1, argv=("sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh", *entrypoint)
        )
        job.start(0, *command)
        until(lambda: "has reached all nodes" in job.err(1), 60, "the start")
        assert job.ends() == {0: 75, 1: 75}, job.both()
        # The first that is refused may be a rank, the daemon, or a thread of the entrypoint.
        words = (
            r"EP609 (worker-1 \(node-1\) cannot start its ranks|cannot start another (process|thread)):"
            f" the container's limit of {most} processes was reached, raise --pids-limit; exit 75"
        )
        assert all(re.search(words, job.err(node)) for node in range(2)), job.both()
    finally:
        job.close()
        until(lambda: (group / "cgroup.procs").read_text() == "", 60, "the end of the last process")
        group.rmdir()


def test_a_daemon_of_mpirun_s_that_does_not_start_is_the_infrastructure_s(cluster: Make) -> None:
    """After a good roll call: that node's daemon ends with an error of its own."""
    job = cluster(3, slots=1)
    orted = job.folder / "bin/orted"
    orted.parent.mkdir()
    orted.write_text("#!/bin/sh\necho the daemon is broken >&2\nexit 3\n")
    orted.chmod(0o755)
    for rank in (2, 1, 0):
        job.start(
            rank, "true", env={"PATH": f"{orted.parent}:{os.environ['PATH']}"} if rank == 2 else {}
        )
    assert job.ends() == {0: 75, 1: 75, 2: 75}, job.both()
    words = (
        "EP608 the start of mpirun's daemon failed on worker-2 (node-2) | its shell exited with 3 | see that"
        " node's log; exit 75"
    )
    assert "the daemon is broken" in job.err(2)
    assert all(words in job.err(node) for node in range(3)), job.both()


def test_a_name_without_dns_is_named(cluster: Make) -> None:
    job = cluster(2)
    hosts = {
        "ENTRYPOINT_HOSTS": "node-0=127.0.0.2,no-such-host.invalid",
        "ENTRYPOINT_TIMEOUTS_PEERS": "3",
    }
    job.start(0, "hostname", env=hosts)
    assert job.ends() == {0: 69}
    assert "worker-1 (no-such-host.invalid, no DNS)" in job.err(0)


def test_a_peer_with_another_secret_is_not_of_this_job(cluster: Make) -> None:
    job = cluster(2)
    job.start(
        1,
        "hostname",
        env={"ENTRYPOINT_SECRET": secrets.token_hex(32), "ENTRYPOINT_TIMEOUTS_PEERS": "14"},
    )
    job.start(0, "hostname")
    until(
        lambda: 0 in job.processes and job.processes[0].poll() is not None,
        60,
        "the leader's verdict",
    )
    assert job.processes[0].returncode == 77, job.both()
    assert "EP503 worker-1 (node-1) is not of this job | another host key at 127.0.0.3" in job.err(
        0
    )
    assert "worker-0 (node-0, someone called, not with this job's keys" in job.err(1)
    assert job.processes[1].wait(60) == 69, job.both()
    last = job.err(1).splitlines()[-1]
    assert re.search(
        r"EP501 worker-0 \(node-0\) did not call within 14s \| .*; \d+ logins refused \| give", last
    )


def test_nodes_that_disagree_are_told_how(cluster: Make) -> None:
    job = cluster(2)
    job.start(1, "hostname", env={"ENTRYPOINT_HOSTS": "other=127.0.0.2,node-1=127.0.0.3"})
    job.start(0, "hostname")
    assert job.ends() == {0: 78, 1: 78}, job.both()
    seen = (
        "worker-1 (node-1) has other, node-1; worker-0 (other) has node-0, node-1; they first differ in entry 0: other,"
        " node-0"
    )
    assert f"EP504 the nodes disagree on hosts | {seen} | give all" in job.err(1), job.both()
    assert f"the nodes disagree on hosts | {seen} | give all" in job.err(0), job.both()


@pytest.mark.promise("nodes that know different lists of hosts end with 78 and show what differs")
@pytest.mark.parametrize(
    ("hosts", "me", "seen"),
    [
        (
            ["node-0=127.0.0.2", "node-1.ns.svc=127.0.0.3", "node-2=127.0.0.4"],
            1,
            (
                "worker-1 (node-1.ns.svc) has node-0, node-1.ns.svc, node-2; worker-0 (node-0) has node-0, node-1,"
                " node-2; they first differ in entry 1: node-1.ns.svc, node-1"
            ),
        ),
        (
            ["node-0=127.0.0.2", "Node-1=127.0.0.3", "node-2=127.0.0.4"],
            1,
            "differ in entry 1: Node-1, node-1",
        ),
        (
            ["node-0=127.0.0.2", "node-2=127.0.0.4", "node-1=127.0.0.3"],
            2,
            "differ in entry 1: node-2, node-1",
        ),
        (["node-0=127.0.0.2", "node-1=127.0.0.3"], 1, "differ in entry 2: none, node-2"),
        (
            ["node-0=127.0.0.2", "node-2=127.0.0.4", "node-3=127.0.0.5", "node-1=127.0.0.3"],
            3,
            "differ in entry 1: node-2, node-1",
        ),
    ],
    ids=["a full name", "case", "order", "too few", "too many"],
)
def test_hosts_that_differ_in_the_worker_s_own_name_are_shown_on_all_nodes(
    cluster: Make, hosts: list[str], me: int, seen: str
) -> None:
    """The keys do not depend on the list, so that the nodes can tell each other."""
    job = cluster(3)
    job.start(
        1, "hostname", env={"ENTRYPOINT_HOSTS": ",".join(hosts), "ENTRYPOINT_NODE_RANK": str(me)}
    )
    job.start(0, "hostname")
    job.start(2, "hostname")
    assert job.ends() == {0: 78, 1: 78, 2: 78}, job.both()
    assert all("EP504" in job.err(rank) and seen in job.err(rank) for rank in range(3)), job.both()


def with_a_stale_address(cluster: Make) -> Cluster:
    """Start three nodes, and wait until the leader has found the third at the second's address."""
    job = cluster(3)
    swapped = {
        "ENTRYPOINT_HOSTS": "node-0=127.0.0.2,node-1=127.0.0.4,node-2=127.0.0.3",
        "ENTRYPOINT_NODE_RANK": "2",
    }
    job.start(1, "hostname", env=swapped)
    job.start(0, "hostname")
    job.start(2, "hostname")
    found = "worker-1 (node-1, that is worker-2 of this job, at 127.0.0.3)"
    until(lambda: found in job.err(0), 60, "what is seen meanwhile")
    return job


def test_two_nodes_with_one_index_are_named_once_no_address_can_be_stale(cluster: Make) -> None:
    job = with_a_stale_address(cluster)
    assert job.ends() == {0: 78, 1: 78, 2: 78}, job.both()
    assert all(
        "the nodes disagree on rank | worker-2 (node-2) has 2; worker-0 (node-0) has 1"
        in job.err(rank)
        for rank in range(3)
    )


@pytest.mark.control("nodes that know different lists of hosts end with 78 and show what differs")
def test_an_address_that_is_stale_for_a_while_costs_nothing_but_time(cluster: Make) -> None:
    """The leader finds another node of the job at a worker's address, until the right one has
    it."""
    job = with_a_stale_address(cluster)
    job.signal(1, signal.SIGTERM)
    assert job.processes.pop(1).wait(60) == 143, job.both()
    job.start(1, "hostname")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()


def test_a_log_that_nobody_reads_holds_up_no_node(cluster: Make) -> None:
    """Heartbeats, the start and the end go on, on the leader and on the worker, with a job longer
    than a heartbeat.

    mpirun's own words go elsewhere: it waits for who reads them, and on a busy machine it may warn
    of setpgid.
    """
    job = cluster(2)
    quiet = job.folder / "bin" / "mpirun"
    quiet.parent.mkdir()
    quiet.write_text('#!/bin/sh\nPATH=${PATH#*:}\nexec mpirun "$@" 2>/dev/null\n')
    quiet.chmod(0o755)
    log = job.folder / "log"
    os.mkfifo(log)
    held = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(held, b"x"):
            pass
    words = ("run", "--launcher", "mpirun", "--", "sh", "-c", "sleep 2; echo done")
    for rank in (1, 0):
        argv = ("sh", "-c", f'exec "$@" 2>{log}', "sh", sys.executable, "-m", "entrypoint", *words)
        env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "1", "PATH": f"{quiet.parent}:{os.environ['PATH']}"}
        job.start(rank, argv=argv, env=env)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert job.out() == "done\n" * 4
    os.close(held)


@pytest.mark.parametrize(("launcher", "node"), [("mpirun", 1), ("plain", 0)])
def test_sigusr1_reaches_every_rank_and_ends_nobody(
    cluster: Make, launcher: str, node: int
) -> None:
    """As Slurm sends it, to have a job save; to all nodes at once it is one signal. All of ours
    outlive it."""
    job = cluster(2, slots=2 if launcher == "mpirun" else 1)
    notes = 'note() { echo "$1 $NODE" >>notes; }'
    program = (
        f"{notes}; trap 'note usr1' USR1; trap 'note usr2; exit 0' USR2; note up; while :; do sleep"
        " 0.05; done"
    )
    job.start_all("sh", "-c", program, launcher=launcher)

    def noted(what: str) -> bool:
        path, each = job.folder / "notes", job.slots
        lines = path.read_text().splitlines() if path.exists() else []
        return [lines.count(f"{what} {rank}") for rank in (0, 1)] == [each, each]

    until(lambda: noted("up"), 60, "all up")
    job.signal(node, signal.SIGUSR1)
    until(lambda: noted("usr1"), 60, "SIGUSR1 everywhere")
    words = f"SIGUSR1 of worker-{node} (node-{node}): passed on to the ranks of every node"
    assert words in job.err(0)
    for rank in (0, 1):
        job.signal(rank, signal.SIGUSR2)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert noted("usr1"), "once each"
    assert noted("usr2")
    assert len(re.findall(r"SIGUSR2 of worker-. \(node-.\): passed on", job.err(0))) == 1


PRINTS_MUCH = """\
import signal, sys, time
def save(*_):
    for number in range(26):
        print("saves", number, "x" * 6000, flush=True)
        time.sleep(0.05)
    open(sys.argv[1], "a").write("saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.promise(
    "ranks that print much while they save after the loss of a node are not held up"
)
def test_ranks_that_print_much_save_while_mpirun_ends(cluster: Make) -> None:
    """mpirun ends by itself then, and reads no more, or only a part: which is said."""
    job = cluster(3, slots=1)
    (job.folder / "saves.py").write_text(PRINTS_MUCH)
    saved = job.folder / "saved"
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"}
    job.start_all(sys.executable, str(job.folder / "saves.py"), str(saved), env=env)
    until(lambda: job.out().count("up\n") == 3, 60, "all ranks")
    job.signal(1, signal.SIGKILL)
    assert job.ends() == {0: 75, 1: -signal.SIGKILL, 2: 75}, job.both()
    assert saved.read_text() == "saved\n" * 2
    if job.out().count("saves") < 2 * 26:
        assert "EP628 output of the ranks may be lost, " in job.err(0) + job.err(2)


@pytest.mark.control(
    "ranks that print much while they save after the loss of a node are not held up"
)
def test_such_a_rank_cannot_save_while_nobody_reads(tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(PRINTS_MUCH)
    saved = tmp_path / "saved"
    with subprocess.Popen(
        [sys.executable, str(script), str(saved)], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        program.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(3)
        assert not saved.exists()
        program.stdout.read()
    assert saved.read_text() == "saved\n"
