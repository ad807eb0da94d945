"""The network check as worker-0 holds it: who is asked what when, and what becomes of nodes that
fail, leave or lie."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from entrypoint import spec
from entrypoint.base.errors import ConfigError, SpecError
from entrypoint.base.model import Facts, Interface
from entrypoint.base.values import replace
from entrypoint.base.wire import Invalid
from entrypoint.features.netcheck.coordinator import Coordinator, inquiry
from entrypoint.features.netcheck.messages import (
    Figures,
    Open,
    Ready,
    Reduce,
    Serve,
    Serving,
    Unable,
    packed,
    unpacked,
)
from entrypoint.job.inquiry import Ask, Conclusion
from entrypoint.plan import settle
from entrypoint.spec.jobspec import NetcheckSpec

pytestmark = pytest.mark.see
FACTS = Facts({}, "n0", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": secrets.token_hex(16), "ENTRYPOINT_NODE_RANK": "0"}
IB0 = Interface("ib0", "10.9.0.2", "10.9.0.0/24")
FIGURES = Figures(0.1, 0.2, 9.0)
KINDS = (Open, Serve, Reduce)
GOOD = {Open: Ready("gloo"), Serve: Serving(7), Reduce: FIGURES}


def job(nodes: int, text: str = "") -> spec.JobSpec:
    hosts = ", ".join(f"n{rank}=10.0.0.{rank + 1}" for rank in range(nodes))
    return spec.load(
        f"hosts: [{hosts}]\ncommand: [train.py]\nlauncher: plain\n{text}", "job.yaml", SECRET, {}
    )


class Check:
    """A network check, and nodes that answer as a test has it; `order` is what was asked, at a
    clock of the test's."""

    def __init__(
        self, nodes: int, text: str = "", how: Any = "text", present: tuple[int, ...] = ()
    ) -> None:
        asked = job(nodes, text)
        plan = settle(asked, FACTS)
        reports = {node: plan.members.reports[node] for node in present or range(nodes)}
        self.coordinator: Coordinator = inquiry(asked, how).dialogue(plan, reports)
        self.now = 0.0
        self.order: list[list[tuple[int, Any]]] = []
        self.waiting: list[Ask] = []
        self.end: Conclusion | None = None

    def run(self, answer: Callable[[int, Any], Any] = lambda node, question: None) -> Conclusion:
        """`answer` gives a message, "lost" or "late"; None is what every good node says. Each one
        takes a second."""
        self.waiting = self.coordinator.begin(self.now)
        self.order.append([])
        while self.waiting:
            ask = self.waiting.pop(0)
            question = unpacked(dict(ask.body), *KINDS)
            self.order[-1].append((ask.node, question))
            assert 0 < ask.seconds < 140
            said = answer(ask.node, question) or GOOD[type(question)]
            self.now += 1
            match said:
                case "lost":
                    more = self.coordinator.lose(ask.node, "its session ended", True, self.now)
                case "late":
                    more = self.coordinator.lose(ask.node, "no answer within 5s", False, self.now)
                case _:
                    more = self.coordinator.take(ask.node, packed(said), self.now)
            if more:
                assert not self.waiting, "a node was asked before all had answered"
                self.waiting = more
                self.order.append([])
        return self.coordinator.conclude(None)

    def seen(self, end: Conclusion) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(dict(end.files)["netcheck.json"])
        return made


def groups(check: Check) -> list[list[list[int]]]:
    """The rounds: which nodes were asked to reduce together."""
    rounds = [[node for node, it in asked if isinstance(it, Reduce)] for asked in check.order]
    sizes = [[it.nodes for _, it in asked if isinstance(it, Reduce)] for asked in check.order]
    return [
        [nodes[at : at + size[0]] for at in range(0, len(nodes), size[0])]
        for nodes, size in zip(rounds, sizes, strict=True)
        if nodes
    ]


def test_all_start_torch_then_pairs_reduce_round_by_round_then_all_together() -> None:
    check = Check(4, "netcheck: {seconds: 2}")
    end = check.run()
    assert [node for node, _ in check.order[0]] == [0, 1, 2, 3]
    assert groups(check) == [[[0, 3], [1, 2]], [[0, 2], [1, 3]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]]
    asked = [it for step in check.order for it in step]
    assert (3, Reduce(1, 2, "10.0.0.2", 7, "gloo", 2.0)) in asked
    assert (end.outcome.status, end.outcome.reason) == (
        0,
        "the network between 4 nodes is measured",
    )
    assert end.answer.startswith("node  ")
    assert len(check.seen(end)["pairs"]) == 6
    assert check.seen(end)["together"] == {"latency_ms": 0.1, "gbps": 9.0, "error": ""}


