"""One line for each row of tests/rows.py that was tried: engine, version, containers x processes, seconds, result.

With TRY_ENGINES=all, as `make test-engines` sets it, also those that are no part of `make test`; a row that was
not tried is then a failure. TRY_ENGINES=some tries what it was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.containers import TREE, Compose, ModelArts, missing
from tests.rows import ROWS, Row, ended, said, version

ASKED = os.environ.get("TRY_ENGINES", "")
ALL = ASKED == "all"
ROW_OF = {row.test: row for row in ROWS}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/engines" in item.nodeid]
    seldom = [] if ASKED else [item for item in here if not _often(item)]
    if seldom:
        config.hook.pytest_deselected(items=seldom)
        items[:] = [item for item in items if item not in seldom]
    for item in here:
        item.add_marker(pytest.mark.containers)
        reason = missing(_image(item))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _often(item: pytest.Item) -> bool:
    row = ROW_OF.get(item.nodeid)
    return row.often if row else not item.get_closest_marker("seldom")


def _image(item: pytest.Item) -> str:
    row = ROW_OF.get(item.nodeid)
    return row.image if row else str(item.module.IMAGE)  # type: ignore[attr-defined]


Ran = tuple[dict[str, str], str]  # host -> container, and all they said


@pytest.fixture
def job_yaml(compose: Compose) -> Callable[..., Ran]:
    """Run an example's spec in containers, to a good end."""

    def run(image: str, spec: str, *command: str, seconds: float = 150) -> Ran:
        compose.render(TREE / "examples" / spec, *command, image=image)
        compose.run("up", "-d")
        return well(compose.containers(), seconds)

    return run


@pytest.fixture
def variables(modelarts: ModelArts) -> Callable[..., Ran]:
    """Run an example from ModelArts' variables alone, to a good end."""

    def run(image: str, example: str, *command: str, seconds: float = 150, **more: object) -> Ran:
        return well(modelarts.start(image, example, *command, **more), seconds)  # type: ignore[arg-type]

    return run


def well(containers: dict[str, str], seconds: float) -> Ran:
    assert containers
    statuses = ended(containers, seconds)
    log = said(containers)
    assert set(statuses.values()) == {0}, log
    return containers, log


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    results = _results(terminalreporter)
    tried = [row for row in ROWS if row.test in results]
    if not tried:
        return
    versions: dict[tuple[str, str, str], str] = {}
    lines: list[tuple[str, ...]] = [("engine", "launcher", "version", "given", "containers", "seconds", "result")]
    for row in ROWS if ALL else tried:
        outcome, seconds = results.get(row.test, ("NOT TRIED", 0.0))
        key = (row.image, row.package, row.launcher)
        if key not in versions:
            versions[key] = "?" if missing(row.image) else version(row)
        lines.append(_cells(row, versions[key], seconds, outcome))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    terminalreporter.section("engines")
    for line in lines:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    if ALL:
        good = sum(outcome == "ok" for outcome, _ in (results.get(row.test, ("", 0.0)) for row in ROWS))
        terminalreporter.write_line(f"{good} of {len(ROWS)} rows hold")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if ALL and reporter and any(_results(reporter).get(row.test, ("", 0.0))[0] != "ok" for row in ROWS):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _results(reporter: pytest.TerminalReporter) -> dict[str, tuple[str, float]]:
    """Test -> result and seconds, of the rows."""
    found: dict[str, tuple[str, float]] = {}
    for outcome, word in (("passed", "ok"), ("skipped", "skipped"), ("failed", "FAILED"), ("error", "FAILED")):
        for report in reporter.stats.get(outcome, []):
            if report.nodeid in ROW_OF and (report.when == "call" or word != "ok"):
                found[report.nodeid] = (word, report.duration)
    return found


def _cells(row: Row, found: str, seconds: float, outcome: str) -> tuple[str, ...]:
    return (row.engine, row.launcher, found, row.given, row.shape, f"{seconds:.1f}", outcome)
