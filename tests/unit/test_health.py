"""Whether a probe finds the booting entrypoint, and believes the right lock. Its use in containers: tests/image."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.run.health import check

ALONE = "no boot of ours is going on here: the program runs by itself"


def process(proc: Path, pid: int, *words: str, locks: tuple[str, ...] = ()) -> None:
    """A process as /proc shows it; each of `locks` is the text of a lock file that it has open."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in words))
    for number, text in enumerate(locks, 3):
        folder = proc / f"run{pid}-{number}"
        folder.mkdir()
        (folder / "lock").write_text(text)
        (proc / str(pid) / "fd" / str(number)).symlink_to(folder / "lock")


@pytest.mark.parametrize(
    "words",
    [
        ("/opt/entrypoint/bin/python3", "-I", "/usr/local/bin/entrypoint", "run", "--", "python", "train.py"),
        ("python3.11", "-m", "entrypoint", "run"),
        ("/usr/bin/python3", "/usr/local/bin/entrypoint", "run"),
        ("/bin/sh", "/usr/local/bin/image-entry", "python", "train.py"),
    ],
)
@pytest.mark.parametrize(("locks", "ready"), [((), False), (("",), False), (("ready\n",), True)])
def test_a_boot_is_found(words: tuple[str, ...], locks: tuple[str, ...], ready: bool, tmp_path: Path) -> None:
    process(tmp_path, 1, "/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry")
    process(tmp_path, 7, *words, locks=locks)
    assert check(tmp_path)[0] is ready


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
    assert check(tmp_path) == (True, ALONE)


def test_all_must_be_ready(tmp_path: Path) -> None:
    run = ("python3", "-m", "entrypoint", "run")
    process(tmp_path, 7, *run, locks=("ready\n",))
    assert check(tmp_path)[0] is True
    process(tmp_path, 8, *run, locks=("",))
    assert check(tmp_path)[0] is False


def test_one_that_has_just_ended(tmp_path: Path) -> None:
    process(tmp_path, 7, "python3", "-m", "entrypoint", "run")
    (tmp_path / "7" / "fd").rmdir()
    assert check(tmp_path)[0] is True
