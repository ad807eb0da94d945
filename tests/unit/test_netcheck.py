"""What a network check makes of its figures: rounds, slow nodes told from slow pairs, the table and
JSON."""

from __future__ import annotations

import json
import re

import pytest

from entrypoint.base.values import replace
from entrypoint.features.netcheck.analysis import findings, summary
from entrypoint.features.netcheck.coordinator import chosen
from entrypoint.features.netcheck.result import Measured, NetcheckResult, Together, as_json, text
from entrypoint.spec.jobspec import NetcheckSpec
from tests.netchecks import Change, of, slow

pytestmark = pytest.mark.see
WARN = NetcheckSpec()
BOTH = ("latency", "bandwidth")


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 31, 32])
def test_every_pair_is_measured_once_and_no_node_twice_at_a_time(nodes: int) -> None:
    made = chosen(nodes)
    pairs = [pair for each in made for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    for each in made:
        at_work = [node for pair in each for node in pair]
        assert len(at_work) == len(set(at_work))
    assert len(made) == nodes - 1 + nodes % 2


@pytest.mark.parametrize("nodes", [33, 100, 1001])
def test_of_many_nodes_a_sample_is_measured(nodes: int) -> None:
    made = chosen(nodes)
    peers = [sum(node in pair for each in made for pair in each) for node in range(0, nodes, 7)]
    assert {len(made)} == {16}
    assert min(peers) >= 15  # of an odd number, one rests in each round
    assert len({pair for each in made for pair in each}) == sum(map(len, made))


def found(
    result: NetcheckResult, limits: NetcheckSpec = WARN
) -> list[tuple[tuple[int, ...], tuple[str, ...], bool]]:
    return [(each.nodes, each.causes, each.fails) for each in findings(result, limits)]


@pytest.mark.promise("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 33])
@pytest.mark.parametrize("late", [0, 2])
def test_a_slow_node_is_named_and_nobody_else(nodes: int, late: int) -> None:
    assert found(of(nodes, slow(late))) == [((late,), BOTH, False)]


@pytest.mark.control("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
def test_where_all_are_alike_nobody_is(nodes: int) -> None:
    assert found(of(nodes)) == []


def test_two_slow_nodes_of_eight() -> None:
    late: Change = lambda a, b: slow(1)(a, b) or slow(6)(a, b)  # noqa: E731
    assert found(of(8, late)) == [((1,), BOTH, False), ((6,), BOTH, False)]


@pytest.mark.control("`netcheck` names the node whose packets are late, and its cause")
def test_a_slow_pair_is_no_slow_node() -> None:
    late: Change = lambda a, b: slow(1)(a, b) if (a, b) == (1, 3) else None  # noqa: E731
    assert found(of(5, late)) == [((1, 3), BOTH, False)]


def test_nodes_that_share_a_machine_make_nobody_slow() -> None:
    """Two and two share one: what is within a machine is fast, which makes the others no slower
    than usual."""

    def near(a: int, b: int) -> Measured | None:
        return Measured(a, b, 0.02, 0.1, 60.0) if a // 2 == b // 2 else None

    assert found(of(4, near)) == []
    assert of(4, near).usual[1] < 10


def test_who_cannot_be_reached_ends_the_job() -> None:
    gone: Change = lambda a, b: Measured(a, b, error="timed out") if 3 in (a, b) else None  # noqa: E731
    (finding,) = findings(of(4, gone), WARN)
    assert (finding.nodes, finding.fails) == ((3,), True)
    assert finding.text == "worker-3 cannot take part: timed out (with 3 of its peers)"

    def one(a: int, b: int) -> Measured | None:
        return Measured(a, b, error="connection refused") if (a, b) == (0, 2) else None

    (finding,) = findings(of(4, one), WARN)
    assert finding.text == "worker-0 and worker-2 cannot reduce together: connection refused"
    (finding,) = findings(of(3, lambda a, b: Measured(a, b, error="timed out")), WARN)
    assert finding.text == "no node can reduce with another: timed out"


def test_limits_end_the_job_and_what_only_is_slow_where_asked() -> None:
    result = of(4, slow(2))
    assert summary(findings(result, WARN)) == ""
    assert summary(findings(result, NetcheckSpec(max_latency_ms=300))) == ""
    for limits in (
        NetcheckSpec(max_latency_ms=5),
        NetcheckSpec(min_bandwidth_gbps=5),
        NetcheckSpec(action="stop"),
    ):
        assert found(result, limits) == [((2,), BOTH, True)], limits
    asked = summary(findings(result, NetcheckSpec(max_latency_ms=5)))
    assert re.fullmatch(
        r"worker-2 is slow: a small all-reduce takes 200 ms \(limit 5\), an all-reduce reaches 0.05"
        r" Gbit/s \(usual 9\.\d+\)",
        asked,
    )


def test_where_all_are_beyond_a_limit_nobody_is_blamed() -> None:
    asked = NetcheckSpec(min_bandwidth_gbps=100)
    (finding,) = findings(of(4), asked)
    assert (finding.nodes, finding.fails) == ((), True)
    assert finding.text.startswith("the whole network is slow: an all-reduce reaches 9.")
    assert found(of(2), asked) == [((0, 1), ("bandwidth",), True)]


def test_the_table_has_the_worst_first() -> None:
    result = of(4, slow(2))
    said = text(result, findings(result, WARN)).splitlines()
    assert said[0].split() == ["node", "latency", "ms", "worst", "ms", "Gbit/s", "peers"]
    assert re.fullmatch(r"worker-2 +200\.300 +201\.000 +0\.05 +3 of 3 +SLOW", said[1])
    assert [line.split()[-1] for line in said[2:5]] == ["ok"] * 3
    assert any(
        line.startswith("worker-2 is slow: a small all-reduce takes 200 ms") for line in said
    )
    assert said[-1] == "all 4 nodes together: 0.3 ms, 4 Gbit/s (gloo)"
    without = replace(result, together=Together(error="worker-1 does not answer"))
    last = text(without, ()).splitlines()[-1]
    assert last == "all 4 nodes together: not measured, worker-1 does not answer"


def test_json_has_all_of_it() -> None:
    result = of(4, slow(2))
    seen = json.loads(json.dumps(as_json(result, findings(result, WARN))))
    late = {"a": 0, "b": 2, "latency_ms": 200.3, "worst_ms": 201.0, "gbps": 0.05, "error": ""}
    assert len(seen["pairs"]) == 6
    assert late in seen["pairs"]
    assert [(each["nodes"], each["causes"]) for each in seen["findings"]] == [
        (["worker-2"], list(BOTH))
    ]
    assert seen["together"] == {"latency_ms": 0.3, "gbps": 4.0, "error": ""}
