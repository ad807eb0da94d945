"""A command that is a launcher itself is refused by name: also behind wrappers, and as a module."""

from __future__ import annotations

import json
import shlex

import pytest

from entrypoint import spec
from entrypoint.base.errors import SpecError
from entrypoint.launchers._common import refuse_launcher
from entrypoint.launchers._nested import launcher_of, starts_own_job
from tests import table

COMMANDS = table("tests/tables/nested.yaml")


def refused(command: str) -> str:
    """What the refusal of this command says; "" where it is taken."""
    job = spec.load(
        f"hosts: [a, b]\ncommand: {json.dumps(shlex.split(command))}", "job.yaml", {}, {}
    )
    try:
        refuse_launcher(job, "jax")
    except SpecError as error:
        return str(error)
    return ""


@pytest.mark.promise("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.parametrize(("command", "ours"), COMMANDS["launchers"])
def test_a_launcher_is_seen(command: str, ours: str) -> None:
    said = refused(command)
    assert "EP118 the command is a launcher itself" in said, "it is taken"
    assert (
        f"set launcher: {ours} (ENTRYPOINT_LAUNCHER), with the program alone, such as: -- python train.py"
        in said
    )


@pytest.mark.control("a nested launcher is refused by name, in the command and in a rank's script")
@pytest.mark.parametrize("command", COMMANDS["no launchers"])
def test_what_is_no_launcher_is_taken(command: str) -> None:
    assert refused(command) == ""


def test_what_is_behind_a_wrapper_is_shown() -> None:
    assert "| `torchrun` behind `timeout` |" in refused("timeout 300 torchrun train.py")
    assert "| `torchrun` |" in refused("/usr/bin/torchrun train.py")


@pytest.mark.parametrize(("command", "own"), COMMANDS["own job"])
def test_a_job_of_its_own(command: str, own: bool) -> None:
    words = shlex.split(command)
    assert (bool(launcher_of(words)[0]) and starts_own_job(words)) is own
