"""Whether a probe finds the booting entrypoint, and believes it alone: in Python, and as the images
have it, in bash.

Its use in containers: tests/image.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shlex import split

import pytest

from entrypoint.features.record import health
from tests import TREE
from tests.command import captured

Check = Callable[[Path], tuple[bool, str]]
COMMAND = TREE / "scripts/entrypoint"  # of an image

ALONE = (True, "no boot is going on here: the program runs on its own")
NOT_READY = (False, "not ready: the job has not started on this node yet")
READY = (True, "ready: the job has started on this node")
RUN = ("python3", "-m", "entrypoint", "run")


def in_bash(proc: Path) -> tuple[bool, str]:
    """The answer of an image's command to what this folder shows."""
    words = ["bash", "-p", "-c", '. "$1"; health "$2"', "bash", str(COMMAND), str(proc)]
    done = captured(words)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    return done.returncode == 0, done.stdout.rstrip("\n")


@pytest.fixture(params=[health.check, in_bash], ids=["python", "bash"])
def check(request: pytest.FixtureRequest) -> Check:
    found: Check = request.param
    return found


def process(
    proc: Path,
    pid: int,
    *words: str,
    name: str = "python3",
    age: float = 0,
    state: str = "S",
    user: int | None = None,
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
        "/opt/entrypoint/bin/python3 -I /usr/local/bin/entrypoint run -- python train.py",
        "python3.11 -m entrypoint run",
        "/usr/bin/python3 /usr/local/bin/entrypoint run",
        "/opt/entrypoint/bin/python3 -I /usr/local/bin/image-entry python train.py",
        "/bin/bash -p /usr/local/bin/entrypoint run -- true",
    ],
)
def test_a_boot_that_has_only_begun_is_found(check: Check, words: str, tmp_path: Path) -> None:
    process(tmp_path, 1, "/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry", name="tini")
    process(tmp_path, 7, *words.split())
    assert check(tmp_path) == NOT_READY


@pytest.mark.parametrize(
    "words",
    [
        [*split("/usr/bin/tini -s -- entrypoint run")],
        [*split("python train.py entrypoint walk")],
        [*split("python train.py --of image-entry")],
        [*split("python3 -I /usr/local/bin/entrypoint health")],
        ["sh", "-c", "entrypoint run"],
        ["python3", "-c", "\nentrypoint\nrun\n"],
        [*split("python3 -I -X utf8 -u entrypoint run")],
        [*split("python3 entrypoint -v run")],
        [],
    ],
)
def test_others_are_not(check: Check, words: list[str], tmp_path: Path) -> None:
    process(tmp_path, 7, *words)
    assert check(tmp_path) == ALONE


def test_a_boot_tells_how_far_it_is_and_all_must_be_ready(check: Check, tmp_path: Path) -> None:
    assert check(tmp_path) == ALONE, "no process at all"
    process(tmp_path, 7, *RUN, name="entrypoint:up", age=1000)
    assert check(tmp_path) == READY
    process(tmp_path, 8, *RUN, name="entrypoint:wait", age=1000)
    assert check(tmp_path) == NOT_READY
    for pid in ("7", "8"):  # they have just ended
        (tmp_path / pid / "stat").unlink()
    assert check(tmp_path) == ALONE


@pytest.mark.control("the health check of an image agrees with Python's, without a Python")
def test_one_that_only_looks_like_a_boot_deceives_nobody(check: Check, tmp_path: Path) -> None:
    process(tmp_path, 6, *RUN, name="decoy) S 1", age=11)
    assert check(tmp_path) == ALONE
    process(tmp_path, 7, *RUN, name="entrypoint:up", age=1000)
    assert check(tmp_path) == READY
    process(tmp_path, 8, *RUN, name="entrypoint:wait", state="Z")
    assert check(tmp_path) == READY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's process")
