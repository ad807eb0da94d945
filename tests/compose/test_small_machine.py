"""Containers that lack something: named before any rank starts, with an error or, where it may
work, a warning."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.containers import IMAGE

pytestmark = pytest.mark.fault("16", "a small or broken machine", launcher="all")

RAN = ["--launcher", "mpirun", "--slots", "2", "--", "echo", "ran"]


def tmpfs(options: str) -> list[str]:
    return ["--tmpfs", f"/run/job:{options}", "-e", "ENTRYPOINT_RUN_DIR=/run/job/run"]


def handles(soft: int, hard: int) -> list[str]:
    return ["--ulimit", f"nofile={soft}:{hard}"]


# What the container is given -> status, times that a rank ran, what is said of it before ranks
# start.
CASES = {
    "handles": (handles(70, 70), 71, 0, "EP420 too few file handles | 70 may be open, needed: 80 (nodes: 1, ranks here: 2) |"),
    "handles-to-be-had": (handles(70, 1024), 0, 2, ""),
    "shm": (
        ["--shm-size", "64k"], 0, 2,
        "warning: EP422 little shared memory | 64 KiB free of 64 KiB in /dev/shm, needed: 8 MiB |",
    ),
    "shm-enough": (["--shm-size", "8m"], 0, 2, ""),
    "disk": (tmpfs("size=64k,mode=777"), 73, 0, "EP410 cannot write /run/job/run | 64 KiB free at /run/job, needed: 1 MiB |"),
    "inodes": (
        tmpfs("size=8m,nr_inodes=1,mode=777"), 73, 0,
        "EP410 cannot write /run/job/run | room for 0 files at /run/job, needed: 1 file |",
    ),
    "read-only": (tmpfs("ro,mode=777"), 73, 0, "EP410 cannot write /run/job/run | /run/job: read-only file system |"),
    "disk-enough": (tmpfs("size=8m,mode=777"), 0, 2, ""),
}  # fmt: skip


def start(*options: str) -> subprocess.Popen[str]:
    words = ["docker", "run", "--rm", *options, IMAGE, *RAN]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.promise("a weak machine is named before any rank starts")
def test_what_a_machine_lacks_is_named_before_ranks_start() -> None:
    started = {name: start(*options) for name, (options, *_) in CASES.items()}
    ends = {name: (*process.communicate(), process.returncode) for name, process in started.items()}
    for name, (_, status, ranks, line) in CASES.items():
        out, err, ended = ends[name]
        before = [
            words
            for words in err.splitlines()
            if re.match(r"\[entrypoint\] (?!\d+ ranks on |started: )", words)
        ]
        assert (ended, out.count("ran\n")) == (status, ranks), f"{name}: {err}"
        # There is no room for the result either, which is said as well.
        before = [
            words
            for words in before
            if not words.startswith("[entrypoint] warning: EP415 the result cannot be written | ")
        ]
        assert [words[: len(line) + 13] for words in before] == (
            [f"[entrypoint] {line}"] if line else []
        ), name
