"""Row 6: somebody wants the job to end."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time

import pytest

from tests.cluster import until
from tests.faults.faultjob import BOTH, HOSTS, NOW, SAVES, STUBBORN, UP, Make, running


@BOTH
@pytest.mark.parametrize("host", ["worker-0", "worker-2"])
@pytest.mark.fault("6", "SIGTERM to {host}: every program is told", bound="1 s")
def test_a_container_is_stopped(make: Make, launcher: str, host: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", SAVES)
    job.up()
    fault = job.kill(host, "TERM")
    assert job.ends() == dict.fromkeys(HOSTS, 143), job.logs()
    # Every one had the three seconds that it needs to save.
    assert set(re.findall(r"(worker-\d) saved", job.logs())) == set(HOSTS), job.logs()
    told = job.times("told at")
    assert set(told) == set(HOSTS), job.logs()
    # torch needs seconds to take itself apart.
    assert job.took(fault) < 3 + 10, job.logs()
    job.within(1, max(told.values()) - fault)


@BOTH
@pytest.mark.fault("6", "SIGINT from worker-0's terminal: every program is told", bound="1 s")
def test_a_terminal_interrupts(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", SAVES, options={"worker-0": ("-it",)})
    job.up()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["docker", "attach", job.boxes["worker-0"]],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as attached:
        os.close(theirs)
        # The engine draws the screen anew once somebody is there; what is typed before that may be
        # lost.
        time.sleep(1)
        fault = time.time()
        os.write(ours, b"\x03")
        assert job.ends() == dict.fromkeys(HOSTS, 130), job.logs()
        attached.terminate()
    os.close(ours)
    assert set(re.findall(r"(worker-\d) saved", job.logs())) == set(HOSTS), job.logs()
    job.within(1, max(job.times("told at").values()) - fault)


@BOTH
@pytest.mark.fault(
    "6", "a second SIGTERM, where programs ignore the first, grace 60 s", bound="5 s"
)
def test_a_second_signal(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", STUBBORN, env={"ENTRYPOINT_TIMEOUTS_GRACE": "60"})
    job.up()
    first = job.kill("worker-0", "TERM")
    # The control: the first alone leaves them their grace.
    until(lambda: time.time() - first > 4, 6, "some of the grace")
    assert all(running(box) for box in job.boxes.values()), job.logs()
    fault = job.kill("worker-0", "TERM")
    assert job.ends() == dict.fromkeys(HOSTS, 143), job.logs()
    job.within(5, job.took(fault))


@pytest.mark.control("a second signal skips the grace")
@BOTH
@pytest.mark.fault("6", "SIGTERM to worker-2, programs need 35 s of a grace of 40 s", bound="40 s")
def test_the_whole_grace(make: Make, launcher: str) -> None:
    job = make(launcher)
    # torch alone would kill them after 30 s.
    saves = SAVES.replace("sleep 3", "sleep 35")
    job.start("sh", "-c", saves, env={"ENTRYPOINT_TIMEOUTS_GRACE": "40"})
    job.up()
    fault = job.kill("worker-2", "TERM")
    assert job.ends(80) == dict.fromkeys(HOSTS, 143), job.logs()
    assert set(re.findall(r"(worker-\d) saved", job.logs())) == set(HOSTS), job.logs()
    job.within(40, job.took(fault))


@BOTH
@pytest.mark.fault("6", "docker stop, where programs need no time", bound="5 s")
def test_docker_stop(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", f"{UP}echo now {NOW}; exec sleep 1000")
    job.up()
    fault = job.stop("worker-1")
    assert job.ends() == dict.fromkeys(HOSTS, 143), job.logs()
    job.within(5, job.took(fault))
