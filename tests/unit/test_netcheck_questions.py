"""The network check as worker-0 holds it: who is asked what when, and what becomes of nodes that
fail, leave or lie."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from entrypoint import spec
from entrypoint.errors import ConfigError, SpecError
from entrypoint.job.inquiry import Ask, Conclusion
from entrypoint.model import Facts, Interface
from entrypoint.netcheck.coordinator import Coordinator
from entrypoint.netcheck.inquiry import inquiry
from entrypoint.netcheck.messages import (
    Figures,
    MeasurePair,
    Open,
    Ready,
    Reduce,
    ServeReduce,
    SweepEnd,
    Unable,
    packed,
    unpacked,
)
from entrypoint.plan import settle
from entrypoint.values import replace
from entrypoint.wire import Invalid

pytestmark = pytest.mark.see
FACTS = Facts({}, "n0", "/work", 1000, "me", "/home/me", programs={"sshd": "/usr/sbin/sshd"})
SECRET = {"ENTRYPOINT_SECRET": secrets.token_hex(16), "ENTRYPOINT_NODE_RANK": "0"}
IB0 = Interface("ib0", "10.9.0.2", "10.9.0.0/24")
FIGURES = Figures(0.1, 0.2, 9.0, 8.0, ())
KINDS = (Open, MeasurePair, ServeReduce, Reduce)
GOOD = {
    Open: Ready(7),
    MeasurePair: FIGURES,
    ServeReduce: Unable("no torch"),
    Reduce: SweepEnd("", (), "", ()),
}


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
            assert 0 < ask.seconds < 130
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


def pairs(check: Check) -> list[list[tuple[int, str]]]:
    """The rounds: who was asked to measure with whom."""
    rounds = [
        [(node, it.host) for node, it in asked if isinstance(it, MeasurePair)]
        for asked in check.order
    ]
    return [each for each in rounds if each]


def test_all_get_ready_then_pairs_measure_round_by_round() -> None:
    check = Check(4, "netcheck: {seconds: 2}")
    end = check.run()
    assert [node for node, _ in check.order[0]] == [0, 1, 2, 3]
    assert [len(each) for each in pairs(check)] == [2, 2, 2]
    assert (1, MeasurePair("10.0.0.4", 7, 2.0)) in [it for asked in check.order for it in asked]
    assert end.outcome is not None
    assert (end.outcome.status, end.outcome.reason) == (
        0,
        "the network between 4 nodes is measured",
    )
    assert end.answer.startswith("node  ")
    assert len(check.seen(end)["pairs"]) == 6
    assert check.seen(end)["all_reduce"]["why_not"] == "worker-0: no torch"
    assert "<svg" in dict(end.files)["netcheck.html"]


def test_json_is_the_answer_where_it_was_asked_for_and_before_a_job_there_is_none() -> None:
    check = Check(2, how="json")
    end = check.run()
    assert json.loads(end.answer) == check.seen(end)
    before = Check(2, how="before").run()
    assert (before.outcome, before.answer) == (None, "")
    assert any(line.startswith("usual: ") for line in before.lines)


@pytest.mark.parametrize(
    ("text", "host"), [("", "10.0.0.2"), ("network: {interface: ib0}", "10.9.0.2")]
)
def test_the_interface_that_was_asked_for_is_measured(text: str, host: str) -> None:
    asked = job(2, text)
    plan = settle(asked, replace(FACTS, interfaces=(IB0,)))
    reports = {node: replace(plan.members.reports[node], interface=IB0) for node in range(2)}
    coordinator: Coordinator = inquiry(asked, "text").dialogue(plan, reports)
    for ask in coordinator.begin(0.0):
        further = coordinator.take(ask.node, packed(Ready(7)), 0.0)
    assert [ask.body["host"] for ask in further] == [host]


@pytest.mark.parametrize(
    ("limit", "fails"), [("max_latency_ms: 0.05", True), ("min_bandwidth_gbps: 5", False)]
)
@pytest.mark.parametrize("how", ["text", "json", "before"])
def test_a_limit_ends_the_job_with_75(limit: str, fails: bool, how: str) -> None:
    end = Check(2, f"netcheck: {{{limit}}}", how).run()
    if not fails:
        assert end.outcome is None or end.outcome.status == 0
        return
    assert end.outcome is not None
    assert end.outcome.status == 75
    assert end.outcome.reason.startswith(
        "EP013 the network is not fit for this job | worker-0 (n0) and worker-1 (n1)"
    )
    assert end.files, "what was measured is there in any case"


def test_what_takes_too_long_is_left_out_and_counted() -> None:
    check = Check(4, "netcheck: {limit: 1}")
    seen = check.seen(check.run())
    assert len(pairs(check)) == 1
    assert seen["left_out"] == {"pairs": 4, "why": "netcheck.limit, 1s, was over"}
    many = Check(40, "netcheck: {limit: 1000}")
    assert (
        many.seen(many.run())["left_out"]["why"]
        == "of more than 32 nodes a sample is, 16 peers of each"
    )


@pytest.mark.promise("a node that freezes, leaves or never comes is a red cell and no hang")
@pytest.mark.parametrize("kind", [Open, MeasurePair])
def test_a_silent_node_is_a_red_cell_and_asked_nothing_more(kind: type) -> None:
    check = Check(3)
    end = check.run(
        lambda node, question: "late" if node == 1 and isinstance(question, kind) else None
    )
    seen = check.seen(end)
    assert sum(node == 1 for asked in check.order for node, _ in asked) == (
        1 if kind is Open else 2
    )
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in seen["pairs"]}
    why = "worker-1 does not answer: no answer within 5s"
    silent = {(0, 1): why, (0, 2): "", (1, 2): why}
    assert all(error in ("", silent[pair]) for pair, error in errors.items())
    assert errors[1, 2] == why
    assert seen["all_reduce"]["why_not"] == "worker-1 cannot take part"
    assert end.outcome
    assert end.outcome.status == 75


@pytest.mark.control("a node that freezes, leaves or never comes is a red cell and no hang")
def test_a_pair_that_cannot_measure_is_named_and_others_go_on() -> None:
    why = "x\n[entrypoint] all is well\x1b[2J"
    check = Check(3)
    said = Unable(why, ("10.0.0.9",))
    end = check.run(
        lambda node, question: said if (node, question.__class__) == (1, MeasurePair) else None
    )
    seen = check.seen(end)
    errors = {(pair["a"], pair["b"]): pair["error"] for pair in seen["pairs"]}
    assert (errors[0, 1], errors[0, 2]) == ("", "")
    assert errors[1, 2].isprintable()
    assert seen["strangers"] == ["10.0.0.9 on worker-1"]
    assert end.outcome
    assert "worker-1 (n1) and worker-2 (n2) cannot reach each other" in end.outcome.reason


def test_a_node_that_leaves_an_elastic_job_takes_its_pairs_with_it() -> None:
    check = Check(4, how="before", present=(0, 1, 3))
    end = check.run(
        lambda node, question: "lost" if (node, question.__class__) == (1, MeasurePair) else None
    )
    seen = check.seen(end)
    assert end.outcome is None
    assert [(pair["a"], pair["b"]) for pair in seen["pairs"]] == [(0, 3)]
    assert seen["left_out"]["pairs"] == 0
    assert seen["absent"] == ["worker-1", "worker-2"]
    assert "not there: worker-1 (n1), worker-2 (n2)" in end.lines
    assert "all-reduce: not measured, worker-0: no torch" in end.lines


def test_one_node_of_an_elastic_job_has_nothing_to_measure() -> None:
    check = Check(3, how="before", present=(0,))
    end = check.run()
    assert (end.outcome, end.files) == (None, ())
    assert check.order == [[]]


def test_nodes_that_all_have_torch_reduce_together() -> None:
    rows = ((1024, 0.001), (4096, 0.002))

    def answer(node: int, question: Any) -> Any:
        if isinstance(question, Reduce):
            return SweepEnd("gloo", rows if node == 0 else (), "", ())
        return Ready(9) if isinstance(question, ServeReduce) else None

    check = Check(3)
    seen = check.seen(check.run(answer))
    assert check.order[-2] == [(0, ServeReduce(3))]
    assert check.order[-1] == [(rank, Reduce(rank, 3, "10.0.0.1", 9)) for rank in range(3)]
    assert (seen["all_reduce"]["backend"], seen["all_reduce"]["ranks"]) == ("gloo", 3)
    assert [row["bytes"] for row in seen["all_reduce"]["sizes"]] == [1024, 4096]


@pytest.mark.parametrize("kind", [ServeReduce, Reduce])
@pytest.mark.parametrize("said", [Unable("no port is left"), "late"])
def test_an_all_reduce_that_fails_is_named_and_ends_nothing(kind: type, said: Any) -> None:
    first = 0 if kind is ServeReduce else 1

    def answer(node: int, question: Any) -> Any:
        if isinstance(question, kind) and node == first:
            return said
        return Ready(9) if isinstance(question, ServeReduce) else None

    check = Check(2)
    end = check.run(answer)
    assert end.outcome
    assert end.outcome.status == 0
    assert f"worker-{first}" in check.seen(end)["all_reduce"]["why_not"]


NONSENSE = [
    {},
    {"kind": "Ready"},
    {"kind": "Figures", **vars(FIGURES), "latency_ms": "soon"},
    {"kind": "Figures", **vars(FIGURES), "worst_ms": float("nan")},
    {"kind": "Figures", **vars(FIGURES), "back_gbps": -1},
    {"kind": "Figures", **vars(FIGURES), "there_gbps": 10**400},
    {"kind": "Figures", **vars(FIGURES), "rejected": 5},
    {"kind": "Figures", **vars(FIGURES), "rejected": ["x"] * 17},
    {"kind": ["Figures"]},
    {"kind": "Ready", "port": 7},
]


@pytest.mark.promise(
    "a node that sends nonsense ends no other node's part of the network check",
    control="the figures that follow, in the same test",
)
@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_what_no_node_answers_is_invalid_and_changes_nothing(body: dict[str, Any]) -> None:
    """The leader then ends that node's session (tests/simulation); until then its question is
    open."""
    check = Check(2)
    coordinator = check.coordinator
    for ask in coordinator.begin(0.0):
        coordinator.take(ask.node, packed(Ready(7)), 0.0)
    with pytest.raises(Invalid):
        coordinator.take(0, body, 0.0)
    assert [ask.body["kind"] for ask in coordinator.take(0, packed(FIGURES), 0.0)] == [
        "ServeReduce"
    ]
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
