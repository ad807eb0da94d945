"""One process a card, by the rank table: two nodes of two simulated cards each, their entrypoints
and sshd real."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from shlex import split

import pytest

from entrypoint.job.failure import ended
from tests.cluster import RUN, Cluster, Make, until

SHOW = 'echo "$RANK_ID $RANK_SIZE $DEVICE_ID $ASCEND_DEVICE_ID $JOB_ID $HCCL_CONNECT_TIMEOUT"'
SAVES = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"


def table(nodes: int = 2, status: str = "completed") -> str:
    """As ModelArts writes it: pods in no order, the tenth after the ninth."""
    pods = [
        {
            "pod_name": f"job-worker-{9 + node}",
            "server_id": f"127.0.0.{node + 2}",
            "devices": [
                {"device_id": str(card), "device_ip": f"10.0.{node}.{card + 1}"}
                for card in range(2)
            ],
        }
        for node in reversed(range(nodes))
    ]
    group = {
        "group_name": "job-worker",
        "device_count": str(2 * nodes),
        "instance_count": str(nodes),
    }
    return json.dumps(
        {"status": status, "group_count": "1", "group_list": [{**group, "instance_list": pods}]}
        if nodes
        else {}
    )


def start(job: Cluster, *command: str, file: str | None = None, **env: str) -> None:
    path = file or str(job.folder / "config")
    for rank in reversed(range(job.nodes)):
        own = {
            "ENTRYPOINT_SIMULATE_ASCEND": "2",
            "ENTRYPOINT_SLOTS": "(unset)",
            "ENTRYPOINT_LOG_DIR": str(job.folder / f"log-{rank}"),
            "POD_NAME": f"job-worker-{9 + rank}",
            "RANK_TABLE_FILE": path,
            **env,
        }
        job.start(rank, env=own, argv=(*RUN, "--", *command))


def mount(job: Cluster, text: str) -> Path:
    """The rank table where the platform puts it: a directory with a file in it."""
    folder = job.folder / "config"
    folder.mkdir(exist_ok=True)
    (folder / "jobstart_hccl.json").write_text(text)
    return folder / "jobstart_hccl.json"


def test_every_card_has_its_process_its_rank_and_its_log(cluster: Make) -> None:
    job = cluster(2)
    mount(job, table())
    start(
        job,
        "sh",
        "-c",
        f'{SHOW}; cat "$RANK_TABLE_FILE"; [ -d "$ASCEND_PROCESS_LOG_PATH" ] && [ ! -L'
        ' "$RANK_TABLE_FILE" ]',
    )
    assert job.ends() == {0: 0, 1: 0}, job.both()
    for node in range(2):
        for card in range(2):
            rank = 2 * node + card
            words = f"{rank} 4 {card} {card} job 1800"
            assert f"[rank {rank}] {words}\n" in job.out(node), job.both()
            log = job.folder / f"log-{node}" / f"job-proc-rank-{rank}-device-{card}.txt"
            first, _, given = log.read_text().partition("\n")
            assert first == words
            written = json.loads(given)
            assert (written["version"], written["status"]) == ("1.0", "completed")
            assert [server["server_id"] for server in written["server_list"]] == [
                "127.0.0.2",
                "127.0.0.3",
            ]
    assert job.survivors() == []


def test_a_table_that_is_completed_in_three_writes_is_waited_for(cluster: Make) -> None:
    job = cluster(2)
    text = table()
    path = job.folder / "config" / "jobstart_hccl.json"
    start(job, "sh", "-c", SHOW)
    hint = "it is not there yet; where nobody writes one, set ENTRYPOINT_ASCEND_RANK_TABLE=none) "
    until(lambda: hint in job.err(0), 60, "a word about the missing table")
    for written in (
        '{"status": "initializing"}',
        text[: len(text) // 3],
        text[: 2 * len(text) // 3],
    ):
        mount(job, written)
        # Several looks of half a second.
        with pytest.raises(AssertionError):
            until(
                lambda: any(process.poll() is not None for process in job.processes.values()),
                1.3,
                "an end",
            )
    path.write_text(text)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    assert sorted(re.findall(r"\[rank (\d)\] \1 4", job.out(0) + job.out(1))) == split("0 1 2 3")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            None,
            "it is not there yet; where nobody writes one, set ENTRYPOINT_ASCEND_RANK_TABLE=none",
        ),
        ("", "it is empty"),
        (
            table(0, "initializing").replace("{}", '{"status": "initializing"}'),
            'its status is "initializing"',
        ),
    ],
)
def test_a_table_that_stays_incomplete_ends_the_job_at_the_deadline(
    cluster: Make, text: str | None, seen: str
) -> None:
    job = cluster(2)
    if text is not None:
        mount(job, text)
    start(job, "true", ENTRYPOINT_TIMEOUTS_PEERS="3", file=str(job.folder / "config") + "/")
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert seen in job.err(0), job.both()


def test_a_table_of_another_job_is_named(cluster: Make) -> None:
    job = cluster(2)
    mount(job, table(3))
    start(job, "true")
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert "is of another job than this | it has 3 nodes, this job 2" in job.err(0)


def test_a_bad_table_is_named_at_once(cluster: Make) -> None:
    job = cluster(2)
    mount(job, table().replace('"10.0.1.2"', '"10.0.0.1"'))
    start(job, "true")
    ends = job.ends()
    assert ends == {0: 65, 1: 65} or ends == {0: 78, 1: 78}, job.both()
    assert "10.0.0.1" in job.err(0), job.both()


@pytest.mark.parametrize(("rank", "program", "status"), [(3, "exit 7", 7), (0, "kill -9 $$", 137)])
def test_the_first_failing_card_ends_the_others(
    cluster: Make, rank: int, program: str, status: int
) -> None:
    job = cluster(2)
    mount(job, table())
    others_are_up = 'until [ "$(ls up-* 2>/dev/null | wc -l)" = 3 ]; do sleep 0.05; done'
    fails = f"[ $RANK_ID = {rank} ] && {{ {others_are_up}; echo why >&2; {program}; }}"
    start(job, "sh", "-c", f"{fails}; {SAVES.replace('echo up', 'echo up; touch up-$RANK_ID')}")
    assert job.ends() == {0: status, 1: status}, job.both()
    assert (job.out(0) + job.out(1)).count("saved") == 3, job.both()
    host = f"rank {rank} on worker-{rank // 2} (node-{rank // 2})"
    assert f"last 1 line of {host}:\n" in job.err(0), job.both()
    last = f" {ended(host, status)}; exit {status}\n"
    assert all(last in job.err(node) for node in range(2)), job.both()
    assert job.err(0).count("| why") == 1, job.both()
    assert job.survivors() == []


@pytest.mark.parametrize("node", [0, 1])
def test_sigterm_is_143_and_every_card_may_save(cluster: Make, node: int) -> None:
    job = cluster(2)
    mount(job, table())
    start(job, "sh", "-c", SAVES)
    until(lambda: (job.out(0) + job.out(1)).count("up") == 4, 60, "four ranks")
    job.signal(node, signal.SIGTERM)
    assert job.ends() == {0: 143, 1: 143}, job.both()
    assert (job.out(0) + job.out(1)).count("saved") == 4, job.both()
    assert job.survivors() == []


def test_one_node_by_the_same_command(cluster: Make) -> None:
    job = cluster(1)
    mount(job, table(1))
    start(job, "sh", "-c", SHOW, ENTRYPOINT_SECRET="(unset)")
    assert job.ends() == {0: 0}, job.both()
    assert sorted(job.out(0).splitlines()) == [
        "[rank 0] 0 2 0 0 job 1800",
        "[rank 1] 1 2 1 1 job 1800",
    ]
