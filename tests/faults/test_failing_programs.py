"""Rows 4, 5 and 12: a program fails on one node, is killed for memory, or leaves something
running."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import until
from tests.faults.faultjob import (
    BOTH,
    EATS,
    HOSTS,
    LITTLE,
    NOW,
    SAVES,
    SPENT,
    STUBBORN,
    TRAINS,
    UP,
    Job,
)

Make = Callable[..., Job]


def fails(how: str, others: str = TRAINS) -> str:
    """worker-2 prints 30 lines and fails a moment after all are up; the others train."""
    lines = "for i in $(seq 30); do echo line $i; done; "
    last = f'{UP}sleep 3; {lines}echo "$HOSTNAME fails at {NOW}"; {how}'
    return f'if [ "$HOSTNAME" = worker-2 ]; then {last}; else {others}; fi'


@BOTH
@pytest.mark.parametrize(
    ("how", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -11 $$", 139)]
)
@pytest.mark.fault("4", "the program on worker-2: {how}", bound="3 s")
def test_a_program_fails(make: Make, launcher: str, how: str, status: int) -> None:
    job = make(launcher)
    job.start("sh", "-c", fails(how))
    assert job.ends(120) == dict.fromkeys(HOSTS, status), job.logs()
    named_once(job, launcher, status)
    # whatever limit and peak it would name: row 5 alone says so
    assert SPENT.partition(":")[0] not in job.logs()
    job.within(3, job.took(job.times("fails at")["worker-2"]))


def named_once(job: Job, launcher: str, status: int) -> None:
    """What failed is in every node's last line, its last 20 lines are in worker-0's log alone."""
    who = "rank 2 on worker-2" if launcher == "mpirun" else "rank 2 "
    for host in HOSTS:
        line = job.last_line(host)
        assert who in line, job.logs()
        assert "worker-2" in line.partition("] ")[2], job.logs()
        assert line.endswith(f"; exit {status}"), job.logs()
    log = job.logs()
    assert log.count("last 20 lines of ") == 1, log
    assert "last 20 lines of " in job.log("worker-0")
    shown = re.findall(r"\[entrypoint worker-0\]   \| (.*)", log)
    assert len(shown) == 20, log
    assert shown[:-1] == [f"line {number}" for number in range(12, 31)], log
    assert shown[-1].startswith("worker-2 fails at "), log


@BOTH
@pytest.mark.fault(
    "4", "worker-2 fails, a rank elsewhere ignores TERM, grace 4 s", bound="grace + 3 s"
)
def test_a_program_fails_and_another_does_not_stop(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", fails("exit 7", STUBBORN), env={"ENTRYPOINT_TIMEOUTS_GRACE": "4"})
    assert job.ends(60) == dict.fromkeys(HOSTS, 7), job.logs()
    took = job.took(job.times("fails at")["worker-2"])
    assert took > 4, job.logs()
    job.within(4 + 3, took)


@BOTH
@pytest.mark.fault("4", "worker-2 fails, the others save for 3 s", bound="3 s + what they need")
def test_a_program_fails_and_the_others_save(make: Make, launcher: str, folder: Path) -> None:
    job = make(launcher)
    folder.chmod(0o777)
    # Into a file: mpirun, which tells the others to stop, passes on no more of what they print.
    saves = SAVES.replace("; exit 0", "; : >/saved/$HOSTNAME; exit 0")
    job.start("sh", "-c", fails("exit 7", saves), options={"": ("-v", f"{folder}:/saved")})
    assert job.ends(60) == dict.fromkeys(HOSTS, 7), job.logs()
    assert sorted(path.name for path in folder.iterdir()) == ["worker-0", "worker-1", "worker-3"], (
        job.logs()
    )
    job.within(3 + 3, job.took(job.times("fails at")["worker-2"]))


@pytest.mark.control("all nodes exit with the status of the first rank that failed on its own")
@BOTH
@pytest.mark.fault("4", "the control: nobody fails")
def test_nobody_fails(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", f"{UP}echo done")
    assert job.ends(120) == dict.fromkeys(HOSTS, 0), job.logs()
    assert "last " not in job.logs().replace("last message", ""), job.logs()


@BOTH
@pytest.mark.fault("5", "the program on worker-2 takes more memory than it may", bound="5 s")
def test_a_program_is_killed_for_memory(make: Make, launcher: str) -> None:
    job = make(launcher)
    job.start("sh", "-c", fails(EATS), options={"worker-2": LITTLE})
    assert job.ends(120) == dict.fromkeys(HOSTS, 137), job.logs()
    for host in HOSTS:
        assert SPENT in job.last_line(host), job.logs()
    job.within(5, job.took(job.times("fails at")["worker-2"]))


# Each leaves a process that never ends; it says where it looks for the program's end, and what that
# printed last.
LEFT = {
    "a child that holds stdout": "(sleep 999; echo never) & ",
    "a double-forked daemon": (
        "(setsid sh -c 'sleep 999 & sleep 999' </dev/null >/dev/null 2>&1 &) ; "
    ),
    "a daemon that holds stdout": "(setsid sleep 999 &) ; ",
    "zombies": "for i in 1 2 3; do sh -c 'sleep 0.1 & exec sleep 999' & done; sleep 0.5; ",
}


@BOTH
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.fault("12", "the program leaves {left}", bound="2 s")
def test_a_program_leaves_something(make: Make, launcher: str, left: str) -> None:
    job = make(launcher)
    last = "for i in $(seq 200); do echo word $i; done; "
    program = f'{UP}{LEFT[left]}sleep 2; {last}echo "$HOSTNAME ends at {NOW}"; exit 0'
    # A shell outlives the entrypoint, so that the container does, and what is left there would be
    # seen.
    stays = (
        'trap "exit 0" TERM; entrypoint run -- "$@"; echo "$HOSTNAME has $? at $(date +%s.%N)";'
        " sleep 999 & wait"
    )
    job.start(
        "-c", stays, "sh", "sh", "-c", program, options={"": ("--init", "--entrypoint", "sh")}
    )
    until(
        lambda: len(set(re.findall(r"(worker-\d) has 0 at ", job.logs()))) == 4,
        90,
        "every entrypoint's end",
    )
    for host in HOSTS:
        # docker-init, the shell that stays, and its own sleep, without which there would be nothing
        # to see.
        assert sorted(job.processes(host)) == ["docker-init", "sh", "sleep 999"], job.logs()
    assert len(re.findall(r"word 200\b", job.logs())) == 4, job.logs()
    ends = job.times("ends at")
    assert set(ends) == set(HOSTS), job.logs()
    job.within(2, max(job.times("has 0 at").values()) - max(ends.values()))
