"""Launchers that start a program on every node by itself: one verdict for all, by the roll call."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster, Make


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


@pytest.mark.promise(
    "without mpirun too, a 1 gives way to the failure that caused it",
    control="its case in which nothing else fails",
)
@pytest.mark.parametrize("last", ["exit 7", "sleep 300"])
def test_a_1_that_may_be_the_consequence_waits_for_its_cause(cluster: Make, last: str) -> None:
    job = cluster(2)
    start(job, f"[ $NODE = 0 ] || exit 1; sleep 0.7; {last}")
    wanted = 7 if last == "exit 7" else 1
    assert job.ends() == {0: wanted, 1: wanted}, job.both()
    node = 0 if wanted == 7 else 1
    where = f" on worker-{node} (node-{node}) exited with {wanted}; exit {wanted}"
    assert where in job.err(1), job.both()


def test_nothing_that_was_printed_before_the_end_is_lost(cluster: Make) -> None:
    """`tee` ends after its program."""
    job = cluster(2)
    logs = [job.folder / f"log-{number}" for number in range(4)]
    name = "$OMPI_COMM_WORLD_RANK"
    # A busy machine, or a slow disk: it begins to read when its program has ended.
    script = (
        f'exec > >(sleep 0.3; exec tee "{job.folder}/log-{name}") 2>&1; seq -f "{name} %05g" 5000'
    )
    job.start_all("bash", "-c", script)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert {log.name: log.stat().st_size for log in logs} == {
        log.name: 5000 * len("0 00001\n") for log in logs
    }
    # Ranks' lines may come in pieces, and Open MPI's terminals end them with one byte more.
    printed = (job.out(0) + job.out(1)).replace("\r", "")
    assert len(printed) == len(logs) * 5000 * len("0 00001\n")


def test_ranks_that_say_much_before_they_fail_are_heard_out_at_once(cluster: Make) -> None:
    """mpirun's daemon stops listening at the first failing rank."""
    job = cluster(2)
    job.start_all("bash", "-c", "head -c 400000 /dev/zero | tr '\\0' x; exit 7")
    assert job.ends() == {0: 7, 1: 7}, job.both()
    assert job.out(0).count("x") == 4 * 400000
    assert "not all programs stopped" not in job.err(0)