@pytest.mark.parametrize(
    ("backends", "used"), [(("nccl", "nccl"), "nccl"), (("nccl", "gloo"), "gloo")]
)
def test_all_use_one_backend(backends: tuple[str, str], used: str) -> None:
    check = Check(2)
    check.run(lambda node, question: isinstance(question, Open) and Ready(backends[node]))
    assert {it.backend for asked in check.order for _, it in asked if isinstance(it, Reduce)} == {
        used
    }


@pytest.mark.parametrize("how", ["text", "before"])
def test_without_torch_nothing_is_measured_and_the_job_says_so(how: str) -> None:
    check = Check(3, how=how)
    why = "ModuleNotFoundError: No module named 'torch'"
    end = check.run(lambda node, question: Unable(why))
    assert len(check.order) == 1
    assert end.outcome.status == 78
    assert end.outcome.reason.startswith(
        f"EP012 the network cannot be measured | on no node: {why} | "
    )


def test_a_node_that_says_so_and_leaves_does_not_hide_that_there_is_no_torch() -> None:
    coordinator = Check(3).coordinator
    coordinator.begin(0.0)
    coordinator.take(2, packed(Unable("no torch")), 0.0)
    coordinator.lose(2, "its session ended", True, 0.0)
    for node in (0, 1):
        coordinator.take(node, packed(Unable("no torch")), 0.0)
    outcome = coordinator.conclude(None).outcome
    assert outcome.status == 78


@pytest.mark.control("a node that freezes, leaves or never comes is named, and no hang")
def test_where_one_node_has_no_torch_the_others_measure() -> None:
    check = Check(3)

    def answer(node: int, question: Any) -> Any:
        return Unable("no torch") if node == 1 and isinstance(question, Open) else None

    end = check.run(answer)
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in check.seen(end)["pairs"]}
    assert errors == {(0, 1): "worker-1: no torch", (0, 2): "", (1, 2): "worker-1: no torch"}
    assert end.outcome.status == 75
    assert "worker-1 (n1) cannot take part: worker-1: no torch" in end.outcome.reason


def test_json_is_the_answer_where_it_was_asked_for_and_before_a_job_there_is_none() -> None:
    check = Check(2, how="json")
    end = check.run()
    assert json.loads(end.answer) == check.seen(end)
    before = Check(2, how="before").run()
    assert (before.outcome, before.answer) == (None, "")
    assert any(line.startswith("usual: ") for line in before.lines)


@pytest.mark.parametrize(
    ("text", "host"), [("", "10.0.0.1"), ("network: {interface: ib0}", "10.9.0.2")]
)
def test_the_interface_that_was_asked_for_is_measured(text: str, host: str) -> None:
    asked = job(2, text)
    plan = settle(asked, replace(FACTS, interfaces=(IB0,)))
    reports = {node: replace(plan.members.reports[node], interface=IB0) for node in range(2)}
    coordinator: Coordinator = inquiry(asked, "text").dialogue(plan, reports)
    for ask in coordinator.begin(0.0):
        further = coordinator.take(ask.node, packed(Ready("gloo")), 0.0)
    further = coordinator.take(0, packed(Serving(7)), 0.0)
    assert [ask.body["host"] for ask in further] == [host, host]


@pytest.mark.parametrize(
    ("limit", "fails"), [("max_latency_ms: 0.05", True), ("min_bandwidth_gbps: 5", False)]
)
@pytest.mark.parametrize("how", ["text", "json", "before"])
def test_a_limit_ends_the_job_with_75(limit: str, fails: bool, how: str) -> None:
    end = Check(2, f"netcheck: {{{limit}}}", how).run()
    if not fails:
        assert end.outcome is None or end.outcome.status == 0
        return
    assert end.outcome.status == 75
    assert end.outcome.reason.startswith(
        "EP013 the network is not fit for this job | worker-0 (n0) and worker-1 (n1)"
    )
    assert end.files, "what was measured is there in any case"


def test_what_takes_too_long_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NetcheckSpec().limit == 300
    monkeypatch.setattr(NetcheckSpec, "limit", 1.0)
    check = Check(4)
    seen = check.seen(check.run())
    assert len(groups(check)) == 2, "one round, and all together"
    assert seen["left_out"] == {"pairs": 4, "why": "the time for all pairs, 1s, was over"}
    monkeypatch.setattr(NetcheckSpec, "limit", 1000.0)
    many = Check(40)
    assert (
        many.seen(many.run())["left_out"]["why"]
        == "of more than 32 nodes a sample is, 16 peers of each"
    )


