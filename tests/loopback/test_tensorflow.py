"""Parameter servers never end by themselves: the workers' end is the job's. TensorFlow itself:
`make test-all`."""

from __future__ import annotations

import json

import pytest

from tests.cluster import Cluster, Make, free_port

SERVES = "echo serving; while :; do sleep 0.05; done"
# The flags come after the script: $0 is it.
ROLE = 'case "$*" in *"--job_name ps"*) {server};; *) {worker};; esac'


def start(job: Cluster, worker: str, server: str = SERVES) -> int:
    """Returns the workers' port; that of the servers follows it."""
    script = job.folder / "train.sh"
    script.write_text(ROLE.format(worker=worker, server=server) + "\n")
    port = free_port(2)  # another test may have the default ones
    settings = {"ENTRYPOINT_TENSORFLOW_PS": "1", "ENTRYPOINT_TIMEOUTS_GRACE": "1.5"}
    settings["ENTRYPOINT_PORT"] = str(port)
    job.start_all("sh", str(script), "mine", env=settings, launcher="tensorflow")
    return port


def test_the_job_ends_with_its_workers(cluster: Make) -> None:
    job = cluster(3, slots=1)
    port = start(job, 'sleep 0.5; echo "$* | $TF_CONFIG"')
    hosts = [f"127.0.0.2:{port}", f"127.0.0.3:{port}"]
    server = f"127.0.0.4:{port + 1}"
    assert job.ends() == {0: 0, 1: 0, 2: 0}, job.both()
    for rank in range(2):
        flags, _, config = job.out(rank).partition(" | ")
        assert flags == (
            f"--task_index {rank} --ps_hosts {server} --worker_hosts {','.join(hosts)}"
            " --job_name worker mine"
        )
        assert json.loads(config) == {
            "cluster": {"worker": hosts, "ps": [server]},
            "task": {"type": "worker", "index": rank},
        }
    assert job.out(2) == "serving\n"
    assert "[entrypoint ps-0]" in job.err(2)
    assert job.survivors() == []


@pytest.mark.parametrize(("server", "status"), [("exit 3", 3), ("exit 0", 0)])
def test_a_server_that_fails_fails_the_job_and_one_that_just_ends_does_not(
    cluster: Make, server: str, status: int
) -> None:
    job = cluster(2, slots=1)
    start(job, "sleep 1; echo trained", server)
    assert job.ends() == {0: status, 1: status}, job.both()
    assert ("trained" in job.out(0)) == (status == 0)
