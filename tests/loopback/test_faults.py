"""What goes wrong, and what every node makes of it: one verdict, the right status, nothing left
behind."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from entrypoint.system import proc
from tests.cluster import RUN, Cluster, Make, skip_with_open_mpi_5
from tests.process.bench import Process
from tests.staged import memory_limit
from tests.waits import until

# Says that it is up, saves when it is told to stop, and needs a second for it.
SAVES = (
    'trap "sleep 1; echo saved $OMPI_COMM_WORLD_RANK; exit 0" TERM; echo up; while :; do sleep 0.1;'
    " done"
)


def all_up(job: Cluster) -> None:
    until(lambda: job.out(0).count("up") == job.nodes * job.slots, "every rank up")


def child(job: Cluster, node: int, *names: str) -> int:
    """The process of one of these names that a node's keeper has started."""
    below = proc.below(job.processes[node].pid)
    return next(pid for pid, name, _ in below if name in names)


@pytest.mark.promise("all nodes exit with the status of the first rank that failed on its own")
def test_the_first_failing_rank_is_the_job_s_result_on_every_node(cluster: Make) -> None:
    """It is named once, with its last lines."""
    job = cluster(3)
    fails = 'seq 1 50; echo "why it failed" >&2; exit 7'
    job.start_all("sh", "-c", f"[ $OMPI_COMM_WORLD_RANK = 3 ] || exec sleep 600; {fails}")
    assert job.ends() == {0: 7, 1: 7, 2: 7}, job.both()
    last = "EP600 rank 3 on worker-1 (node-1) exited with 7; exit 7\n"
    assert all(job.err(rank).endswith(last) for rank in range(3)), job.both()
    head, _, tail = job.err(0).partition("last 20 lines of rank 3 on worker-1 (node-1):\n")
    assert tail, job.both()
    lines = [line.partition("  | ")[2] for line in tail.splitlines()[:20]]
    assert sorted(lines) == sorted([*map(str, range(32, 51)), "why it failed"])
    assert "last 20 lines" not in head + job.err(1)
    assert job.survivors() == []


@pytest.mark.promise(
    "without mpirun too, a 1 gives way to the failure that caused it",
    control="its case in which nothing else fails",
)
@pytest.mark.parametrize("last", ["exit 7", "sleep 600"])
def test_a_1_that_may_be_the_consequence_waits_for_its_cause(cluster: Make, last: str) -> None:
    job = cluster(2)
    program = f"[ $NODE = 0 ] || exit 1; sleep 0.7; {last}"
    job.start_all("sh", "-c", program, launcher="plain")
    wanted = 7 if last == "exit 7" else 1
    assert job.ends() == {0: wanted, 1: wanted}, job.both()
    node = 0 if wanted == 7 else 1
    where = f" on worker-{node} (node-{node}) exited with {wanted}; exit {wanted}"
    assert where in job.err(1), job.both()


@pytest.mark.promise("a stop gives every program SIGTERM, then the grace, then SIGKILL")
@pytest.mark.control("a second signal skips the grace")
def test_sigterm_gives_every_rank_the_grace_and_143_everywhere(cluster: Make) -> None:
    skip_with_open_mpi_5("it drops what ranks print after SIGTERM, which EP628 says")
    job = cluster(2)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    job.signal(1, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert sorted(line for line in job.out(0).splitlines() if "saved" in line) == [
        f"saved {rank}" for rank in range(4)
    ]
    assert job.survivors() == []


@pytest.mark.promise("a lost or frozen node ends the job with 75 within the heartbeat timeout")
def test_a_node_that_falls_silent_is_lost_after_the_heartbeat_timeout(cluster: Make) -> None:
    """A leader that does: test_members.py."""
    job = cluster(2)
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "2", "ENTRYPOINT_TIMEOUTS_GRACE": "1"}
    job.start_all("sh", "-c", SAVES, env=env)
    all_up(job)
    job.signal(1, signal.SIGSTOP)
    until(lambda: job.processes[0].poll() is not None, "the leader's end")
    assert job.processes[0].returncode == 75, job.both()
    assert "EP602 worker-1 (node-1) is lost: nothing heard of it for" in job.err(0)
    job.signal(1, signal.SIGKILL)


