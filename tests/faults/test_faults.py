"""Faults that only a container can have: a network that is taken away, a limit on its memory, DNS, a
terminal of its engine, and what is missing in one image. Each is tried with two nodes, under one
launcher; what follows from a fault is the same under all, and tests/simulation and tests/loopback
have it."""

from __future__ import annotations

import os
import pty
import re
import time

import pytest

from tests.containers import docker, engine, inspect, remove
from tests.faults.faultjob import PAIR, TRAINS, UP, Job, Make
from tests.process.bench import Process

DONE = f"{UP}echo done"
# A program that has something to save when it is told to stop.
SAVES = (
    f"trap 'sleep 1; echo \"$HOSTNAME saved\"; exit 0' TERM INT; {UP}while :; do sleep 0.1; done"
)


@pytest.mark.parametrize(("launcher", "lost"), [("mpirun", "worker-1"), ("torchrun", "worker-0")])
@pytest.mark.fault("3", "{lost} is cut off")
def test_a_node_is_cut_off(make: Make, launcher: str, lost: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", TRAINS, env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"})
    job.up()
    engine().networks.get(job.network).disconnect(job.boxes[lost], force=True)
    assert job.ends() == dict.fromkeys(PAIR, 75), job.logs()
    # On each side of the cut the other is lost.
    for host, other in (PAIR, PAIR[::-1]):
        assert f"EP602 {other} is lost: nothing heard of it for " in job.last_line(host), job.logs()


@pytest.mark.fault("5", "the program on worker-1 takes more memory than its container may")
def test_a_program_is_killed_for_memory(make: Make) -> None:
    job = make("torchrun")
    # Far more than launcher and entrypoint take, so that the program is what the kernel kills.
    program = f'{UP}[ "$HOSTNAME" = worker-0 ] || exec tail /dev/zero; exec sleep 1000'
    limit = ("--memory", "512m", "--memory-swap", "512m")
    job.start("sh", "-c", program, options={"worker-1": limit})
    assert job.ends(120) == dict.fromkeys(PAIR, 137), job.logs()
    for host in PAIR:
        assert "out of memory: limit 512 MiB, peak 512 MiB" in job.last_line(host), job.logs()


@pytest.mark.fault("6", "SIGINT from worker-0's terminal: every program is told")
def test_a_terminal_interrupts(make: Make) -> None:
    job = make("mpirun")
    job.start("sh", "-c", SAVES, options={"worker-0": ("-it",)})
    job.up()
    ours, theirs = pty.openpty()
    with Process(
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
        os.write(ours, b"\x03")
        assert job.ends() == dict.fromkeys(PAIR, 130), job.logs()
        attached.terminate()
    os.close(ours)
    assert set(re.findall(r"(worker-\d) saved", job.logs())) == set(PAIR), job.logs()


@pytest.mark.fault("9", "worker-1 runs, and DNS knows it later", launcher="mpirun")
def test_dns_comes_late(make: Make, network: str) -> None:
    job = make("mpirun")
    job.start("sh", "-c", DONE, options={"worker-1": ("--network", network)})
    job.says("worker-0", "worker-1 (no DNS)")
    connect(job, "worker-1")
    # What it had before is not where the other is.
    engine().networks.get(network).disconnect(job.boxes["worker-1"])
    boots(job)


@pytest.mark.fault("9", "worker-1's address changes while worker-2 is waited for")
def test_an_address_changes(make: Make) -> None:
    job = make("torchrun", nodes=3)
    env = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"}
    job.start("sh", "-c", DONE, hosts=PAIR, env=env)
    job.says("worker-0", "waiting for 1 of 2 peers: worker-2 (")
    before = address(job, "worker-1")
    engine().networks.get(job.network).disconnect(job.boxes["worker-1"], force=True)
    # Somebody else may have the old one meanwhile.
    words = ("run", "-d", "--network", job.network, "--entrypoint", "sleep", job.image, "100")
    job.boxes["another"] = docker(*words).strip()
    connect(job, "worker-1")
    assert address(job, "worker-1") != before
    time.sleep(5)  # longer than the heartbeat timeout
    job.start("sh", "-c", DONE, hosts=["worker-2"], env=env)
    remove(job.boxes.pop("another"))
    boots(job)


def connect(job: Job, host: str) -> None:
    engine().networks.get(job.network).connect(job.boxes[host], aliases=[host])


def address(job: Job, host: str) -> str:
    return str(inspect(job.boxes[host])["NetworkSettings"]["Networks"][job.network]["IPAddress"])


def boots(job: Job) -> None:
    assert job.ends(60) == dict.fromkeys(job.hosts, 0), job.logs()
    assert f"all {len(job.hosts)} nodes are here" in job.log("worker-0")
    assert "done" in job.logs()


# As root, break something; then go on as the image does.
BREAK = (
    'eval "$0"; export HOME=/home/ma-user; exec setpriv --reuid 1000 --regid 100 --clear-groups'
    ' /usr/bin/tini -s -- /usr/local/bin/image-entry "$@"'
)


@pytest.mark.parametrize(
    ("host", "what", "how", "status"),
    [
        ("worker-0", "mpirun", "rm {0}", 127),
        ("worker-1", "orted", "rm {0}; : >{0}", 126),
        ("worker-1", "python", "rm {0}", 127),
    ],
    ids=["mpirun is missing", "orted is not executable", "python is missing"],
)
@pytest.mark.fault("13", "{what} on {host}: {how}", launcher="mpirun")
def test_a_program_is_broken(make: Make, host: str, what: str, how: str, status: int) -> None:
    job = make("mpirun")
    command = ("python", "-c", "import time; time.sleep(1000)")
    options = ("--user", "0", "--entrypoint", "sh")
    broken = how.format(f"/usr/bin/{what}")
    job.start("-c", BREAK, broken, *command, hosts=[host], options={host: options})
    job.start(*command, hosts=[other for other in PAIR if other != host])
    assert job.ends(90) == dict.fromkeys(PAIR, status), job.logs()
    for each in PAIR:
        line = job.last_line(each).partition("] ")[2]
        assert host in line, job.logs()
        assert line.endswith(f"; exit {status}"), job.logs()
    assert what in job.log("worker-0"), job.logs()
