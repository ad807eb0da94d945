"""What both images hold and what they do not, looked at from outside."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.containers import docker

DEPENDENCIES = ("pydantic", "paramiko", "cryptography", "entrypoint")


def sh(image: str, script: str) -> str:
    return docker("run", "--rm", "--entrypoint", "sh", image, "-c", script).strip()


def test_the_user_is_ma_user(image: str) -> None:
    assert sh(image, "id -u; id -g; id -un; echo ~; pwd").split() == [
        "1000", "100", "ma-user", "/home/ma-user", "/home/ma-user",
    ]  # fmt: skip


def test_tini_is_in_front_and_passes_signals(image: str) -> None:
    config = json.loads(docker("image", "inspect", image))[0]["Config"]
    assert config["Entrypoint"] == ["/usr/bin/tini", "-s", "--", "/usr/local/bin/image-entry"]
    assert config["StopSignal"] == "SIGTERM"
    assert "PYTHONUNBUFFERED=1" in config["Env"]


def test_there_is_no_key_in_any_file(image: str) -> None:
    found = docker(
        "run", "--rm", "--user", "0", "--entrypoint", "sh", image, "-c",
        "ls /etc/ssh/ssh_host_* /root/.ssh /home/ma-user/.ssh 2>/dev/null; "
        "grep -rlE 'BEGIN (OPENSSH|RSA|EC|DSA)? ?PRIVATE KEY' /etc /home /opt/entrypoint/bin /root 2>/dev/null || true",
    )  # fmt: skip
    assert found == ""


def test_the_jobs_python_does_not_see_ours(image: str) -> None:
    look = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    for python in ("python", "python3"):
        assert docker("run", "--rm", image, python, "-c", look, *DEPENDENCIES) == "[]\n"


def test_what_a_job_sets_does_not_reach_our_python(image: str) -> None:
    hostile = ["-e", "PYTHONPATH=/nowhere", "-e", "PYTHONHOME=/nowhere", "-e", "PYTHONSTARTUP=/nowhere"]
    assert docker("run", "--rm", *hostile, image, "--version").startswith("entrypoint ")


def test_help_needs_nothing(image: str) -> None:
    assert "usage: entrypoint" in docker("run", "--rm", "--network", "none", "--read-only", image, "--help")


@pytest.mark.parametrize("status", [0, 1, 7, 75, 143, 255])
def test_a_programs_status_is_the_containers(image: str, status: int) -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", image, "sh", "-c", f"exit {status}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (status, b"")


def test_a_program_that_is_not_there(image: str) -> None:
    done = subprocess.run(["docker", "run", "--rm", image, "no-such-program"], capture_output=True, check=False)
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


def test_the_documented_script_is_there_and_a_lone_node_needs_no_secret(image: str) -> None:
    said = docker(
        "run", "--rm", "-e", "MY_MPI_SLOTS=2", image, "bash", "run_mpi.sh", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK"
    )
    assert sorted(said.split()) == ["0", "1"]
