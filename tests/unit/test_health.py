"""Whether a probe finds the booting entrypoint, and believes it alone. Its use in containers: tests/image."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from entrypoint.host.health import check

ALONE = (True, "no boot of ours is going on here: the program runs by itself")
NOT_READY = (False, "not ready: the job has not started on this node yet")
READY = (True, "ready: the job has started on this node")
RUN = ("python3", "-m", "entrypoint", "run")


def process(
    proc: Path, pid: int, *words: str, name: str = "python3", age: float = 0, state: str = "S", user: int | None = None
) -> None:
    """A process as /proc shows it."""
    folder = proc / str(pid)
    folder.mkdir()
    begun = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age) * os.sysconf("SC_CLK_TCK"))
    (folder / "stat").write_text(f"{pid} ({name}) {state} 1{' 0' * 17} {begun} 0 0\n")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
    if user is not None:
        os.chown(folder, user, -1)


@pytest.mark.parametrize(
    "words",
    [
        ("/opt/entrypoint/bin/python3", "-I", "/usr/local/bin/entrypoint", "run", "--", "python", "train.py"),
        ("python3.11", "-m", "entrypoint", "run"),
        ("/usr/bin/python3", "/usr/local/bin/entrypoint", "run"),
        ("/bin/sh", "/usr/local/bin/image-entry", "python", "train.py"),
    ],
)
def test_a_boot_that_has_only_begun_is_found(words: tuple[str, ...], tmp_path: Path) -> None:
    process(tmp_path, 1, "/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry", name="tini")
    process(tmp_path, 7, *words)
    assert check(tmp_path) == NOT_READY


@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/tini", "-s", "--", "entrypoint", "run"),
        ("python", "train.py", "entrypoint", "walk"),
        ("python3", "-I", "/usr/local/bin/entrypoint", "health"),
        ("sh", "-c", "entrypoint run"),
        (),
    ],
)
def test_others_are_not(words: tuple[str, ...], tmp_path: Path) -> None:
    process(tmp_path, 7, *words)
    assert check(tmp_path) == ALONE


@pytest.mark.parametrize(("name", "seen"), [("entrypoint:wait", NOT_READY), ("entrypoint:up", READY)])
def test_a_boot_tells_how_far_it_is(name: str, seen: tuple[bool, str], tmp_path: Path) -> None:
    process(tmp_path, 7, *RUN, name=name, age=1000)
    assert check(tmp_path) == seen


def test_one_that_only_looks_like_a_boot_deceives_nobody(tmp_path: Path) -> None:
    process(tmp_path, 6, *RUN, name="decoy) S 1", age=11)
    assert check(tmp_path) == ALONE
    process(tmp_path, 7, *RUN, name="entrypoint:up", age=1000)
    assert check(tmp_path) == READY
    process(tmp_path, 8, *RUN, name="entrypoint:wait", state="Z")
    assert check(tmp_path) == READY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's process")
def test_another_user_s_process_deceives_nobody(tmp_path: Path) -> None:
    process(tmp_path, 6, *RUN, name="entrypoint:wait", user=4321)
    assert check(tmp_path) == ALONE
    process(tmp_path, 1, "tini", name="tini", user=1000)
    process(tmp_path, 7, *RUN, name="entrypoint:up", user=1000)
    assert check(tmp_path) == READY, "the container's own user, whoever asks"
    process(tmp_path, 8, *RUN, name="entrypoint:wait")
    assert check(tmp_path) == NOT_READY, "who asks comes first"


def test_all_must_be_ready(tmp_path: Path) -> None:
    process(tmp_path, 7, *RUN, name="entrypoint:up")
    assert check(tmp_path) == READY
    process(tmp_path, 8, *RUN, name="entrypoint:wait")
    assert check(tmp_path) == NOT_READY


def test_one_that_has_just_ended(tmp_path: Path) -> None:
    process(tmp_path, 7, *RUN, name="entrypoint:wait")
    (tmp_path / "7" / "stat").unlink()
    assert check(tmp_path) == ALONE
