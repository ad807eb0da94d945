"""What a network check makes of its figures: rounds, slow nodes told from slow pairs, the table,
JSON and the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from shlex import split
from xml.etree import ElementTree

import pytest

from entrypoint.netcheck.analysis import findings, summary, usual
from entrypoint.netcheck.page import page, step
from entrypoint.netcheck.pairs import chosen, rounds
from entrypoint.netcheck.result import Measured, NetcheckResult, as_json, bus_bandwidth
from entrypoint.netcheck.table import text
from entrypoint.spec.jobspec import NetcheckSpec
from tests.netchecks import Change, made_up, made_up_page, of, slow

pytestmark = pytest.mark.see
WARN = NetcheckSpec()


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
    made, every = chosen(nodes), {tuple(each) for each in rounds(nodes)}
    peers = [sum(node in pair for each in made for pair in each) for node in range(0, nodes, 7)]
    assert {len(made)} == {16}
    assert min(peers) >= 15  # of an odd number, one rests in each round
    assert {tuple(each) for each in made} <= every


def found(
    result: NetcheckResult, limits: NetcheckSpec = WARN
) -> list[tuple[tuple[int, ...], tuple[str, ...], bool]]:
    return [(each.nodes, each.causes, each.fails) for each in findings(result, limits)]


ALL = ("latency", "send", "receive")


@pytest.mark.promise("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 33])
@pytest.mark.parametrize("late", [0, 2])
def test_a_slow_node_is_named_and_nobody_else(nodes: int, late: int) -> None:
    assert found(of(nodes, slow(late))) == [((late,), ALL, False)]


@pytest.mark.control("`netcheck` names the node whose packets are late, and its cause")
@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
def test_where_all_are_alike_nobody_is(nodes: int) -> None:
    assert found(of(nodes)) == []


def test_two_slow_nodes_of_eight() -> None:
    late: Change = lambda a, b: slow(1)(a, b) or slow(6)(a, b)  # noqa: E731
    assert found(of(8, late)) == [((1,), ALL, False), ((6,), ALL, False)]


@pytest.mark.control("`netcheck` names the node whose packets are late, and its cause")
def test_a_slow_pair_is_no_slow_node() -> None:
    late: Change = lambda a, b: slow(1)(a, b) if (a, b) == (1, 3) else None  # noqa: E731
    assert found(of(5, late)) == [((1, 3), ALL, False)]


@pytest.mark.parametrize(("way", "there", "back"), [("send", 1.0, 9.4), ("receive", 9.4, 1.0)])
def test_a_node_that_is_slow_one_way(way: str, there: float, back: float) -> None:
    def late(a: int, b: int) -> Measured | None:
        if 2 not in (a, b):
            return None
        return Measured(a, b, 0.06, 0.1, *((there, back) if a == 2 else (back, there)))

    assert found(of(4, late)) == [((2,), (way,), False)]


def test_nodes_that_share_a_machine_make_nobody_slow() -> None:
    """Two and two share one: what is within a machine is fast, which makes the others no slower
    than usual."""

    def near(a: int, b: int) -> Measured | None:
        return Measured(a, b, 0.02, 0.1, 60.0, 60.0) if a // 2 == b // 2 else None

    assert found(of(4, near)) == []
    assert usual(of(4, near))[1] < 10


def test_who_cannot_be_reached_ends_the_job() -> None:
    gone: Change = lambda a, b: Measured(a, b, error="timed out") if 3 in (a, b) else None  # noqa: E731
    (finding,) = findings(of(4, gone), WARN)
    assert (finding.nodes, finding.fails) == ((3,), True)
    assert finding.text == "worker-3 cannot be reached: timed out (with 3 of its peers)"

    def one(a: int, b: int) -> Measured | None:
        return Measured(a, b, error="connection refused") if (a, b) == (0, 2) else None

    (finding,) = findings(of(4, one), WARN)
    assert finding.text == "worker-0 and worker-2 cannot reach each other: connection refused"
    (finding,) = findings(of(3, lambda a, b: Measured(a, b, error="timed out")), WARN)
    assert finding.text == "no node can reach another: timed out"


def test_limits_end_the_job_and_what_only_is_slow_where_asked() -> None:
    result = of(4, slow(2))
    assert summary(findings(result, WARN)) == ""
    assert summary(findings(result, NetcheckSpec(max_latency_ms=300))) == ""
    for limits in (
        NetcheckSpec(max_latency_ms=5),
        NetcheckSpec(min_bandwidth_gbps=5),
        NetcheckSpec(action="stop"),
    ):
        assert found(result, limits) == [((2,), ALL, True)], limits
    asked = summary(findings(result, NetcheckSpec(max_latency_ms=5)))
    assert asked.startswith(
        "worker-2 is slow: round trips take 200 ms (limit 5), sends 0.05 Gbit/s (usual 9."
    )


def test_where_all_are_beyond_a_limit_nobody_is_blamed() -> None:
    asked = NetcheckSpec(min_bandwidth_gbps=100)
    (finding,) = findings(of(4), asked)
    assert (finding.nodes, finding.fails) == ((), True)
    assert finding.text.startswith("the whole network is slow: sends 9.")
    assert found(of(2), asked) == [((0, 1), ("send", "receive"), True)]


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """The example of its PERFORMANCE.md: 2 (n - 1) / n of what an all-reduce moves."""
    assert bus_bandwidth(1_000_000_000, 1.0, 2) == pytest.approx(1.0)
    assert bus_bandwidth(1_000_000_000, 0.5, 8) == pytest.approx(2 * 2 * 7 / 8)
    assert bus_bandwidth(1024, 0.0, 8) == 0.0


def test_the_table_has_the_worst_first() -> None:
    result = made_up()
    said = text(result, findings(result, WARN)).splitlines()
    assert said[0].split() == split(
        "node round trip ms worst ms sends Gbit/s receives Gbit/s peers"
    )
    assert re.fullmatch(r"worker-2 +200\.300 +201\.000 +0\.05 +0\.05 +3 of 3 +SLOW", said[1])
    assert [line.split()[-1] for line in said[2:5]] == ["ok"] * 3
    assert any(
        line.startswith("worker-2 is slow: round trips take 200 ms (usual 0.06") for line in said
    )
    assert "rejected, without the job's token: 10.0.0.99 on worker-1" in said
    assert said[-8].split() == ["size", "ms", "bus", "MB/s"]
    assert said[-1].split()[:2] == ["4", "MiB"]
    assert "no torch on worker-0" in text(of(4), ())


def test_json_has_all_of_it() -> None:
    result = made_up()
    seen = json.loads(json.dumps(as_json(result, findings(result, WARN))))
    assert len(seen["pairs"]) == 6
    assert {"a": 0, "b": 2, "latency_ms": 200.3, "worst_ms": 201.0, "there_gbps": 0.05, "back_gbps": 0.05,
            "error": ""} in seen["pairs"]  # fmt: skip
    assert [(each["nodes"], each["causes"]) for each in seen["findings"]] == [
        (["worker-2"], list(ALL))
    ]
    assert seen["all_reduce"]["sizes"][-1]["bytes"] == 4 << 20


# --------------------------------------------------------------------------------------------------
# The page. tests/see has it in a browser, with others


class Links(HTMLParser):
    """What a page would load, or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{tag} {value}"
            for name, value in attrs
            if name in ("src", "href") and value != "data:,"
        ]
        if tag in ("script", "iframe", "object", "embed"):
            self.found.append(tag)


