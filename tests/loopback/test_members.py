"""What one node knows, all are told: failures of its own, who leaves and who comes again, who freezes, who leads."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import pytest

from tests.cluster import Cluster

Make = Callable[..., Cluster]
RUN = (sys.executable, "-m", "entrypoint", "run")


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
def test_a_log_folder_that_cannot_be_made_on_a_worker_ends_all(cluster: Make, launcher: str) -> None:
    job = cluster(2, slots=1)
    (job.folder / "file").touch()
    table = rank_table(job)
    for rank, logs in ((1, "file/log"), (0, "log")):
        env = {
            "ENTRYPOINT_LOG_DIR": str(job.folder / logs),
            "ENTRYPOINT_SIMULATE_ASCEND": "1",
            "ENTRYPOINT_TIMEOUTS_PEERS": "8",
            "RANK_TABLE_FILE": table,
            "MA_CURRENT_IP": f"127.0.0.{rank + 2}",
        }
        job.start(rank, env=env, argv=(*RUN, "--launcher", launcher, "--", "python", "-c", "pass"))
    begun = time.monotonic()
    assert job.ends() == {0: 73, 1: 73}, job.both()
    assert time.monotonic() - begun < 8, job.both()
    why = f"cannot write {job.folder}/file/log | Not a directory"
    assert all(why in job.err(rank).splitlines()[-1] for rank in range(2)), job.both()
    assert "node-1" in job.err(0).splitlines()[-1], job.both()


def test_a_worker_that_is_not_in_the_rank_table_ends_all(cluster: Make) -> None:
    job = cluster(2, slots=1)
    table = rank_table(job)
    for rank, address in ((1, "127.0.0.9"), (0, "127.0.0.2")):
        env = {
            "ENTRYPOINT_SIMULATE_ASCEND": "1",
            "ENTRYPOINT_TIMEOUTS_PEERS": "8",
            "RANK_TABLE_FILE": table,
            "MA_CURRENT_IP": address,
        }
        job.start(rank, env=env, argv=(*RUN, "--launcher", "ascend", "--", "sleep", "30"))
    begun = time.monotonic()
    assert job.ends() == {0: 78, 1: 78}, job.both()
    assert time.monotonic() - begun < 8, job.both()
    assert "node-1" in job.err(0).splitlines()[-1], job.both()