@pytest.mark.promise("a node that freezes, leaves or never comes is named, and no hang")
@pytest.mark.parametrize("kind", [Open, Serve, Reduce])
def test_a_silent_node_is_named_and_asked_nothing_more(kind: type) -> None:
    check = Check(3)
    end = check.run(
        lambda node, question: "late" if node == 1 and isinstance(question, kind) else None
    )
    seen = check.seen(end)
    asked = [question for asked in check.order for node, question in asked if node == 1]
    assert isinstance(asked[-1], kind)
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in seen["pairs"]}
    why = "worker-1 does not answer: no answer within 5s"
    assert errors == {(0, 1): why, (0, 2): "", (1, 2): why}
    assert seen["together"]["error"] == why
    assert end.outcome.status == 75


@pytest.mark.control("a node that freezes, leaves or never comes is named, and no hang")
def test_a_pair_that_cannot_measure_is_named_and_others_go_on() -> None:
    why = "x\n[entrypoint] all is well\x1b[2J"
    check = Check(3)

    def answer(node: int, question: Any) -> Any:
        of_pair = isinstance(question, Reduce) and question.host == "10.0.0.2"
        return Unable(why) if of_pair else None

    end = check.run(answer)
    seen = check.seen(end)
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in seen["pairs"]}
    assert (errors[0, 1], errors[0, 2]) == ("", "")
    assert errors[1, 2].isprintable()
    assert seen["together"]["error"] == ""
    assert "worker-1 (n1) and worker-2 (n2) cannot reduce together" in end.outcome.reason


def test_a_node_that_leaves_an_elastic_job_takes_its_pairs_with_it() -> None:
    check = Check(4, how="before", present=(0, 1, 3))
    end = check.run(
        lambda node, question: "lost" if (node, question.__class__) == (1, Serve) else None
    )
    seen = check.seen(end)
    assert end.outcome is None
    assert [(pair["a"], pair["b"]) for pair in seen["pairs"]] == [(0, 3)]
    assert seen["left_out"]["pairs"] == 0
    assert seen["absent"] == ["worker-1", "worker-2"]
    assert "not there: worker-1 (n1), worker-2 (n2)" in end.lines


def test_one_node_of_an_elastic_job_has_nothing_to_measure() -> None:
    check = Check(3, how="before", present=(0,))
    end = check.run()
    assert (end.outcome, end.files) == (None, ())
    assert check.order == [[]]


NONSENSE = [
    {},
    {"kind": "Ready"},
    {"kind": "Serving", "port": 0},
    {"kind": "Serving", "port": "7"},
    {"kind": ["Serving"]},
    {"kind": "Figures", **vars(FIGURES)},
]


@pytest.mark.promise(
    "a node that sends nonsense ends no other node's part of the network check",
    control="the answers that follow, in the same test",
)
@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_what_no_node_answers_is_invalid_and_changes_nothing(body: dict[str, Any]) -> None:
    """The leader then ends that node's session (tests/simulation); until then its question is
    open."""
    check = Check(2)
    coordinator = check.coordinator
    for ask in coordinator.begin(0.0):
        coordinator.take(ask.node, packed(Ready("gloo")), 0.0)
    with pytest.raises(Invalid):
        coordinator.take(0, body, 0.0)
    assert len(coordinator.take(0, packed(Serving(7)), 0.0)) == 2
    for bad in (
        {"latency_ms": "soon"},
        {"worst_ms": float("nan")},
        {"gbps": -1},
        {"gbps": 10**400},
    ):
        with pytest.raises(Invalid):
            coordinator.take(0, {**packed(FIGURES), **bad}, 0.0)
    for node in (0, 1):
        coordinator.take(node, packed(FIGURES), 0.0)
    assert check.seen(coordinator.conclude(None))["pairs"][0]["error"] == ""


def test_before_the_program_the_nodes_hold_a_roll_call_whatever_the_launcher_and_the_plan_says_so() -> (
    None
):
    before = "netcheck: {when: before}"
    made = settle(job(2, before), FACTS)
    assert made.mode == "coordinated"
    assert [
        each
        for each in made.later
        if each.startswith("network: measured before the program starts")
    ]
    with pytest.raises(ConfigError, match=r"EP313 netcheck\.when: before needs the roll call"):
        settle(job(2, f"{before}\nroll_call: none"), FACTS)
    assert replace(made, inquiry=inquiry(job(2), "before")).task == "plain after netcheck"
    assert replace(made, inquiry=inquiry(job(2), "text")).task == "plain (netcheck)"
    with pytest.raises(SpecError, match="launcher"):
        spec.load("launcher: netcheck", "job.yaml", SECRET, {})
