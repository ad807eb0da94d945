"""Nodes that call in: the desk of worker-0, without sshd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.job.messages import CalledIn, CallIn
from entrypoint.plan import locate
from entrypoint.plan.callin import with_names
from entrypoint.session import codec
from entrypoint.session.callin import Desk, Phone
from entrypoint.spec import load
from tests import table
from tests.unit.plans import facts

CASES = table("tests/tables/callin.yaml")
ENV = {"MASTER_ADDR": "gpu-0", "NODE_RANK": "0"}


class Session:
    """A caller's session, and what was sent to it."""

    def __init__(self, name: str, caller: str, answers: list[str]) -> None:
        self.name = name
        self.caller = caller
        self.answers = answers

    def send(self, line: bytes) -> None:
        for answer in codec.Intake(codec.TO_CALLER, codec.TO_WORKER, 0.0).feed(line, 0.0):
            is_list = isinstance(answer, CalledIn)
            text = f"list {answer.index}" if is_list else answer.reason.split()[0]
            self.answers.append(f"{self.name} {text}")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_desk(case: dict[str, Any]) -> None:
    spec = load(f"nodes: {case['nodes']}", "job.yaml", {}, {})
    desk = Desk(locate(spec, facts(ENV, hostname="gpu-0")))
    failed: list[str] = []
    desk.own_call = CallIn("gpu-0", 0, "own")
    desk.changed = lambda callers: None
    desk.failed = lambda outcome: failed.append(outcome.reason)
    answers: list[str] = []
    pending: list[Callable[[], None]] = []
    desk.later = pending.append
    sessions: dict[str, Session] = {}
    for event in case["events"]:
        kind, name, *more = event.replace('"', "").split()
        if kind == "call":
            sessions[name] = Session(name, more[1], answers)
            index = None if more[0] == "-" else int(more[0])
            desk.take(CallIn(name, index, *more[2:]), sessions[name])
        elif kind == "leave":
            desk.leave(sessions[name])
        elif kind == "later":
            pending.pop()()
        else:
            desk.is_here = int(name).__eq__
    assert not (desk.empty.is_set() and desk.callers)
    hosts = [f"{name} {address}".strip() for name, address in desk.hosts]
    assert answers == case.get("answers", answers)
    assert hosts == case.get("hosts", hosts)
    assert [reason.rpartition(" | ")[0] for reason in failed] == case.get("failed", [])


def test_nodes_call_in_only_before_a_roll_call() -> None:
    spec = load("nodes: 2\nhosts: call-in\nroll_call: none", "job.yaml", {}, {})
    with pytest.raises(ConfigError, match="EP201 hosts is call-in, and roll_call is none"):
        locate(spec, facts(ENV, hostname="gpu-0"))


def test_a_target_that_knows_its_nodes_names_them() -> None:
    text = "hosts: call-in=w0\nspares: 1\n"
    assert with_names(load(f"{text}nodes: 2", "j", {}, {})).hosts == ("node-0", "node-1", "node-2")
    counted = locate(
        load("spares: 1", "j", {}, {}), facts({**ENV, "NNODES": "4"}, hostname="gpu-0")
    )
    assert len(counted.nodes) == 4, "a platform counts the spares, too"
    with pytest.raises(ConfigError, match=r"EP201 .* the number of nodes is not known"):
        with_names(load(text, "j", {}, {}))


def test_a_node_that_calls_needs_an_ssh_client() -> None:
    place: Any = None
    with pytest.raises(ConfigError, match="EP430 this image has no ssh client"):
        Phone(load("", "j", {}, {}), facts(ENV), place, place, place, place)
