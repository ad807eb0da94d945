"""Elastic jobs, `nodes: 2:4`: how the spec says it, what torchrun is told, and what is refused."""

from __future__ import annotations

import pytest

from entrypoint import spec
from entrypoint.errors import ConfigError, SpecError
from entrypoint.model import Facts, Plan
from entrypoint.plan import settle

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}


def plan(text: str, launcher: str = "torchrun", hosts: str = "[a, b, c, d]", **env: str) -> Plan:
    given = f"launcher: {launcher}\nhosts: {hosts}\nnode_rank: 0\ncommand: [train.py]\n{text}\n"
    return settle(spec.load(given, "job.yaml", {**SECRET, **env}, {}), FACTS)


@pytest.mark.parametrize("text", ["nodes: 2:4", 'nodes: "2:4"', ""])
def test_two_of_four(text: str) -> None:
    made = plan(text, **({} if text else {"ENTRYPOINT_NODES": "2:4"}))
    (program,) = made.launch.programs
    told = {var.name: var.value for var in program.env}
    assert (made.launch.least, told["NNODES_MIN"], told["NNODES"]) == (2, "2", "4")
    assert told["MAX_RESTARTS"] == "3"
    assert "EXIT_BARRIER" not in told
    script = next(file.text for file in made.files if file.name == "torchrun.sh")
    assert "MAX_RESTARTS=${MAX_RESTARTS:-${PET_MAX_RESTARTS:-3}}" in script
    assert any("torchrun numbers the ranks" in words for words in made.later)


def test_without_nodes_all_are_needed() -> None:
    """The control."""
    made = plan("")
    (program,) = made.launch.programs
    told = {var.name: var.value for var in program.env}
    assert made.launch.least is None
    assert "NNODES_MIN" not in told
    assert "EXIT_BARRIER" in told
    assert made.later == tuple(words for words in made.later if "nodes:" not in words)


def test_restarts_of_the_user_s_own() -> None:
    made = plan("nodes: 2:4\ntorch: {max_restarts: 0}")
    assert {"MAX_RESTARTS": "0"}.items() <= {var.name: var.value for var in made.launch.programs[0].env}.items()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: 2:3", "nodes: EP120 the most nodes of an elastic job are its hosts | 3, with 4 hosts"),
        ("nodes: 5:4", "nodes: EP120 the least is more than the most | 5:4 | write 4:5"),
        ("nodes: 2:4\ntorch: {rdzv_backend: static}", "nodes: EP120 a static rendezvous has a fixed number of nodes"),
        ("nodes: 4", "nodes: EP100 a pair of numbers such as 2:4 is needed"),
        ("nodes: two", 'nodes: EP100 a pair of numbers such as 2:4 is needed | "two" | write for example "2:4"'),
        ("nodes: [2, 4]", "nodes: EP100 a pair of numbers such as 2:4 is needed"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        plan(text)
    assert says in str(error.value)


@pytest.mark.parametrize("launcher", ["mpirun", "plain", "torchlaunch"])
def test_no_other_launcher_has_it(launcher: str) -> None:
    with pytest.raises(
        ConfigError, match=r"EP120 only torchrun has elastic jobs .* nodes: 2:4 \| set launcher: torchrun"
    ):
        plan("nodes: 2:4", launcher)