@pytest.mark.promise(
    "a leader that was suspended while the job ends has the status of the others",
    control="the mutation `a leader that is cut off keeps its outcome`",
)
def test_a_leader_that_is_suspended_while_all_stop_ends_as_the_others(
    cluster: Make, tmp_path: Path
) -> None:
    """It was told to stop, and nobody else has heard why."""
    job = cluster(2)
    told = f"touch {tmp_path}/told.$OMPI_COMM_WORLD_RANK; sleep 4; exit 0"
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "4"}
    job.start_all("sh", "-c", f'trap "{told}" TERM; echo up; while :; do sleep 0.1; done', env=env)
    all_up(job)
    job.signal(0, signal.SIGTERM)
    until(lambda: len([*tmp_path.glob("told.*")]) == job.nodes * job.slots, "every rank told")
    job.signal(0, signal.SIGSTOP)
    until(lambda: job.processes[1].poll() is not None, "the worker's end")
    job.signal(0, signal.SIGCONT)
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert "EP603 worker-0 (node-0) was suspended for" in job.err(0), job.both()
    assert "it was ending: EP611 the job was ended by SIGTERM" in job.err(0)
    assert job.survivors() == []


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


def test_an_sshd_that_dies_is_never_silent(cluster: Make) -> None:
    job = cluster(2)
    job.start_all("sh", "-c", SAVES)
    all_up(job)
    os.kill(child(job, 1, "sshd"), signal.SIGKILL)
    assert job.ends() == {0: 71, 1: 71}, job.both()
    assert "sshd died | it exited with -9" in job.err(0)
    assert "sshd died" in job.err(1)


@pytest.mark.promise("a launcher that starts too few ranks is no success")
def test_an_mpirun_that_is_told_to_start_too_few_ranks_is_no_success(cluster: Make) -> None:
    skip_with_open_mpi_5("of two -np it takes the first")
    job = cluster(2, slots=1)
    job.start_all("true", env={"OPENMPI_EXTRA_ARGS": "-np 1"})
    assert job.ends() == {0: 78, 1: 78}, job.both()
    seen = "1 of 2 ranks | 1 rank on 1 node: worker-0 (node-0) 0 | -np is 2 by "
    assert f"EP606 mpirun exited with 0 and has started {seen}" in job.err(1), job.both()


@pytest.mark.promise("a dead login or daemon of mpirun is named at once")
def test_a_daemon_that_is_killed_is_named_at_once_with_its_node(cluster: Make) -> None:
    skip_with_open_mpi_5("its daemon is no child of the entrypoint")
    job = cluster(3, slots=1)
    job.start_all("sh", "-c", SAVES.replace("sleep 1;", ""))
    all_up(job)
    os.kill(child(job, 1, "orted", "prted"), signal.SIGKILL)
    assert job.ends() == {0: 75, 1: 75, 2: 75}, job.both()
    words = (
        "EP608 mpirun's daemon orted on worker-1 (node-1) exited with 137 (128 + SIGKILL); exit 75"
    )
    assert all(words in job.err(node) for node in range(3)), job.both()
    assert job.survivors() == []


