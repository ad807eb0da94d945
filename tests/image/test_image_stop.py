"""Point 3: how a container ends, and what it leaves."""

from __future__ import annotations

import time

import pytest

from tests.containers import container, docker, engine, exit_code, logs
from tests.image.boxes import Pair, run, started
from tests.waits import until

SOON = 5.0  # seconds; docker's own patience is 10
OBEYS = ("sh", "-c", "echo up; exec sleep 1000")
# A program that leaves orphans, which soon end; the last of them says so. It awaits none itself.
ORPHANS = (
    "sh", "-c",
    "for i in 1 2 3 4 5 6; do sh -c 'sleep 0.1 & exit'; done; sh -c '(sleep 0.6; echo up) & exit'; exec sleep 1000",
)  # fmt: skip
ZOMBIES = "cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == \"Z\"' | wc -l"


def stop(box: str, patience: int = 10) -> tuple[int, float]:
    """The status that `docker stop` left, and the seconds it took."""
    begun = time.monotonic()
    container(box).stop(timeout=patience)
    return exit_code(box), time.monotonic() - begun


def up(box: str, times: int = 1) -> None:
    until(lambda: logs(box).count("up\n") == times, "the program is up")


def test_a_stopped_program_ends_soon(image: str) -> None:
    """3.1 docker stop ends a program that obeys well inside 10 s, with 143; STOPSIGNAL is stated"""
    assert engine().images.get(image).attrs["Config"]["StopSignal"] == "SIGTERM"
    with started(image, *OBEYS) as box:
        up(box)
        status, seconds = stop(box)
        assert (status, seconds < SOON) == (143, True)


def test_who_does_not_obey_is_killed(image: str) -> None:
    """3.1, the control: one that does not obey takes all the time that docker stop gives"""
    with started(image, "sh", "-c", "trap : TERM; echo up; while :; do sleep 1; done") as box:
        up(box)
        status, seconds = stop(box, 2)
        assert (status, seconds >= 2) == (137, True)


def test_stopped_ranks_end_soon(image: str) -> None:
    """3.2 so do the ranks of a node"""
    with started(image, *OBEYS, options=("-e", "ENTRYPOINT_SLOTS=2")) as box:
        up(box, 2)
        status, seconds = stop(box)
        assert (status, seconds < SOON) == (143, True), logs(box)


def test_sshd_does_not_keep_a_container(image: str) -> None:
    """3.3 so do two nodes when one of them is stopped: sshd keeps no container alive"""
    with Pair(image) as pair:
        pair.start_both(*OBEYS)
        up(pair.boxes[0], 4)
        status, seconds = stop(pair.boxes[1])
        assert (status, seconds < SOON) == (143, True), pair.logs()
        assert pair.ends() == [143, 143]


@pytest.mark.parametrize("slots", [1, 2])
def test_no_zombies(image: str, slots: int) -> None:
    """3.4 orphans that end leave no zombie while the job runs"""
    with started(image, *ORPHANS, options=("-e", f"ENTRYPOINT_SLOTS={slots}")) as box:
        up(box, slots)
        until(lambda: docker("exec", box, "sh", "-c", ZOMBIES).strip() == "0", "no zombies")


def test_zombies_are_seen(image: str) -> None:
    """3.4, the control: without tini there are some"""
    entrypoint = ("--entrypoint", "/usr/local/bin/image-entry")
    with started(image, *ORPHANS, options=entrypoint) as box:
        up(box)
        assert docker("exec", box, "sh", "-c", ZOMBIES).strip() != "0"


def test_no_survivors(image: str) -> None:
    """3.5 what a rank leaves running ends with the job, also where a platform is PID 1"""
    # Which processes run sleep; a program that leaves its output open keeps mpirun itself.
    look = "grep -lz '^sleep' /proc/[0-9]*/cmdline 2>/dev/null | wc -l; "
    leave = "setsid sleep 999 </dev/null >/dev/null 2>&1 &"
    script = f"entrypoint run -- sh -c '{leave} exit 0'; echo $?; {look} {leave} sleep 0.2; {look}"
    done = run(image, "-c", script, options=("--entrypoint", "sh", "-e", "ENTRYPOINT_SLOTS=2"))
    # The last is the control: what this shell itself leaves is seen.
    assert done.out.split() == ["0", "0", "1"], done
