"""What both images hold and what they do not, looked at from outside; the other files here go point
by point."""

from __future__ import annotations

import re
from shlex import split

import pytest

from tests import TREE
from tests.image.boxes import run, said, sh

HERE = TREE / "tests/image"


def test_the_user_is_ma_user(image: str) -> None:
    """4.7 the image's own user is ma-user, 1000:100, by number, at home in the working directory"""
    assert sh(image, "id -u; id -g; id -un; echo ~; pwd").split() == [
        "1000", "100", "ma-user", "/home/ma-user", "/home/ma-user",
    ]  # fmt: skip


def test_there_is_no_key_in_any_file(image: str) -> None:
    """8.6 no private key and no host key is in any file"""
    look = (
        "find /etc/ssh/ssh_host_* /root/.ssh /home/ma-user/.ssh -type f 2>/dev/null; grep -rlE"
        " 'BEGIN (OPENSSH|RSA|EC|DSA)? ?PRIVATE KEY' /etc /home /opt/entrypoint/bin /root"
        " 2>/dev/null || true"
    )
    assert sh(image, look, "--user", "0") == ""


def test_what_a_job_sets_does_not_reach_our_python(image: str) -> None:
    """7.5 no PYTHON* variable of a job reaches the toolkit's own Python"""
    hostile = split("-e PYTHONPATH=/nowhere -e PYTHONHOME=/nowhere -e PYTHONSTARTUP=/nowhere")
    assert said(image, "--version", options=hostile).startswith("entrypoint ")


@pytest.mark.parametrize(
    "status", [0, 7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 75, 143, 255))]
)
def test_a_programs_status_is_the_containers(image: str, status: int) -> None:
    """2.5 a program's status is the container's"""
    done = run(image, "sh", "-c", f"exit {status}")
    assert (done.status, done.out) == (status, "")


def test_a_program_that_is_not_there(image: str) -> None:
    """2.6 a program that is not there is named, with 127"""
    done = run(image, "no-such-program")
    assert done.status == 127
    assert "no-such-program" in done.err


def test_every_point_is_in_the_document() -> None:
    """0 docs/reference/image-contract.md names every one of these tests, and no other"""
    files = sorted(HERE.glob("test_*.py"))
    found = [
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text(), flags=re.M)
    ]
    named = re.findall(r"`(test_\w+)`", (TREE / "docs/reference/image-contract.md").read_text())
    assert sorted(named) == sorted(found)
    numbered = [
        re.findall(r'^def (test_\w+)[^"]*\n    """(\d)', file.read_text(), flags=re.M)
        for file in files
    ]
    assert sum(map(len, numbered)) == len(found)  # each says which point it is
