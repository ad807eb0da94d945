"""Launchers that start a program on every node by itself: one verdict for all, by the roll call."""

from __future__ import annotations

import signal

import pytest

from tests.cluster import Cluster, Make, until


def start(job: Cluster, program: str) -> None:
    job.start_all("sh", "-c", program, launcher="plain")


def test_all_end_together_when_the_last_has_ended_well(cluster: Make) -> None:
    job = cluster(2)
    start(job, "[ $NODE = 0 ] || sleep 1.5; echo node $NODE is done")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    done = [line for rank in (0, 1) for line in job.err(rank).splitlines() if " done: " in line]
    assert done == [
        f"[entrypoint worker-{rank}] done: sh exited with 0 on all 2 nodes" for rank in (0, 1)
    ]
    assert [job.out(rank) for rank in range(2)] == ["node 0 is done\n", "node 1 is done\n"]
    assert job.survivors() == []


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize(
    ("program", "status", "how"),
    [("exit 7", 7, "exited with 7"), ("kill -9 $$", 137, "was ended by SIGKILL (137)")],
)
def test_the_first_failing_node_is_the_job_s_result(
    cluster: Make, node: int, program: str, status: int, how: str
) -> None:
    job = cluster(2)
    start(job, f"[ $NODE = {node} ] || sleep 300; {program}")
    assert job.ends() == {0: status, 1: status}, job.both()
    assert all(
        f" on worker-{node} (node-{node}) {how}; exit {status}" in job.err(rank)
        for rank in range(2)
    ), job.both()
    assert job.survivors() == []


@pytest.mark.promise("without mpirun too, a 1 gives way to the failure that caused it")
@pytest.mark.parametrize("last", ["exit 7", "sleep 300", "exit 0"])
def test_a_1_that_may_be_the_consequence_waits_for_its_cause(cluster: Make, last: str) -> None:
    job = cluster(2)
    start(job, f"[ $NODE = 0 ] || exit 1; sleep 0.7; {last}")
    wanted = 7 if last == "exit 7" else 1
    assert job.ends() == {0: wanted, 1: wanted}, job.both()
    node = 0 if wanted == 7 else 1
    where = f" on worker-{node} (node-{node}) exited with {wanted}; exit {wanted}"
    assert where in job.err(1), job.both()


@pytest.mark.parametrize("node", [0, 1])
def test_sigterm_to_one_node_gives_143_to_all_and_what_a_program_started_its_grace(
    cluster: Make, node: int
) -> None:
    job = cluster(2)
    # The program leaves at once, and its child is still saving; another child has a session of its
    # own.
    child = "trap 'sleep 1; echo saved; exit' TERM; echo up; while :; do sleep 0.1; done"
    start(
        job,
        f'(setsid sh -c "{child}") & sh -c "{child}" & trap "exit 0" TERM; while :; do sleep 0.1;'
        " done",
    )
    until(lambda: job.out(0).count("up") == 2 and job.out(1).count("up") == 2, 60, "all up")
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert [job.out(rank).count("saved") for rank in range(2)] == [2, 2], job.both()
    assert job.survivors() == []


@pytest.mark.parametrize("launcher", ["mpirun", "plain"])
def test_nothing_that_was_printed_before_the_end_is_lost(cluster: Make, launcher: str) -> None:
    """`tee` ends after its program, and was killed as soon as the last rank had ended: lines were
    missing in both."""
    job = cluster(2)
    logs = [job.folder / f"log-{number}" for number in range(4 if launcher == "mpirun" else 2)]
    name = "${OMPI_COMM_WORLD_RANK:-$NODE}"
    # A busy machine, or a slow disk: it begins to read when its program has ended.
    script = (
        f'exec > >(sleep 0.3; exec tee "{job.folder}/log-{name}") 2>&1; seq -f "{name} %05g" 5000'
    )
    job.start_all("bash", "-c", script, launcher=launcher)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert {log.name: log.stat().st_size for log in logs} == {
        log.name: 5000 * len("0 00001\n") for log in logs
    }
    # Ranks' lines may come in pieces, and Open MPI's terminals end them with one byte more.
    printed = (job.out(0) + job.out(1)).replace("\r", "")
    assert len(printed) == len(logs) * 5000 * len("0 00001\n")


def test_ranks_that_say_much_before_they_fail_are_heard_out_at_once(cluster: Make) -> None:
    """mpirun's daemon stops listening at the first failing rank; the others waited for it until the
    grace was over."""
    job = cluster(2)
    job.start_all("bash", "-c", "head -c 400000 /dev/zero | tr '\\0' x; exit 7")
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert job.out(0).count("x") == 4 * 400000
    assert "not all programs stopped" not in job.err(0)
