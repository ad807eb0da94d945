"""Stacks of ranks in a container whose seccomp profile forbids to trace processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import until
from tests.containers import IMAGE, docker, logs, remove

# Everything but what a debugger needs.
PROFILE = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [
        {
            "names": ["ptrace", "process_vm_readv", "process_vm_writev"],
            "action": "SCMP_ACT_ERRNO",
        }
    ],
}
PROGRAM = "print('up', flush=True)\ndef hang():\n    __import__('threading').Event().wait()\nhang()"


@pytest.fixture
def forbidden(tmp_path: Path) -> str:
    profile = tmp_path / "seccomp.json"
    profile.write_text(json.dumps(PROFILE))
    return f"seccomp={profile}"


@pytest.fixture
def names() -> Iterator[list[str]]:
    started: list[str] = []
    yield started
    if started:
        remove(*started)


def stacks(names: list[str], how: str, security: str) -> str:
    """What `entrypoint stacks` prints next to a job of two ranks in such a container."""
    env = {
        "ENTRYPOINT_LAUNCHER": "mpirun",
        "ENTRYPOINT_SLOTS": "2",
        "ENTRYPOINT_STALL_MINUTES": "30",
        "ENTRYPOINT_STALL_STACKS": how,
    }
    variables = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    container = docker(
        "run", "-d", "--security-opt", security, *variables, IMAGE, "python3", "-c", PROGRAM
    ).strip()
    names.append(container)
    until(lambda: logs(container).count("up") == 2, 60, "both ranks run")
    return subprocess.run(
        ["docker", "exec", container, "entrypoint", "stacks"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip


@pytest.mark.promise("stacks are read without the right to trace processes")
def test_the_signal_needs_no_right(names: list[str], forbidden: str) -> None:
    report = stacks(names, "auto", forbidden)
    assert "all 2 ranks are in wait(), <string>:3" in report, report
    assert "| hang (<string>:3)" in report, report


@pytest.mark.control("stacks are read without the right to trace processes")
def test_py_spy_needs_it(names: list[str], forbidden: str) -> None:
    """The control: the profile forbids what py-spy does, which Docker's own one allows."""
    assert "| hang (<string>:3)" in stacks(names, "py-spy", "seccomp=unconfined")
    report = stacks(names, "py-spy", forbidden)
    assert "hang" not in report, report
    assert "2 ranks: py-spy: " in report, report
