"""One process a card, by the rank table: two nodes of two simulated cards each, their entrypoints
and sshd real."""

from __future__ import annotations

import json

from tests.cluster import RUN, Cluster, Make
from tests.waits import until

SHOW = 'echo "$RANK_ID $RANK_SIZE $DEVICE_ID $ASCEND_DEVICE_ID $JOB_ID $HCCL_CONNECT_TIMEOUT"'

MISSING = "it is not there yet; where nobody writes one, set ENTRYPOINT_ASCEND_RANK_TABLE=none"


def table() -> str:
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
        for node in (1, 0)
    ]
    group = {"group_name": "job-worker", "device_count": "4", "instance_count": "2"}
    return json.dumps(
        {
            "status": "completed",
            "group_count": "1",
            "group_list": [{**group, "instance_list": pods}],
        }
    )


def start(job: Cluster, *command: str, **env: str) -> None:
    for rank in reversed(range(job.nodes)):
        own = {
            "ENTRYPOINT_SIMULATE_ASCEND": "2",
            "ENTRYPOINT_SLOTS": "(unset)",
            "ENTRYPOINT_LOG_DIR": str(job.folder / f"log-{rank}"),
            "POD_NAME": f"job-worker-{9 + rank}",
            "RANK_TABLE_FILE": str(job.folder / "config"),
            **env,
        }
        job.start(rank, env=own, argv=(*RUN, "--", *command))


def test_every_card_has_its_process_its_rank_and_its_log(cluster: Make) -> None:
    """The rank table comes late, where the platform puts it: a directory with a file in it."""
    job = cluster(2)
    files = (
        'cat "$RANK_TABLE_FILE"; [ -d "$ASCEND_PROCESS_LOG_PATH" ] && [ ! -L "$RANK_TABLE_FILE" ]'
    )
    start(job, "sh", "-c", f"{SHOW}; {files}")
    until(lambda: f"{MISSING}) " in job.err(0), "a word about the missing table")
    folder = job.folder / "config"
    folder.mkdir()
    (folder / "jobstart_hccl.json").write_text(table())
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


def test_a_table_that_stays_incomplete_ends_the_job_at_the_deadline(cluster: Make) -> None:
    job = cluster(2)
    start(job, "true", ENTRYPOINT_TIMEOUTS_PEERS="3")
    assert job.ends() == {0: 75, 1: 75}, job.both()
    assert MISSING in job.err(0), job.both()