def test_a_limit_on_processes_that_keeps_ranks_from_starting_is_named(cluster: Make) -> None:
    version_1 = Path("/sys/fs/cgroup/pids")
    job = cluster(2, slots=4)
    group = (version_1 if version_1.is_dir() else version_1.parent) / job.folder.name
    try:
        group.mkdir()
        (group / "pids.max").write_text("6")
    except OSError as error:
        pytest.skip(f"no cgroup of our own can be made here: {error}")
    command = ("sh", "-c", "sleep 600")
    entrypoint = (*RUN, "--launcher", "mpirun", "--", *command)
    try:
        job.start(
            1, argv=("sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh", *entrypoint)
        )
        job.start(0, *command)
        until(lambda: "has reached all nodes" in job.err(1), "the start")
        assert job.ends() == {0: 75, 1: 75}, job.both()
        # The first that is refused may be a rank, the daemon, or a thread of the entrypoint.
        words = (
            r"EP609 (worker-1 \(node-1\) cannot start its ranks|cannot start another (process|thread)):"
            " the container's limit of 6 processes was reached, raise --pids-limit; exit 75"
        )
        assert all(re.search(words, job.err(node)) for node in range(2)), job.both()
    finally:
        job.close()
        until(lambda: (group / "cgroup.procs").read_text() == "", "the end of the last process")
        group.rmdir()


def test_a_container_that_is_killed_as_a_whole_has_told_how_full_its_memory_was(
    cluster: Make,
) -> None:
    """As by memory.oom.group: no process is left there that could say why."""
    job = cluster(2, slots=1)
    program = "import time; x = b'x' * (64 << 20); print('up', flush=True); time.sleep(600)"
    fills = (sys.executable, "-c", program)
    beat, grace = "ENTRYPOINT_TIMEOUTS_HEARTBEAT", "ENTRYPOINT_TIMEOUTS_GRACE"
    with memory_limit(1 << 30) as group:
        if group is None:
            pytest.skip("no cgroup of our own can be made here")
        enters = f'echo $$ >{group}/cgroup.procs; exec "$@"'
        argv = (*RUN, "--launcher", "plain", "--", *fills)
        job.start(1, argv=("sh", "-c", enters, "sh", *argv), env={beat: "2"})
        job.start(0, *fills, launcher="plain", env={beat: "2", grace: "1"})
        until(lambda: "up" in job.out(1), "the memory's use")
        _leave_little(group)
        time.sleep(3.0)  # who has not answered in this time is lost
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        assert job.ends() == {0: 75, 1: -signal.SIGKILL}, job.both()
    words = (
        r"EP602 worker-1 \(node-1\) is lost: its session ended, last message \d\.\ds before; its"
        r" container used (\d+)(\.\d)? MiB of (\d+)(\.\d)? MiB at its last answer, \d\.\ds before; exit 75"
    )
    found = re.search(words, job.err(0))
    assert found, job.both()
    assert 64 <= int(found[1]) <= int(found[3]) < 1000


