"""Rows 11 and 15: the entrypoint itself is killed, and starts again."""

from __future__ import annotations

import re
import time

import pytest

from tests.cluster import until
from tests.containers import container, kill
from tests.faults.faultjob import BOTH, HOSTS, STUBBORN, TRAINS, UP, Make

ENTRYPOINT = "python3 -I .*/(entrypoint run|image-entry)"
# A shell outlives the entrypoint, so that its container does.
STAYS = (
    'trap "exit 0" TERM; entrypoint run -- "$@"; echo "$HOSTNAME has $? at $(date +%s.%N)"; sleep'
    " 999 & wait"
)
LEFT = ["docker-init", "sh", "sleep 999"]  # the sleep is the control: what is left is seen


@BOTH
@pytest.mark.parametrize("host", ["worker-0", "worker-2"])
@pytest.mark.fault("11", "{host}'s entrypoint is killed, its container stays", bound="5 s")
def test_an_entrypoint_is_killed_and_its_container_stays(
    make: Make, launcher: str, host: str
) -> None:
    job = make(launcher)
    options = ("--init", "--entrypoint", "sh")
    # Here it would not end by itself when its output closes, nor when it is asked to.
    program = f'if [ "$HOSTNAME" = {host} ]; then {STUBBORN}; else {TRAINS}; fi'
    job.start("-c", STAYS, "sh", "sh", "-c", program, options={host: options}, hosts=[host])
    job.start("sh", "-c", program, hosts=[each for each in HOSTS if each != host])
    job.up()
    fault = job.kill_inside(host, ENTRYPOINT)
    until(lambda: sorted(job.processes(host)) == LEFT, 20, "nothing is left there")
    swept = time.time() - fault
    others = [each for each in HOSTS if each != host]
    assert set(job.ends(hosts=others).values()) == {75}, job.logs()
    for each in others:
        assert f"EP602 {host} is lost: its session ended" in job.last_line(each), job.logs()
    assert set(job.times("has 137 at")) == {host}, job.logs()
    job.within(5, max(swept, job.took(fault, others)))


@BOTH
@pytest.mark.parametrize("host", ["worker-0", "worker-2"])
@pytest.mark.fault("11", "{host}'s entrypoint is killed under tini", bound="5 s")
def test_an_entrypoint_is_killed(make: Make, launcher: str, host: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", TRAINS)
    job.up()
    fault = job.kill_inside(host, ENTRYPOINT)
    assert job.ends() == {**dict.fromkeys(HOSTS, 75), host: 137}, job.logs()
    for each in HOSTS:
        assert each == host or f"EP602 {host} is lost: its session ended" in job.last_line(each), (
            job.logs()
        )
    job.within(5, job.took(fault))


# -- row 15


@BOTH
@pytest.mark.fault("15", "the same containers again, after a good end and after a SIGKILL")
def test_the_same_containers_start_again(make: Make, launcher: str) -> None:
    job = make(launcher)
    # The second of three starts is killed: it leaves its run directory behind.
    count = "n=$(cat /tmp/n 2>/dev/null || echo 0); echo $((n + 1)) >/tmp/n; "
    program = f'{count}{UP}[ $n != 1 ] || exec sleep 999; echo "done $n"'
    job.start("sh", "-c", program)
    assert job.ends(90) == dict.fromkeys(HOSTS, 0), job.logs()
    for box in job.boxes.values():
        container(box).start()
    until(lambda: len(re.findall(r"worker-\d is up", job.logs())) == 8, 90, "the second start")
    # one after the other: the last may have seen that the first are lost
    for box in job.boxes.values():
        kill(box)
    assert set(job.ends().values()) <= {137, 75}
    assert list(job.ends().values()).count(137) > 0
    for box in job.boxes.values():
        container(box).start()
    assert job.ends(90) == dict.fromkeys(HOSTS, 0), job.logs()
    assert len(re.findall("done 0", job.logs())) == 4, job.logs()
    assert len(re.findall("done 2", job.logs())) == 4, job.logs()


@BOTH
@pytest.mark.fault("15", "two jobs in the same containers, on two ports")
def test_two_jobs_in_the_same_containers(make: Make, launcher: str) -> None:
    job = make(launcher)
    both = (
        "for n in 0 1; do ENTRYPOINT_SSH_PORT=3700$n ENTRYPOINT_TORCH_PORT=610$n"
        ' ENTRYPOINT_NAME=job-$n entrypoint run -- sh -c "$1; echo done $n; exit $n" & pids+=($!);'
        " done; wait ${pids[0]}; a=$?; wait ${pids[1]}; b=$?; exit $((10 * a + b))"
    )
    # They run at the same time: each waits until the other is there, too.
    there = "[ -e /tmp/here-job-0 ] && [ -e /tmp/here-job-1 ]"
    meet = f"{UP}: >/tmp/here-$ENTRYPOINT_NAME; until {there}; do sleep 0.1; done"
    job.start("-c", both, "sh", meet, options={"": ("--init", "--entrypoint", "bash")})
    assert job.ends(90) == dict.fromkeys(HOSTS, 1), job.logs()
    assert len(re.findall("(?m)^done 0$", job.logs())) == 4, job.logs()
    assert "done 1" in job.logs(), "of a job that fails the first rank alone need have come so far"
