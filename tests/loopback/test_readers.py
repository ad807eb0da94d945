"""Readers of the job's output: one that leaves, one that never reads, and a job that fails with
much on its way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from tests.cluster import Cluster, Make

RUN = (sys.executable, "-m", "entrypoint", "run", "--launcher", "mpirun", "--")


def leader(
    job: Cluster, stdout: int, stderr: int, *program: str, **env: str
) -> subprocess.Popen[bytes]:
    """worker-0 with these streams."""
    for name in ("out-0", "err-0"):
        (job.folder / name).touch()
    started = subprocess.Popen(
        [*RUN, *program], env=job.environment(0, env), stdout=stdout, stderr=stderr, cwd=job.folder,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    job.processes[0] = started
    return started


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
@pytest.mark.parametrize("status", [0, 7])
def test_the_reader_of_stdout_leaves(status: int, cluster: Make) -> None:
    """As `| head -1`: the program's own end, and who left is named."""
    job = cluster(nodes=2, slots=2)
    program = ("sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do seq 2000; sleep 0.1; done; exit {status}")
    job.start(1, *program)
    reading, writing = os.pipe()
    with (job.folder / "err").open("wb") as err:
        leader(job, writing, err.fileno(), *program)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    assert job.ends() == {0: status, 1: status}, (job.folder / "err").read_text()
    said = (job.folder / "err").read_text()
    assert said.count("EP627 nobody reads stdout any more") == 1, said


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_stderr_that_is_full_holds_up_nobody(cluster: Make) -> None:
    """mpirun would wait for a reader with a warning of its own, and no rank would start."""
    job = cluster(nodes=2, slots=1)
    job.start(1, "echo", "up")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while os.write(writing, b"x" * 4096):
            pass
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    bad = "-mca plm_base_verbose 5"  # mpirun's own words
    with (job.folder / "out").open("wb") as out:
        leader(job, out.fileno(), writing, "echo", "up", OPENMPI_EXTRA_ARGS=bad)
    assert job.ends() == {0: 0, 1: 0}
    assert (job.folder / "out").read_text() == "up\nup\n"
    os.close(reading)
    os.close(writing)


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
@pytest.mark.parametrize(
    "how", [{"ENTRYPOINT_LOGS_PREFIX": "{rank} "}, {}], ids=["prefix", "plain"]
)
def test_a_rank_that_fails_after_much_output(how: dict[str, str], cluster: Make) -> None:
    """All of it comes, though the reader takes longer for it than any deadline of the end is."""
    job = cluster(nodes=2, slots=1)
    lines = 120_000
    code = f"""
import os, sys
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
for number in range({lines} * rank):
    sys.stdout.write("%d %s\\n" % (number, "x" * 90))
sys.stdout.flush()
os._exit(7 * rank) if rank else __import__("time").sleep(60)
"""
    program = (sys.executable, "-c", code)
    job.start(1, *program, env=how)
    reading, writing = os.pipe()
    with (job.folder / "err").open("wb") as err:
        leader(job, writing, err.fileno(), *program, **how)
    os.close(writing)
    taken, slow = bytearray(), 0.03  # 64 KiB each time: 5 s for all
    while data := os.read(reading, 65536):
        taken += data
        time.sleep(slow)
    assert set(job.ends().values()) == {7}
    numbers = re.findall(rb"(?m)^(?:1 )?(\d+) x{90}$", bytes(taken))
    assert list(map(int, numbers)) == list(range(lines)), (job.folder / "err").read_text()


@pytest.mark.promise("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_reader_that_pauses_while_a_rank_fails(cluster: Make) -> None:
    """mpirun has all of it meanwhile, and loses it with the daemon of a node that has left."""
    job = cluster(nodes=2, slots=1)
    code = "import os, time; os.write(1, b'line\\n' * 400000)"
    code += "; os._exit(7) if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else time.sleep(60)"
    program = (sys.executable, "-c", code)
    job.start(1, *program)
    reading, writing = os.pipe()
    with (job.folder / "err").open("wb") as err:
        leader(job, writing, err.fileno(), *program)
    os.close(writing)
    taken = len(os.read(reading, 65536))
    time.sleep(8)
    while data := os.read(reading, 65536):
        taken += len(data)
    assert set(job.ends().values()) == {7}
    assert taken == 2 * 5 * 400_000, (job.folder / "err").read_text()


@pytest.mark.control("a failing job passes on all output, and a stuck reader ends nothing")
def test_a_reader_that_stops_is_given_up_and_what_is_lost_is_said(cluster: Make) -> None:
    job = cluster(nodes=2, slots=1)
    code = "import os, time; os.environ['OMPI_COMM_WORLD_RANK'] == '1' or time.sleep(60)"
    code += "; os.write(1, b'line\\n' * 200000); os._exit(7)"
    program = (sys.executable, "-c", code)
    grace = {"ENTRYPOINT_TIMEOUTS_GRACE": "5"}
    job.start(1, *program, env=grace)
    reading, writing = os.pipe()
    with (job.folder / "err").open("wb") as err:
        leader(job, writing, err.fileno(), *program, **grace)
    os.close(writing)
    assert set(job.ends().values()) == {7}
    said = (job.folder / "err").read_text()
    found = re.search(r"EP628 .* (\d+) bytes", said)
    assert found, said
    os.close(reading)