def test_another_user_s_process_deceives_nobody(check: Check, tmp_path: Path) -> None:
    process(tmp_path, 6, *RUN, name="entrypoint:wait", user=4321)
    assert check(tmp_path) == ALONE
    process(tmp_path, 1, "tini", name="tini", user=1000)
    process(tmp_path, 7, *RUN, name="entrypoint:up", user=1000)
    assert check(tmp_path) == READY, "the container's own user, whoever asks"
    process(tmp_path, 8, *RUN, name="entrypoint:wait")
    assert check(tmp_path) == NOT_READY, "who asks comes first"


def test_many_processes(check: Check, tmp_path: Path) -> None:
    for pid in range(2, 300):
        process(tmp_path, pid, "python", "train.py", age=1000)
    assert check(tmp_path) == ALONE
    process(tmp_path, 4000, "decoy", name="entrypoint:up) S", age=1000)
    assert check(tmp_path) == ALONE
    process(tmp_path, 4001, *RUN, name="entrypoint:up", age=1000)
    assert check(tmp_path) == READY


PROBES = [(sys.executable, "-m", "entrypoint", "health"), (str(COMMAND), "health")]


@pytest.mark.promise("the health check of an image agrees with Python's, without a Python")
@pytest.mark.parametrize("probe", PROBES, ids=["python", "bash"])
def test_a_real_process(probe: tuple[str, ...]) -> None:
    """What the kernel shows is what both read; /proc of a namespace of its own, where nobody else
    boots."""
    script = f"""
import subprocess, sys
from entrypoint.system import process
def ask():
    done = subprocess.run({probe!r}, capture_output=True, text=True)
    print(done.returncode, (done.stdout + done.stderr).strip())
ask()
for name in ("entrypoint:wait", "entrypoint:up"):
    process.show(name)
    process.hide_memory()
    ask()
"""
    alone = ("unshare", "--fork", "--pid", "--mount-proc")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no namespace of processes")
    done = captured([*alone, sys.executable, "-c", script], check=True)
    assert done.stdout.splitlines() == [f"0 {ALONE[1]}", f"1 {NOT_READY[1]}", f"0 {READY[1]}"]


@pytest.mark.parametrize("probe", PROBES, ids=["python", "bash"])
def test_nobody_needs_to_read_it(probe: tuple[str, ...]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    read_end, write_end = os.pipe()
    os.close(read_end)
    for out in (full, write_end):
        done = subprocess.run(probe, stdout=out, stderr=subprocess.PIPE, check=False)
        assert (done.returncode in (0, 1), done.stderr) == (True, b"")
        os.close(out)


@pytest.mark.promise("the health check of an image agrees with Python's, without a Python")
def test_the_check_of_an_image_starts_no_python(tmp_path: Path) -> None:
    """Whatever the environment brings; any other word goes to the toolkit."""
    text = COMMAND.read_text()
    assert text.startswith("#!/bin/bash -p\n")
    command, toolkit = tmp_path / "entrypoint", tmp_path / "bin/entrypoint"
    command.write_text(text.replace("/opt/entrypoint", str(tmp_path)))
    command.chmod(0o755)
    toolkit.parent.mkdir()
    toolkit.write_text('#!/bin/bash -p\necho "$# $*"; exec env -0\n')
    env = {
        "PATH": os.environ["PATH"],
        "a.b": "1",
        "BASH_FUNC_grep%%": "() { echo /proc/1/stat; }",
        "BASH_ENV": "/bad",
    }
    toolkit.chmod(0)
    done = subprocess.run([command, "health"], env=env, capture_output=True, check=False)
    assert done.stdout.decode().strip() in (ALONE[1], READY[1], NOT_READY[1])
    toolkit.chmod(0o755)
    shells = (b"_", b"PWD", b"SHLVL", b"OLDPWD")  # which programs do not get
    given = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    for words in ("health now", "health --help", "", "run -- a  b", "--version"):
        others = words.split(" ") if words else []
        out = subprocess.run([command, *others], env=env, capture_output=True, check=True).stdout
        first, _, rest = out.partition(b"\n")
        assert first.decode() == f"{len(others)} {' '.join(others)}"
        got = dict(each.split(b"=", 1) for each in rest.split(b"\0") if each)
        assert {name: got[name] for name in got if name not in shells} == given
