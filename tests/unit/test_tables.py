"""The tables that a run prints: every line that does not hold is seen, over all rounds."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.containers import TREE
from tests.plugin.tables import TABLES, Line, Table, Tally


def phase(outcome: str, when: str = "call", **noted: object) -> Any:
    """What pytest reports of one phase of a test that took half a second."""
    return SimpleNamespace(
        nodeid="test", when=when, duration=0.5, longrepr=("file", 1, "no engine"), user_properties=[*noted.items()],
        passed=outcome == "passed", failed=outcome == "failed", skipped=outcome == "skipped",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("phases", "result"),
    [
        ([], "NOT TRIED"),
        ([phase("passed", "setup")], "NOT TRIED"),
        ([phase("passed")], "ok"),
        ([phase("passed"), phase("failed")], "FAILED"),
        ([phase("passed"), phase("failed", "teardown")], "FAILED"),
        ([phase("failed"), phase("skipped", "setup")], "FAILED"),
        ([phase("passed"), phase("skipped", "setup")], "not tried: no engine"),
    ],
)
def test_a_line_holds_when_all_of_its_tests_do(phases: list[Any], result: str) -> None:
    line = Line(("1", "a fault", "any", "5 s"))
    for each in phases:
        line.note(each)
    assert line.result == result


def a_run(every: bool, file: Path | None, *phases: Any) -> tuple[int, list[str]]:
    """Exit status and table of a run of one test of the table of faults."""
    tally = Tally(
        Table("faults", lambda item: ("key", ("1", "kill", "any", "5 s")), TABLES["faults"].cells),
        every,
        file,
    )
    tally.pytest_itemcollected(cast(Any, SimpleNamespace(nodeid="test")))
    for each in phases:
        each.table_line = tally.table.find(cast(Any, None))  # as `Labels` does, also in a worker
        tally.pytest_runtest_logreport(each)
    session = SimpleNamespace(exitstatus=0)
    said: list[str] = []
    tally.pytest_sessionfinish(cast(Any, session))
    tally.pytest_terminal_summary(
        cast(Any, SimpleNamespace(section=said.append, write_line=said.append))
    )
    return session.exitstatus, said


def test_rounds_add_up(tmp_path: Path) -> None:
    file = tmp_path / "rounds"
    assert a_run(True, file, phase("passed", seconds=1)) == (
        0,
        ["faults", "1  kill  any    5 s  1.00  ok"],
    )
    assert a_run(True, file, phase("failed", seconds=2)) == (
        1,
        ["faults", "1  kill  any    5 s  1.00 2.00  FAILED"],
    )
    assert a_run(True, file, phase("passed", seconds=3)) == (
        0,
        ["faults", "1  kill  any    5 s  1.00 2.00 3.00  FAILED"],
    )


def test_every_line_has_to_be_tried_where_all_were_asked_for() -> None:
    assert a_run(True, None) == (1, ["faults", "1  kill  any    5 s    NOT TRIED"])
    assert a_run(False, None) == (0, [])  # the control
    assert a_run(True, None, phase("skipped", "setup"))[0] == 1
    assert a_run(False, None, phase("skipped", "setup"))[0] == 0


def test_what_was_seen_is_in_the_table() -> None:
    line = Line(("1", "mpirun on 2 nodes"))
    line.note(phase("passed", seen="COMPLETED 0:0"))
    line.note(phase("passed", "teardown"))
    assert TABLES["slurm"].cells(line) == ("1", "mpirun on 2 nodes", "COMPLETED 0:0", "0.5", "ok")


def test_every_row_of_the_table_of_faults_has_a_test() -> None:
    texts = [path.read_text() for path in sorted((TREE / "tests").glob("*/test_*.py"))]
    found = {
        int(row) for text in texts for row in re.findall(r'pytest\.mark\.fault\("(\d+)"', text)
    }
    assert found == set(range(1, 18))


def test_what_a_test_shows_stands_below_the_table() -> None:
    assert a_run(True, None, phase("passed", seconds=1, shown="node-2 was last"))[1][2:] == [
        "\n1: kill: any: 5 s\n\nnode-2 was last"
    ]
    assert a_run(True, None, phase("passed", seconds=1))[1][2:] == []  # the control
