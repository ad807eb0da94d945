"""Elastic jobs, `nodes: 2:4`: how the spec says it, what torchrun is told, what is refused, and
whose end counts."""

from __future__ import annotations

import pytest

from entrypoint import spec
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Facts, Plan
from entrypoint.plan import settle

FACTS = Facts({}, "a", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": "8f2c" * 9 + "0a1b3d5e"}


def plan(text: str, launcher: str = "torchrun", hosts: str = "[a, b, c, d]", **env: str) -> Plan:
    given = f"launcher: {launcher}\nhosts: {hosts}\nnode_rank: 0\ncommand: [train.py]\n{text}\n"
    return settle(spec.load(given, "job.yaml", {**SECRET, **env}, {}), FACTS)


@pytest.mark.parametrize("text", ["nodes: 2:4", 'nodes: "2:4"', ""])
def test_two_of_four(text: str) -> None:
    env = {} if text else {"ENTRYPOINT_NODES": "2:4"}
    made = plan(text, **env)
    (program,) = made.launch.programs
    told = {var.name: var.value for var in program.env}
    assert made.launch.min_nodes == 2
    assert {"--nnodes=2:4", "--max_restarts=3", "--rdzv_backend=c10d"} <= {*program.argv}
    conf = next(word for word in program.argv if word.startswith("--rdzv_conf="))
    assert conf.endswith(",last_call_timeout=10")
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert "EXIT_BARRIER" not in told
    assert any("the launcher numbers the ranks" in words for words in made.later)
    (program,) = plan(f"{text}\ntorch: {{max_restarts: 0}}", **env).launch.programs
    assert "--max_restarts=0" in program.argv, "the user's own"


def test_without_nodes_all_are_needed() -> None:
    """The control."""
    made = plan("")
    (program,) = made.launch.programs
    told = {var.name for var in program.env}
    assert made.launch.min_nodes is None
    assert "--nnodes=4" in program.argv
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in told
    assert "EXIT_BARRIER" in told
    assert made.later == tuple(words for words in made.later if "nodes:" not in words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: 2:3", "nodes: EP120 the maximum must equal the number of hosts | 3, with 4 hosts"),
        ("nodes: 5:4", "nodes: EP120 the minimum is greater than the maximum | 5:4 | write 4:5"),
        ("nodes: 2:4\ntorch: {rdzv_backend: static}", "nodes: EP120 a static rendezvous has a fixed number of nodes"),
        ("nodes: two", 'nodes: EP100 a number, or pair of numbers such as 2:4 is needed | "two"'),
        ("nodes: [2, 4]", "nodes: EP100 a number, or pair of numbers such as 2:4 is needed"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        plan(text)
    assert says in str(error.value)


@pytest.mark.parametrize("launcher", ["mpirun", "plain", "torchlaunch"])
def test_no_other_launcher_has_it(launcher: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"EP120 only torchrun has elastic jobs .* nodes: 2:4 \| set launcher: torchrun",
    ):
        plan("nodes: 2:4", launcher)


# -- whose end counts