@pytest.mark.promise("the heat map needs no network, and text of other nodes is text there")
def test_the_page_asks_for_nothing() -> None:
    parser = Links()
    parser.feed(made_up_page())
    assert parser.found == []
    assert "url(" not in made_up_page()


@pytest.mark.control("the heat map needs no network, and text of other nodes is text there")
@pytest.mark.parametrize("nodes", [4, 40])
def test_the_slow_node_s_row_and_column_stand_out(nodes: int) -> None:
    shown = made_up_page(nodes)
    maps = [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", shown, re.DOTALL)]
    assert len(maps) == 2
    for drawn in maps:
        cells = [(each.find("rect"), each.findtext("title") or "") for each in drawn.iter("g")]
        assert len(cells) == nodes * (nodes - 1)
        hot = [title for rect, title in cells if rect is not None and rect.get("class") == "s5"]
        assert len(hot) == 2 * (nodes - 1)
        assert all("worker-2 " in f"{title} ".replace(":", " ") for title in hot)
        assert [each.text for each in drawn.iter("text") if each.get("class") == "bad"] == [
            "worker-2",
            "2",
        ]
        assert len([each for each in drawn.iter("rect") if each.get("class") == "band"]) == 2


def test_where_nobody_is_slow_nothing_stands_out() -> None:
    shown = page(of(4), (), "demo")
    assert 'class="s5"' not in shown
    assert 'class="band"' not in shown
    assert "No node is slow compared with the others." in shown


@pytest.mark.promise("the heat map needs no network, and text of other nodes is text there")
def test_what_others_said_is_text_on_the_page() -> None:
    bad = of(3, lambda a, b: Measured(a, b, error='<script>alert("1")</script>'))
    shown = page(bad, findings(bad, WARN), "<b>")
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown


def test_colours_go_from_usual_to_ten_times_worse() -> None:
    assert [step(times) for times in (0.1, 1, 1.5, 2, 4, 9.9, 10, 1e9)] == [0, 0, 0, 1, 3, 4, 5, 5]