def _leave_little(group: Path) -> None:
    """Let a cgroup have little more memory than it uses."""
    is_new = (group / "memory.max").exists()
    use, limit = ("memory.current", "memory.max")
    if not is_new:
        use, limit = ("memory.usage_in_bytes", "memory.limit_in_bytes")
    stat = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
    cache = int(stat["inactive_file" if is_new else "total_inactive_file"])
    used = int((group / use).read_text()) - cache
    (group / limit).write_text(str(used + used // 20))


def test_a_peer_with_another_secret_is_not_of_this_job(cluster: Make) -> None:
    job = cluster(2)
    own = {"ENTRYPOINT_SECRET": secrets.token_hex(32), "ENTRYPOINT_TIMEOUTS_PEERS": "14"}
    job.start(1, "hostname", env=own)
    job.start(0, "hostname")
    assert job.ends() == {0: 77, 1: 69}, job.both()
    rejected = "EP503 worker-1 (node-1) does not belong to this job | another host key at 127.0.0.3"
    assert rejected in job.err(0)
    assert "worker-0 (node-0, someone called, not with this job's keys" in job.err(1)
    last = r"EP501 worker-0 \(node-0\) did not call within 14s \| .*; \d+ logins refused \| give"
    assert re.search(last, job.err(1).splitlines()[-1])


@pytest.mark.promise("nodes that know different lists of hosts end with 78 and show what differs")
def test_hosts_that_differ_in_the_worker_s_own_name_are_shown_on_all_nodes(cluster: Make) -> None:
    """The keys do not depend on the list, so that the nodes can tell each other."""
    job = cluster(3)
    hosts = "node-0=127.0.0.2,node-2=127.0.0.4,node-1=127.0.0.3"
    seen = (
        "worker-2 (node-1) has node-0, node-2, node-1; worker-0 (node-0) has node-0, node-1,"
        " node-2; they first differ in entry 1: node-2, node-1"
    )
    job.start(1, "hostname", env={"ENTRYPOINT_HOSTS": hosts, "ENTRYPOINT_NODE_RANK": "2"})
    job.start(0, "hostname")
    job.start(2, "hostname")
    assert job.ends() == {0: 78, 1: 78, 2: 78}, job.both()
    assert all("EP504" in job.err(rank) and seen in job.err(rank) for rank in range(3)), job.both()


@pytest.mark.control("nodes that know different lists of hosts end with 78 and show what differs")
def test_an_address_that_is_stale_for_a_while_costs_nothing_but_time(cluster: Make) -> None:
    """The leader finds another node of the job at a worker's address, until the right one has
    it."""
    job = cluster(3)
    swapped = {
        "ENTRYPOINT_HOSTS": "node-0=127.0.0.2,node-1=127.0.0.4,node-2=127.0.0.3",
        "ENTRYPOINT_NODE_RANK": "2",
    }
    job.start(1, "hostname", env=swapped)
    job.start(0, "hostname")
    job.start(2, "hostname")
    found = "worker-1 (node-1, that is worker-2 of this job, at 127.0.0.3)"
    until(lambda: found in job.err(0), "what is seen meanwhile")
    job.signal(1, signal.SIGTERM)
    assert job.processes.pop(1).wait() == 143, job.both()
    job.start(1, "hostname")
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()


def test_sigusr1_reaches_every_rank_and_ends_nobody(cluster: Make) -> None:
    """As Slurm sends it, to have a job save; to all nodes at once it is one signal. All of ours
    outlive it."""
    job = cluster(2)
    notes = 'note() { echo "$1 $NODE" >>notes; }'
    program = (
        f"{notes}; trap 'note usr1' USR1; trap 'note usr2; exit 0' USR2; note up; while :; do sleep"
        " 0.05; done"
    )
    job.start_all("sh", "-c", program)

    def noted(what: str) -> bool:
        path = job.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [lines.count(f"{what} {node}") for node in (0, 1)] == [2, 2]

    until(lambda: noted("up"), "all up")
    job.signal(1, signal.SIGUSR1)
    until(lambda: noted("usr1"), "SIGUSR1 everywhere")
    assert "SIGUSR1 of worker-1 (node-1): passed on to the ranks of every node" in job.err(0)
    for rank in (0, 1):
        job.signal(rank, signal.SIGUSR2)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert noted("usr1"), "once each"
    assert noted("usr2")
    assert len(re.findall(r"SIGUSR2 of worker-. \(node-.\): passed on", job.err(0))) == 1


PRINTS_MUCH = """\
import os, signal, sys, time
def save(*_):
    for number in range(26):
        print("saves", number, "x" * 6000, flush=True)
        time.sleep(0.05)
    open(sys.argv[1], "a").write("saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
os.write(1, b"up\\n")  # a handler may not print while a print is interrupted
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
    until(lambda: job.out().count("up\n") == 3, "all ranks")
    job.signal(1, signal.SIGKILL)
    assert job.ends() == {0: 75, 1: -signal.SIGKILL, 2: 75}, job.both()
    for rank in (0, 2):
        assert "worker-1 (node-1) is lost: " in job.err(rank)
        assert "nothing heard of it for" not in job.err(rank), "its silence is not awaited"
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
    with Process([sys.executable, str(script), str(saved)], stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == b"up\n"
        program.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(3)
        assert not saved.exists()
        program.stdout.read()
    assert saved.read_text() == "saved\n"
