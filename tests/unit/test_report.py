"""What `entrypoint report` makes of what the nodes recorded: one axis, who was last, what is
missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.phases import MEANING
from entrypoint.base.wire import Invalid
from entrypoint.features.record.page import Axis, page
from entrypoint.features.record.status import load
from entrypoint.features.record.timeline import ClockShift, table, trace, who_was_last
from tests.made_up import merged, recorded, timeline

LOST = {"status": 75, "reason": "worker-2 is lost"}

THEIRS = {"answered": 10.0, "started": 11.0, "released": 90.0, "reported": 91.0}


def shifted(by: float, later: float = 0.0, way: float = 0.25) -> dict[str, float]:
    """What worker-0 notes, where its clock is so far ahead, at the end so much more, and a message
    takes `way`."""
    return {
        "answered": 10.0 + by + way,
        "started": 11.0 + by - way,
        "released": 90.0 + by + later - way,
        "reported": 91.0 + by + later + way,
    }


@pytest.mark.promise("clocks that begin anywhere and drift apart meet on one axis")
@pytest.mark.parametrize("by", [0.0, 1e6, -1e6])
def test_clocks_that_begin_anywhere_meet_on_one_axis(by: float) -> None:
    shift = ClockShift.between(THEIRS, shifted(by))
    assert (shift(10.0), shift(50.0), shift.error) == pytest.approx((10.0 + by, 50.0 + by, 0.25))


def test_the_tighter_limits_count() -> None:
    mine = shifted(100.0) | {"answered": 110.002, "released": 189.998}
    shift = ClockShift.between(THEIRS, mine)
    assert (shift(10.0), shift.error) == pytest.approx((110.0, 0.002))


@pytest.mark.promise("clocks that begin anywhere and drift apart meet on one axis")
def test_clocks_that_drift_apart_over_days() -> None:
    shift = ClockShift.between(THEIRS, shifted(100.0, later=4.0))
    assert shift is not None
    assert (shift(10.0), shift(91.0), shift(50.5)) == pytest.approx((110.0, 195.0, 152.5))
    assert shift.error == pytest.approx(0.25)


@pytest.mark.control("clocks that begin anywhere and drift apart meet on one axis")
def test_a_node_that_heard_nothing_has_no_place() -> None:
    assert ClockShift.between(dict.fromkeys(THEIRS, 0.0), shifted(1.0)) is None
    given = recorded()
    given["peers"]["1"]["part"] |= dict.fromkeys(THEIRS, 0.0)
    assert "its clock cannot be compared" in merged(given).bars[1].note


def test_the_late_node_is_the_last_and_each_node_s_phases_add_up() -> None:
    made = timeline(late=15.0)
    assert made.last.name == "worker-3"
    assert who_was_last(made).endswith("its container or entrypoint started 15s after the first.")
    for bar in made.bars:
        assert sum(each.seconds for each in bar.phases) == pytest.approx(bar.seconds)
    assert [round(bar.phases[0].start, 2) for bar in made.bars] == [0.0, 0.1, 0.2, 15.0]


def test_a_late_leader_is_the_last_though_the_others_answer_after_it() -> None:
    given = recorded(late=0.5)
    for peer in given["peers"].values():  # all began nine seconds before it
        phases = peer["part"]["phases"]
        (facts, *begun), (call, *called) = phases[0], phases[3]
        phases[1:3] = [(name, start - 9, end - 9, "") for name, start, end, _ in phases[1:3]]
        phases[0] = (facts, begun[0] - 9, *begun[1:])
        phases[3] = (call, called[0] - 9, *called[1:])
    made = merged(given)
    assert made.last.name == "worker-0"


def test_a_node_that_worker_0_found_late_is_the_last() -> None:
    given = recorded(late=0.5)
    given["peers"]["1"]["answered"] += 7.0
    given["phases"] = [
        (name, start, end + 7.0 * (name == "DNS" and about == "worker-1"), about)
        for name, start, end, about in given["phases"]
    ]
    words = who_was_last(merged(given))
    assert words.startswith("worker-1 was last"), words
    assert words.endswith("after its sshd listened, 7.01s of that for DNS."), words


@pytest.mark.promise("a node that dies leaves its part out, and the report says so")
def test_who_is_missing_is_named() -> None:
    given = recorded(lost=(2,))
    del given["peers"]["1"]
    made = merged(given, LOST)
    assert [bool(bar.phases) for bar in made.bars] == [True, False, False, True]
    text = table(made)
    assert text.startswith("job resnet-50, 58.9s, ended with 75: worker-2 is lost\n")
    assert "worker-1: it never answered: not reached.\n" in text
    assert "worker-2: its part did not arrive: its session ended.\n" in text
    assert re.search(r"(?m)^worker-2 +-", text)
    assert "worker-3: " not in text


@pytest.mark.parametrize(
    ("change", "note"),
    [({"alone": True}, "each has a file of its own"), ({"me": 1}, "worker-0's has all nodes")],
)
def test_a_node_s_own_file_says_that_it_is(change: dict[str, Any], note: str) -> None:
    made = merged({**recorded(nodes=2), "peers": {}, **change})
    assert [note in bar.note for bar in made.bars] == [bool(change.get("me")), not change.get("me")]
    assert made.last is None
    assert "was last" not in table(made)


def test_the_trace_has_a_process_for_each_node_and_a_thread_for_each_rank() -> None:
    made = json.loads(trace(timeline()))
    names = {
        each["args"]["name"]: each["pid"]
        for each in made["traceEvents"]
        if each["name"] == "process_name"
    }
    assert list(names) == [f"worker-{rank}" for rank in range(4)]
    first = names["worker-0"]
    events = [each for each in made["traceEvents"] if each["ph"] == "X"]
    (run,) = (
        each for each in events if (each["name"], each["pid"], each["tid"]) == ("run", first, first)
    )
    assert run["dur"] == 40_000_000
    threads = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in made["traceEvents"]
        if each["name"] == "thread_name"
    }
    assert threads[first, first] == "node"
    assert "rank 3" in threads.values()


@pytest.mark.promise(
    "the trace follows Perfetto's rules: numbers from 1, no overlap",
    control="a trace that began at 0, before it was changed",
)
def test_the_trace_is_what_perfetto_asks_for() -> None:
    """Whole numbers, no process or thread 0, no time before 0, no thread of two processes, nothing
    that overlaps."""
    made = json.loads(trace(timeline()))
    threads: dict[int, set[int]] = {}
    ends: dict[int, int] = {}
    for each in sorted(made["traceEvents"], key=lambda each: each.get("ts", 0)):
        assert each["ph"] in ("X", "M")
        assert all(type(each[name]) is int and each[name] > 0 for name in ("pid", "tid"))
        threads.setdefault(each["tid"], set()).add(each["pid"])
        if each["ph"] == "X":
            assert all(type(each[name]) is int and each[name] >= 0 for name in ("ts", "dur"))
            assert each["ts"] >= ends.get(each["tid"], 0)
            ends[each["tid"]] = each["ts"] + each["dur"]
        else:
            assert "ts" not in each
            assert each["args"]
    assert all(len(processes) == 1 for processes in threads.values())


def test_the_page_quotes_what_it_is_given() -> None:
    given = recorded()
    given["names"][1], given["job"] = "<script>alert(1)</script>", 'a"&<b>'
    text = page(merged(given, {"status": 1, "reason": "<img src=x>"}))
    assert "<script" not in text
    assert "<img" not in text
    assert "a&quot;&amp;&lt;b&gt;" in text
    assert not re.search(r"https?://|@import|url\(", text)
    assert text.count('<section class="node') == 4


def test_a_run_of_hours_does_not_hide_the_boot() -> None:
    short, hours = Axis.of(timeline(run=5.0)), Axis.of(timeline(run=36_000.0))
    assert short.cut == short.on
    assert hours(hours.cut) > 50, "seconds of the boot have half of the width"
    assert hours(hours.on) - hours(hours.cut) == pytest.approx(12.0)
    assert hours(hours.whole) == pytest.approx(100.0)
    assert "The 10h00m in which all nodes ran are drawn shorter" in page(timeline(run=36_000.0))
    assert "drawn shorter" not in page(timeline(run=5.0))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"version": 1}', "[" * 100_000),
        '{"version": 1, "toolkit": "", "timeline": {"me": 7, "names": [], "peers": {}}}',
        (
            '{"version": 1, "toolkit": "", "timeline": {"me": 0, "names": ["a"], "peers": [],'
            ' "phases": [1]}}'
        ),
        '{"version": 2, "toolkit": "", "timeline": null}',
    ],
)
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run-state.json").write_text(text)
    with pytest.raises(Invalid):
        load(str(tmp_path / "run-state.json"))
    whole = {"version": 1, "toolkit": "", "timeline": recorded()}
    (tmp_path / "run-state.json").write_text(json.dumps(whole))
    timeline = load(str(tmp_path / "run-state.json")).timeline
    assert timeline.job == "resnet-50", "the control"


def test_a_failed_job_s_page_begins_with_the_cause() -> None:
    text = page(timeline(LOST, lost=(2,)))
    assert '<p class="banner">The job ended with 75: worker-2 is lost</p>' in text
    assert text.count('class="node lost"') == 1
    assert 'banner">' not in page(timeline({"status": 0, "reason": "done"}))


def test_a_page_has_a_row_for_every_phase() -> None:
    rows = [(name, 1000.0 + at, 1001.0 + at, "") for at, name in enumerate(MEANING)]
    text = page(merged({**recorded(nodes=1), "phases": rows}))
    assert all(f"</span>{name}</td>" in text for name in MEANING)


def test_a_page_says_when_the_job_began() -> None:
    assert timeline().began == pytest.approx(1795000000.0)
    assert "began 2026-11-18T" in page(timeline())


def test_a_page_has_six_colours_and_its_details_in_words() -> None:
    """What a pointer shows over a part of a bar is also there for who touches."""
    text = page(timeline(lost=(2,)))
    assert len(set(re.findall(r"\.k-([a-z]+) ", text)) - {"lost"}) <= 6
    for title in set(re.findall(r'title="([^"]+)"', text)):
        name, _, _ = title.partition(": ")
        assert f"</span>{name}</td>" in text or title in text.replace(f'title="{title}"', ""), title
    assert "<td>from " in text


POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
PAGES = sorted((Path(__file__).parents[2] / "templates").rglob("*.html.j2"))


@pytest.mark.promise("every page's policy lets it load and run nothing")
@pytest.mark.parametrize("template", PAGES, ids=lambda path: path.stem)
def test_a_page_may_load_and_run_nothing(template: Path) -> None:
    """Every page has the strict policy ahead of all that it applies to, and nothing that the policy
    would stop."""
    head, policy, rest = template.read_text().partition(
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    )
    assert policy, f"{template.name} has no such Content-Security-Policy"
    assert re.findall(r"<(\w+)", head) == ["html", "head", *["meta"] * head.count("<meta ")]
    assert not re.search(
        r"<(script|link|img|iframe|form|base|object)\b|\bon\w+=|url\(|@import", rest
    )


@pytest.mark.control("every page's policy lets it load and run nothing")
def test_every_page_is_tried() -> None:
    """The control of the one above: it has the pages that are known."""
    assert [path.stem for path in PAGES] == ["timeline.html"]
