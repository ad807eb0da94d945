"""Rows 8 to 10: who does not come, who comes late or again, and an sshd that dies."""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

import pytest

from tests.cluster import until
from tests.containers import docker, engine, finished_at, inspect, remove, started_at
from tests.faults.faultjob import BOTH, HOSTS, TRAINS, UP, Job, Make

DONE = f"{UP}echo done"
PACKAGE = "/opt/entrypoint/lib/python3.11/site-packages/entrypoint"


def passed(seconds: float) -> None:
    """Let time pass, where time itself is what is tried."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, seconds + 5, "time")


@BOTH
@pytest.mark.fault("8", "absent, silent, refusing; deadline 6 s", bound="deadline + 2 s")
def test_each_bad_host_is_named(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.hosts.append("worker-4")
    env = {"ENTRYPOINT_HOSTS": ",".join(job.hosts), "ENTRYPOINT_TIMEOUTS_PEERS": "6"}
    # worker-1 never starts; worker-2 has no sshd; worker-3 has another key; worker-4 is well.
    job.start(
        "-c", "exec sleep 100", hosts=["worker-2"], env=env, options={"": ("--entrypoint", "sh")}
    )
    # Nobody can tell worker-3, which does not take us for its own: it leaves at its own deadline,
    # here a later one.
    other = {"ENTRYPOINT_SECRET": secrets.token_hex(32), "ENTRYPOINT_TIMEOUTS_PEERS": "10"}
    job.start("sh", "-c", TRAINS, hosts=["worker-3"], env={**env, **other})
    job.start("sh", "-c", TRAINS, hosts=["worker-0", "worker-4"], env=env)
    assert job.ends(30, ["worker-0", "worker-3", "worker-4"]) == {
        f"worker-{rank}": 69 for rank in (0, 3, 4)
    }, job.logs()
    line = job.last_line("worker-0")
    assert (
        "3 of 4 peers did not answer within 6s | worker-1 (no DNS), worker-2 (nothing listens there yet), worker-3"
        " (another host key at " in line
    )
    assert line.partition("] ")[2] == job.last_line("worker-4").partition("] ")[2], job.logs()
    job.within(
        6 + 2,
        max(
            finished_at(job.boxes[host]) - started_at(job.boxes[host])
            for host in ("worker-0", "worker-4")
        ),
    )


@BOTH
@pytest.mark.fault("8", "two with another key, one absent: all are named", bound="10 s + 2 s")
def test_another_key(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start(
        "sh",
        "-c",
        TRAINS,
        hosts=["worker-2", "worker-3"],
        env={"ENTRYPOINT_SECRET": secrets.token_hex(32)},
    )
    job.start("sh", "-c", TRAINS, hosts=["worker-0"])
    # Ten seconds, since an old container at a stale address is no reason to give up; then it will
    # not heal.
    assert job.ends(30, ["worker-0"]) == {"worker-0": 77}, job.logs()
    line = job.last_line("worker-0")
    # Whichever of the two it was, the other is named beside it.
    named = re.search(
        r"worker-([23]) is not of this job \| another host key at \S+; also missing: (.*) \|"
        r" give all",
        line,
    )
    assert named, job.logs()
    assert "worker-1 (no DNS)" in named[2]
    assert f"worker-{5 - int(named[1])} (another host key at " in named[2]
    job.within(10 + 2, finished_at(job.boxes["worker-0"]) - started_at(job.boxes["worker-0"]))


@BOTH
@pytest.mark.fault("8", "worker-2 has another toolkit: at once", bound="5 s")
def test_another_toolkit(make: Make, launcher: str, folder: Path) -> None:
    job = make(launcher)
    other = folder / "__init__.py"
    other.write_text('"""Another one."""\n__version__ = "0.0.1"\n')
    compiled = folder / "compiled"
    compiled.mkdir(mode=0o755)
    mount = (
        "-v",
        f"{other}:{PACKAGE}/__init__.py:ro",
        "-v",
        f"{compiled}:{PACKAGE}/__pycache__:ro",
    )
    job.start("sh", "-c", TRAINS, options={"worker-2": mount})
    assert job.ends(30) == dict.fromkeys(HOSTS, 78), job.logs()
    for host in HOSTS:
        assert "EP504 the nodes disagree on toolkit | worker-2 has 0.0.1; " in job.last_line(
            host
        ), job.logs()
    job.within(
        5,
        max(finished_at(box) for box in job.boxes.values())
        - max(map(started_at, job.boxes.values())),
    )


@pytest.mark.fault(
    "8", "worker-1 and worker-2 have another MPI major: at once", bound="5 s", launcher="mpirun"
)
def test_another_mpi(make: Make, folder: Path) -> None:
    job = make("mpirun")
    other = folder / "mpirun"
    other.write_text('#!/bin/sh\necho "mpirun (Open MPI) 5.0.7"\n')
    other.chmod(0o755)
    mount = ("-v", f"{other}:/usr/bin/mpirun:ro", "-v", f"{other}:/usr/bin/prted:ro")
    job.start("sh", "-c", TRAINS, options={"worker-1": mount, "worker-2": mount})
    assert job.ends(30) == dict.fromkeys(HOSTS, 78), job.logs()
    for host in HOSTS:
        line = job.last_line(host)
        assert "EP450 the nodes have different Open MPI majors" in line, job.logs()
        assert "worker-1 has 5.0.7" in line, job.logs()
        assert "worker-2 has 5.0.7" in line, job.logs()
    job.within(
        5,
        max(finished_at(box) for box in job.boxes.values())
        - max(map(started_at, job.boxes.values())),
    )


# -- row 9: it boots all the same.

LATE = 20.0  # seconds
BOOTED = 30.0  # seconds that torch may need on few cores; nothing here waits that long


def boots(job: Job, fault: float) -> None:
    assert job.ends(60) == dict.fromkeys(HOSTS, 0), job.logs()
    assert "all 4 nodes are here" in job.log("worker-0")
    assert "done" in job.logs()
    job.within(BOOTED, min(finished_at(box) for box in job.boxes.values()) - fault)


@BOTH
@pytest.mark.parametrize("late", ["worker-0", "worker-3"])
@pytest.mark.fault("9", "{late} starts 20 s after the others", bound="30 s")
def test_who_comes_late(make: Make, launcher: str, late: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", DONE, hosts=[host for host in HOSTS if host != late])
    passed(LATE)
    job.start("sh", "-c", DONE, hosts=[late])
    boots(job, started_at(job.boxes[late]))


@BOTH
@pytest.mark.fault("9", "the others start 20 s after worker-0", bound="30 s")
def test_the_leader_waits(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", DONE, hosts=["worker-0"])
    passed(LATE)
    job.start("sh", "-c", DONE, hosts=HOSTS[1:])
    boots(job, started_at(job.boxes["worker-1"]))


@BOTH
@pytest.mark.fault("9", "worker-3 runs, and DNS knows it 20 s later", bound="30 s")
def test_dns_comes_late(make: Make, launcher: str, network: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", DONE, options={"worker-3": ("--network", network)})
    job.says("worker-0", "worker-3 (no DNS)")
    passed(LATE)
    engine().networks.get(job.network).connect(job.boxes["worker-3"], aliases=["worker-3"])
    # What it had before is not where the others are.
    engine().networks.get(network).disconnect(job.boxes["worker-3"])
    boots(job, time.time())


@BOTH
@pytest.mark.fault(
    "9",
    "worker-3's address changes while worker-2 is waited for, heartbeat timeout 3 s",
    bound="30 s",
)
def test_an_address_changes(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start(
        "sh",
        "-c",
        DONE,
        hosts=["worker-0", "worker-1", "worker-3"],
        env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"},
    )
    job.says("worker-0", "waiting for 1 of 3 peers: worker-2 (")
    before = address(job, "worker-3")
    job.cut_off("worker-3")
    # Somebody else may have the old one meanwhile.
    job.boxes["another"] = docker(
        "run", "-d", "--network", job.network, "--entrypoint", "sleep", job.image, "100"
    ).strip()
    engine().networks.get(job.network).connect(job.boxes["worker-3"], aliases=["worker-3"])
    assert address(job, "worker-3") != before
    passed(5)
    job.start("sh", "-c", DONE, hosts=["worker-2"], env={"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"})
    remove(job.boxes.pop("another"))
    boots(job, started_at(job.boxes["worker-2"]))


def address(job: Job, host: str) -> str:
    return str(inspect(job.boxes[host])["NetworkSettings"]["Networks"][job.network]["IPAddress"])


@BOTH
@pytest.mark.fault("9", "worker-3 is replaced while worker-2 is waited for", bound="30 s")
def test_a_worker_is_replaced(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", DONE, hosts=["worker-0", "worker-1", "worker-3"])
    job.says("worker-0", "waiting for 1 of 3 peers: worker-2 (")
    remove(job.boxes.pop("worker-3"))
    job.start("sh", "-c", DONE, hosts=["worker-3"])
    job.start("sh", "-c", DONE, hosts=["worker-2"])
    boots(job, started_at(job.boxes["worker-2"]))


# -- row 10

SSHD = "sshd: /usr/sbin/sshd"


@BOTH
@pytest.mark.parametrize("host", ["worker-0", "worker-2"])
@pytest.mark.fault("10", "{host}'s sshd is killed while all train", bound="5 s")
def test_sshd_dies(make: Make, launcher: str, host: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", TRAINS)
    job.up()
    fault = job.kill_inside(host, SSHD)
    assert job.ends() == dict.fromkeys(HOSTS, 71), job.logs()
    for each in HOSTS:
        assert "sshd died | it exited with -9" in job.last_line(each), job.logs()
        assert host == "worker-0" or "worker-2: EP433 sshd died" in job.last_line(each), job.logs()
    job.within(5, job.took(fault))


@BOTH
@pytest.mark.parametrize("host", ["worker-0", "worker-2"])
@pytest.mark.fault("10", "{host}'s sshd is killed while worker-3 is waited for", bound="5 s")
def test_sshd_dies_while_waiting(make: Make, launcher: str, host: str) -> None:
    job = make(launcher)
    there = HOSTS[:3]
    job.start("sh", "-c", TRAINS, hosts=there)
    job.says("worker-0", "waiting for 1 of 3 peers: worker-3 (")
    fault = job.kill_inside(host, SSHD)
    assert job.ends() == dict.fromkeys(there, 71), job.logs()
    for each in there:
        assert "sshd died | it exited with -9" in job.last_line(each), job.logs()
    job.within(5, job.took(fault))
