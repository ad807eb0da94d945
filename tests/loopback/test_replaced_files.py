"""A rank that replaces the files of the run directory holds no entrypoint up: the node ends as it
would have, in the same memory."""

from __future__ import annotations

import sys

import pytest

from tests.cluster import Cluster, Make

MEMORY = 1 << 20  # KiB of addresses for each process; a node's largest takes 0.3 GiB
OURS = (
    *("sh", "-c", f'ulimit -v {MEMORY}; exec "$0" "$@"'),
    *(sys.executable, "-m", "entrypoint", "run", "--restarts", "1"),
)
# Each rank replaces what is there, and what its supervisor writes after its end.
REPLACE = """\
import os, shutil, sys, time
folder, kind, status = os.environ["RUN_DIR"], sys.argv[1], int(sys.argv[2])
print("step 7", flush=True)
time.sleep(0.5)  # until all is written that a start writes
later = {"step.0", "step.1"}
for name in sorted(set(os.listdir(folder)) | later if kind != "none" else ()):
    path = os.path.join(folder, name)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink("/dev/zero", path)
    elif kind == "folder":
        os.mkdir(path)
        open(path + "/inside", "w").close()
    elif kind == "large":
        with open(path, "wb") as file:
            file.truncate(2 << 30)
time.sleep(1.5)  # a heartbeat, and the record's next write
print("step 8", flush=True)
print("the last line", flush=True)
sys.exit(status)
"""
SETTINGS = {
    "ENTRYPOINT_STALL_LINE": "step {step}",
    "ENTRYPOINT_STALL_ACTION": "warn",
    "ENTRYPOINT_RESTARTS_ON": "any",
    "ENTRYPOINT_LOGS_FORMAT": "json",
    "ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3",
}


def replaced(cluster: Make, launcher: str, kind: str, status: int) -> Cluster:
    """The job, once it has ended with this status on both nodes."""
    job = cluster(2, slots=1)
    script = job.folder / "replace.py"
    script.write_text(REPLACE)
    for node in (1, 0):
        program = ("--launcher", launcher, "--", sys.executable, str(script), kind, str(status))
        where = {"RUN_DIR": str(job.run_dir(node))}
        job.start(node, argv=(*OURS, *program), env={**SETTINGS, **where})
    assert job.ends() == {0: status, 1: status}, job.both()
    return job


@pytest.mark.promise("no file that a rank replaces in the run directory holds its node up")
@pytest.mark.parametrize(
    ("kind", "launcher", "status"),
    [("pipe", "plain", 7), ("link", "mpirun", 7), ("folder", "mpirun", 0), ("large", "plain", 7)],
)
def test_replaced_files(kind: str, launcher: str, status: int, cluster: Make) -> None:
    job = replaced(cluster, launcher, kind, status)
    assert job.survivors() == []
    assert ("the last line" in job.err(0)) == bool(status), "which comes in no file"


@pytest.mark.control("no file that a rank replaces in the run directory holds its node up")
def test_where_nothing_is_replaced_the_last_line_is_shown(cluster: Make) -> None:
    job = replaced(cluster, "plain", "none", 7)
    assert "the last line" in job.err(0)
