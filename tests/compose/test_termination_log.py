"""/dev/termination-log, as Kubernetes mounts it: a file anyone may write, read when the container
has ended."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.containers import IMAGE

SECRET = secrets.token_hex(32)


def ended(folder: Path, name: str, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """The container's status, and what it left in its termination log."""
    log = folder / name
    log.write_text("x" * 6000)  # of a container before
    log.chmod(0o666)
    done = subprocess.run(
        ["docker", "run", "--rm", "-v", f"{log}:/dev/termination-log", *options, IMAGE, *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, log.read_text()


def fields(text: str) -> dict[str, Any]:
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


@pytest.mark.promise("Kubernetes sees readiness and the reason of the end")
def test_the_reason_is_where_kubernetes_looks(folder: Path) -> None:
    mpi = ("--launcher", "mpirun", "--name", "demo", "--")
    status, text = ended(
        folder, "failed", *mpi, "sh", "-c", "exit 7", options=("--hostname", "worker-0")
    )
    assert status == 7
    expected = {"status": 7, "reason": "", "node": "worker-0", "job": "demo", "class": "job"}
    assert {**fields(text), "reason": ""} == expected
    assert "rank 0 on worker-0 exited with 7" in fields(text)["reason"]

    status, text = ended(folder, "spec", "--slots", "many", "--", "true")
    assert (status, fields(text)["class"]) == (65, "config")
    assert "slots: EP100 a whole number from 1 to 4096 is needed" in fields(text)["reason"]

    status, text = ended(
        folder, "secret", *mpi, SECRET, options=("-e", f"ENTRYPOINT_SECRET={SECRET}")
    )
    assert (status, fields(text)["class"]) == (127, "job")
    assert SECRET not in text


@pytest.mark.control("Kubernetes sees readiness and the reason of the end")
def test_a_program_alone_has_the_log_to_itself(folder: Path) -> None:
    status, text = ended(folder, "alone", "sh", "-c", "echo mine >/dev/termination-log; exit 3")
    assert (status, text) == (3, "mine\n")
