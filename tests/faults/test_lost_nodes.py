"""Rows 1 to 3: a container is killed, cut off or frozen while all train."""

from __future__ import annotations

import time

import pytest

from tests.cluster import until
from tests.faults.faultjob import BOTH, HOSTS, SAVES, TRAINS, Job, Make, running

SHORT = {"ENTRYPOINT_TIMEOUTS_HEARTBEAT": "3"}


def training(make: Make, launcher: str, program: str = TRAINS, **env: str) -> Job:
    job = make(launcher)
    job.start("sh", "-c", program, env=env)
    job.up()
    return job


def survivors(lost: str) -> list[str]:
    return [host for host in HOSTS if host != lost]


def all_say(job: Job, words: str, hosts: list[str]) -> None:
    for host in hosts:
        assert words in job.last_line(host), job.logs()


@BOTH
@pytest.mark.fault("1", "a worker is killed", bound="5 s")
def test_a_worker_is_killed(make: Make, launcher: str) -> None:
    job = training(make, launcher)
    fault = job.kill("worker-2")
    assert job.ends() == {**dict.fromkeys(HOSTS, 75), "worker-2": 137}, job.logs()
    all_say(job, "EP602 worker-2 is lost: its session ended, last message ", survivors("worker-2"))
    job.within(5, job.took(fault))


@BOTH
@pytest.mark.fault("2", "worker-0 is killed", bound="5 s")
def test_worker_0_is_killed(make: Make, launcher: str) -> None:
    job = training(make, launcher)
    fault = job.kill("worker-0")
    assert job.ends() == {**dict.fromkeys(HOSTS, 75), "worker-0": 137}, job.logs()
    all_say(job, "EP602 worker-0 is lost: its session ended", survivors("worker-0"))
    job.within(5, job.took(fault))


@pytest.mark.control("a lost or frozen node ends the job with 75 within the heartbeat timeout")
@pytest.mark.fault(
    "1", "the control: a worker is killed, and there is no roll call", launcher="torchrun"
)
def test_without_a_roll_call_the_others_stay(make: Make) -> None:
    job = make("torchrun", nodes=2)
    job.start("sh", "-c", TRAINS, env={"ENTRYPOINT_ROLL_CALL": "none", "ENTRYPOINT_SECRET": ""})
    job.up()
    fault = job.kill("worker-1")
    until(lambda: time.time() - fault > 8, 10, "more time than the bound")
    assert running(job.boxes["worker-0"]), job.logs()


@BOTH
@pytest.mark.parametrize("lost", ["worker-2", "worker-0"])
@pytest.mark.fault("3", "{lost} is cut off, heartbeat timeout 3 s", bound="timeout + 5 s")
def test_a_node_is_cut_off(make: Make, launcher: str, lost: str) -> None:
    job = training(make, launcher, **SHORT)
    fault = job.cut_off(lost)
    assert job.ends() == dict.fromkeys(HOSTS, 75), job.logs()
    all_say(job, f"EP602 {lost} is lost: nothing heard of it for ", survivors(lost))
    # On the other side of the cut it is the others who are lost; a worker knows of worker-0 alone.
    all_say(job, " is lost: nothing heard of it for ", [lost])
    job.within(3 + 5, job.took(fault))


@BOTH
@pytest.mark.parametrize("lost", ["worker-2", "worker-0"])
@pytest.mark.fault("3", "{lost} is paused, heartbeat timeout 3 s", bound="timeout + 5 s")
def test_a_node_is_paused(make: Make, launcher: str, lost: str) -> None:
    job = training(make, launcher, **SHORT)
    fault = job.pause(lost)
    assert set(job.ends(hosts=survivors(lost)).values()) == {75}, job.logs()
    all_say(job, f"EP602 {lost} is lost: nothing heard of it for ", survivors(lost))
    job.within(3 + 5, job.took(fault, survivors(lost)))
    # Whoever was away, finds that out as soon as it is back; worker-0 says that it was itself away.
    back = job.resume(lost)
    assert job.ends()[lost] == 75, job.logs()
    all_say(
        job, "EP603 worker-0 was suspended for " if lost == "worker-0" else " is lost: ", [lost]
    )
    assert job.took(back, [lost]) < 5


@BOTH
@pytest.mark.fault("3", "worker-2 is cut off, the heartbeat timeout of 15 s", bound="timeout + 5 s")
def test_a_node_is_cut_off_with_the_heartbeat_timeout_as_it_is(make: Make, launcher: str) -> None:
    job = training(make, launcher)
    fault = job.cut_off("worker-2")
    assert job.ends() == dict.fromkeys(HOSTS, 75), job.logs()
    job.within(15 + 5, job.took(fault))


@pytest.mark.control("a lost or frozen node ends the job with 75 within the heartbeat timeout")
@BOTH
@pytest.mark.fault("3", "the control: worker-2 is paused for less than the heartbeat timeout")
def test_a_short_pause_is_no_loss(make: Make, launcher: str) -> None:
    job = training(make, launcher, SAVES, ENTRYPOINT_TIMEOUTS_HEARTBEAT="8")
    fault = job.pause("worker-2")
    until(
        lambda: time.time() - fault > 4,
        6,
        "a pause that a heartbeat timeout of 3 s would not have borne",
    )
    job.resume("worker-2")
    until(lambda: time.time() - fault > 10, 12, "a heartbeat timeout")
    assert all(running(box) for box in job.boxes.values()), job.logs()
    job.kill("worker-0", "TERM")
    assert job.ends() == dict.fromkeys(HOSTS, 143), job.logs()
