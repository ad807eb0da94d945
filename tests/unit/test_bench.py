"""What the benchmarks compute from raw numbers. Nothing is timed: the numbers are made up."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench import __main__ as bench
from scripts.bench.figures import (
    MARGIN,
    Figure,
    Goal,
    Series,
    by_name,
    figure,
    interval,
    number,
    packed,
    ratio_of,
    unpacked,
    worse,
)  # fmt: skip
from scripts.bench.page import BEGIN, END, About, anchor, laid, text
from scripts.bench.rows import ROWS
from scripts.bench.rows.output import grown
from scripts.bench.table import Row

BARE = Series("2 nodes", "bare", "s", (0.4, 0.5, 0.6))
OURS = Series("2 nodes", "ours", "s", (0.6, 0.9, 0.75))
FAILED = Series("2 nodes", "ours", "s", (0.6, "no sshd", 0.6))


def found(kind: str, limit: float, ours: Series = OURS, bare: Series = BARE) -> Figure:
    return figure(Goal("2 nodes", "ours", "bare", kind, limit), by_name([ours, bare]))  # type: ignore[arg-type]


def test_medians_leave_failed_runs_out_and_say_so() -> None:
    assert OURS.median == 0.75
    assert (FAILED.median, FAILED.failed) == (0.6, ["no sshd"])
    assert math.isnan(Series("", "", "s", ("no", "no")).median)
    # the median is within, and still the goal is not reached
    assert found("ratio", 2.0, FAILED) == Figure(
        pytest.approx(1.2), "1.20, 1 of 3 runs failed", False
    )


@pytest.mark.parametrize(
    ("kind", "limit", "value", "words", "held"),
    [
        ("ratio", 1.5, 1.5, "1.50", True),
        ("ratio", 1.4, 1.5, "1.50", False),
        ("more", 0.3, 0.25, "+0.250 s", True),
        ("more", 0.2, 0.25, "+0.250 s", False),
        ("value", 0.75, 0.75, "0.750 s", True),
        ("each", 0.8, 0.9, "0.900 s at worst", False),
        ("each ratio", 1.8, 1.8, "1.80 at worst, 3 of 3 within", True),
        ("each ratio", 1.6, 1.8, "1.80 at worst, 2 of 3 within", False),
        ("at least", 1.5, 1.5, "1.50", True),
        ("at least", 1.6, 1.5, "1.50", False),
    ],
)
def test_goals(kind: str, limit: float, value: float, words: str, held: bool) -> None:
    assert found(kind, limit) == Figure(pytest.approx(value), words, held)


def test_the_interval_is_that_of_a_textbook() -> None:
    # mean 2, standard deviation 1, 3 values: 4.30 / sqrt(3) to both sides
    assert interval([1, 2, 3]) == pytest.approx((2 - 2.483, 2 + 2.483), abs=0.01)
    ours = Series("2 nodes", "ours", "s", (1.0, 1.02, 0.99))
    bare = Series("2 nodes", "bare", "s", (1.0, 1.0, 1.0))
    assert found("interval", 1.0, ours, bare).held
    slow = Series("2 nodes", "ours", "s", (1.10, 1.11, 1.12))
    assert not found("interval", 1.0, slow, bare).held
    # one pair shows nothing
    assert not found("interval", 1.0, Series("2 nodes", "ours", "s", (1.0,)), bare).held


def test_a_run_whose_neighbour_failed_shows_nothing() -> None:
    assert not found(
        "each ratio", 9.0, OURS, Series("2 nodes", "bare", "s", (0.4, "lost a line", 0.6))
    ).held


def test_what_was_not_measured_is_not_reached() -> None:
    assert (
        figure(Goal("2 nodes", "ours", "bare", "ratio", 9), by_name([OURS])).text == "not measured"
    )
    assert not figure(Goal("8 nodes", "ours", "", "value", 9), by_name([OURS])).held


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.001234, "s", "0.00123 s"), (0.88, "s", "0.880 s"), (1.5, "", "1.50"), (49.04, "MB", "49.0 MB"),
        (1059.0, "", "1059"),        (0.0, "bytes", "0 bytes"), (-0.25, "s", "-0.250 s"), (math.nan, "s", "none"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, unit: str, words: str) -> None:
    assert number(value, unit) == words


def test_the_check_fails_past_its_margin_and_not_before() -> None:
    goal, committed = Goal("2 nodes", "ours", "bare", "ratio", 9), by_name([OURS, BARE])  # 1.5
    assert MARGIN == 1.3

    def now(ours: float) -> tuple[str, bool] | None:
        return worse(goal, by_name([Series("2 nodes", "ours", "s", (ours,)), BARE]), committed)

    assert now(0.97) == ("2 nodes, ours over bare: 1.94, before 1.50, at most 1.95", False)
    assert now(0.98) == ("2 nodes, ours over bare: 1.96, before 1.50, at most 1.95", True)
    # a run that failed is worse than any number, and where nothing is committed nothing is compared
    failed = worse(goal, by_name([FAILED, BARE]), committed)
    assert failed
    assert failed[1]
    assert worse(goal, committed, {}) is None
    assert math.isnan(ratio_of(goal, by_name([OURS])))


def test_what_is_added_has_to_grow_with_the_ratio() -> None:
    goal, committed = Goal("2 nodes", "ours", "bare", "more", 1.0), by_name([OURS, BARE])

    def now(ours: float, bare: float) -> tuple[str, bool] | None:
        return worse(
            goal,
            by_name(
                [
                    Series("2 nodes", way, "s", (run,))
                    for way, run in (("ours", ours), ("bare", bare))
                ]
            ),
            committed,
        )

    words = "2 nodes, ours over bare: 2.25, before 1.50, at most 1.95; or +0.250 s, before +0.250 s"
    assert now(0.45, 0.2) == (words, False)  # a faster engine
    slower = now(1.5, 1.0)
    assert slower
    assert not slower[1]
    regression = now(1.0, 0.5)
    assert regression
    assert regression[1]


def test_a_shell_that_starts_faster_makes_no_health_check_worse() -> None:
    """The shell that it is compared with takes less than a millisecond."""
    health = next(row for row in ROWS if row.name == "health")
    (goal,) = health.also

    def measured(entrypoint: float, shell: float) -> dict[tuple[str, str], Series]:
        ways = {goal.way: entrypoint, goal.beside: shell}
        return by_name([Series(goal.case, way, "s", (run,)) for way, run in ways.items()])

    committed = measured(0.00515, 0.000736)
    for entrypoint, shell, is_worse in ((0.00596, 0.000634, False), (0.0072, 0.000736, True)):
        compared = worse(goal, measured(entrypoint, shell), committed)
        assert compared
        assert compared[1] == is_worse


def test_the_check_of_a_rate_fails_below() -> None:
    goal, committed = Goal("2 nodes", "ours", "bare", "at least", 0.8), by_name([OURS, BARE])
    line = worse(goal, by_name([Series("2 nodes", "ours", "s", (0.5,)), BARE]), committed)
    assert line == ("2 nodes, ours over bare: 1.00, before 1.50, at least 1.15", True)


def test_memory_that_grows_while_as_many_processes_run() -> None:
    assert grown([(1, 40.0), (3, 70.0), (3, 70.5), (3, 75.0), (2, 50.0)]) == (75.0, 5.0)
    # more processes are no growth
    assert grown([(1, 40.0), (3, 70.0), (3, 69.0)]) == (70.0, 0.0)


def test_raw_numbers_are_kept_as_they_are() -> None:
    assert unpacked(packed([FAILED, BARE])) == [FAILED, BARE]


ROW = About(
    "boot", "Boot (whole)", "How it is done.", (Goal("2 nodes", "ours", "bare", "ratio", 1.2),)
)
KEPT = {
    "at": "today",
    "machine": {"cores": "2", "Linux": "6.1"},
    "in use": 3.4,
    "series": packed([BARE, FAILED]),
}
PAGE = """
| what | case | measured | goal | reached |
|---|---|---|---|---|
| [Boot (whole)](#boot-whole) | 2 nodes: ours over bare | 1.20, 1 of 3 runs failed | at most 1.2 | no |

### Boot (whole)

How it is done.

| case | way | median | runs |
|---|---|---|---|
| 2 nodes | bare | 0.500 s | 0.400, 0.500, 0.600 |
| 2 nodes | ours | 0.600 s | 0.600, no sshd, 0.600 |

Measured today: cores 2, Linux 6.1; 3 % of the cores were in use before.
"""


def test_the_page_has_every_run_and_the_machine() -> None:
    assert text([ROW], {"boot": KEPT}) == PAGE.strip()
    assert "| not measured | | no |" in text([ROW], {})
    plotted = replace(ROW, plot="boot.svg")
    assert "done.\n\n![Boot (whole)](boot.svg)\n\n| case" in text([plotted], {"boot": KEPT})
    assert "boot.svg" not in text([plotted], {})  # which is not there yet


def test_only_what_is_between_the_markers_changes() -> None:
    page = laid(f"above\n{BEGIN}\nold\n{END}\nbelow\n", "new")
    assert page == f"above\n{BEGIN}\n\nnew\n\n{END}\nbelow\n"
    assert laid(page, "new") == page
    for broken in ("no markers", f"{BEGIN} only"):
        with pytest.raises(ValueError, match="the page has no"):
            laid(broken, "new")


def test_a_plot_leaves_cases_out_that_are_no_number_of_workers() -> None:
    """A row also has a case that compares two of them."""
    series = [
        {"case": case, "way": "per worker", "unit": "ms", "runs": [runs]}
        for case, runs in (("127 simulated workers", 4.0), ("999 over 127", 1.1))
    ]
    kept = {"roll-call-simulated": {"series": series}}
    found = bench._points(kept, "roll-call-simulated", " simulated workers", "per worker")
    assert found == {127.0: [4.0]}


def test_the_committed_page_is_that_of_the_committed_numbers() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "performance.md").read_text()
    kept = json.loads((docs / "performance.json").read_text())
    assert laid(page, text([row.about for row in ROWS], kept)) == page
    # Control: other numbers, another page.
    assert laid(page, text([ROW], {"boot": KEPT})) != page


def test_a_check_against_an_older_image_measures_both_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The committed numbers, with which a check would compare, are of another machine."""
    took = {"new": 0.75, "slow": 0.5, "fast": 0.25}

    def measured(row: Row, engine: object, args: object, image: str) -> dict[str, object]:
        return {"series": packed([Series("2 nodes", "ours", "s", (took[image],)), BARE])}

    class NoEngine:
        def close(self) -> None:
            pass

    # what the benchmarks do with signals would stay in the process of all tests
    monkeypatch.setattr(bench.signal, "signal", lambda signum, handler: None)
    monkeypatch.setattr(bench, "ROWS", [Row(ROW, lambda table: None, 1, 1)])
    monkeypatch.setattr(bench, "Engine", NoEngine)
    monkeypatch.setattr(bench, "_measured", measured)
    monkeypatch.setattr(bench, "_kept", lambda: {"boot": {"series": packed([OURS, BARE])}})
    for against, status in ((["--against", "fast"], 1), (["--against", "slow"], 1), ([], 0)):
        assert bench.main(["--check", "--image", "new", *against]) == status
    said = capsys.readouterr().out
    assert "ours over bare: 1.50, before 0.50, at most 0.65 (margin 1.3): FAILED" in said
    assert "ours over bare: 1.50, before 1.00, at most 1.30 (margin 1.3): FAILED" in said
    assert bench.main(["--check", "--image", "slow", "--against", "new"]) == 0
    with pytest.raises(SystemExit):
        bench.main(["--against", "fast"])


def test_rows_have_names_of_their_own_and_headings_that_can_be_linked() -> None:
    assert (
        len({row.name for row in ROWS})
        == len({anchor(row.about.title) for row in ROWS})
        == len(ROWS)
        == 19
    )
    # what `scripts/bench/run --check` tries has something to compare
    assert all(
        any(goal.beside for goal in (*row.about.goals, *row.also)) for row in ROWS if row.quick
    )
