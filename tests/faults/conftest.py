"""One line for each row of the table of faults: row, fault, launcher, containers, bound, seconds measured, result.

The seconds are from the fault to the last container's end; in brackets, of the whole test, where none are bounded.

`make test-faults` tries all of them (TRY_FAULTS=all), some rounds in a row; `make test` those that are marked `often`.
With FAULTS_FILE the rounds before this one are in the table too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.containers import IMAGE, docker, missing
from tests.faults.faultjob import HOSTS, Job, new_network
from tests.faults.faultrows import ELSEWHERE

ASKED = os.environ.get("TRY_FAULTS", "")
ALL = ASKED == "all"
FILE = os.environ.get("FAULTS_FILE", "")
ROWS = range(1, 18)


@dataclass
class Line:
    row: str
    fault: str
    launcher: str
    containers: str = ""
    bound: str = ""
    seconds: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    skipped: str = ""
    whole: float = 0.0  # seconds of this round's tests

    @property
    def result(self) -> str:
        if self.skipped:
            return f"not tried: {self.skipped}"
        return "FAILED" if self.bad else "ok" if self.good else "NOT TRIED"

    def cells(self) -> tuple[str, ...]:
        return self.row, self.fault, self.launcher, self.containers, self.bound, " ".join(self.seconds), self.result


lines: dict[str, Line] = {}  # test, or ELSEWHERE's name -> its line


def _key(nodeid: str) -> str | None:
    return nodeid if nodeid in lines else next((each for each in ELSEWHERE if nodeid.startswith(each)), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/faults" in item.nodeid]
    seldom = [] if ASKED else [item for item in here if not _often(item)]
    if seldom:
        config.hook.pytest_deselected(items=seldom)
        items[:] = [item for item in items if item not in seldom]
    for item in here:
        item.add_marker(pytest.mark.containers)
        reason = missing(_param(item, "image", IMAGE))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        mark = item.get_closest_marker("fault")
        if mark:
            row, fault = mark.args
            launcher = mark.kwargs.get("launcher", _param(item, "launcher", "any"))
            params = getattr(item, "callspec", None)
            words = fault.format(**params.params if params else {})
            lines.setdefault(item.nodeid, Line(row, words, launcher, bound=mark.kwargs.get("bound", "")))
    for name, (row, fault, launcher) in ELSEWHERE.items():
        if ALL or (ASKED and any(item.nodeid.startswith(name) for item in items)):
            lines.setdefault(name, Line(row, fault, launcher))


def _param(item: pytest.Item, name: str, default: str) -> str:
    params = getattr(item, "callspec", None)
    return str(params.params.get(name, default)) if params else default


def _often(item: pytest.Item) -> bool:
    """Whether `make test` has it, too: the case that is named."""
    mark = item.get_closest_marker("fault")
    often = mark.kwargs.get("often", "") if mark else ""
    return bool(often) and item.name.endswith(f"[{often}]")


@pytest.fixture(scope="session")
def network() -> Iterator[str]:
    name = new_network()
    yield name
    docker("network", "rm", name)


@pytest.fixture
def make(network: str, record_property: Callable[[str, object], None]) -> Iterator[Callable[..., Job]]:
    """Jobs whose containers end with the test."""
    jobs: list[Job] = []

    def job(launcher: str, nodes: int = 4, image: str = IMAGE) -> Job:
        jobs.append(Job(network, launcher, HOSTS[:nodes], image, record_property))
        return jobs[-1]

    yield job
    for each in jobs:
        each.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried = {key: line for key, line in lines.items() if ALL or line.good or line.bad or line.skipped}
    if not ASKED or not tried:
        return
    _merge(tried)
    ordered = sorted(tried.values(), key=lambda line: int(line.row))
    table = [
        ("row", "fault", "launcher", "containers", "bound", "seconds", "result"),
        *(each.cells() for each in ordered),
    ]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    terminalreporter.section("faults")
    for cells in table:
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        )
    if ALL:
        good = sum(line.result == "ok" for line in ordered)
        terminalreporter.write_line(f"{good} of {len(ordered)} lines hold, of {len(ROWS)} rows")
        terminalreporter.write_line("seconds from the fault to the last container's end; (of the whole test)")


def _merge(tried: dict[str, Line]) -> None:
    """Add what the rounds before found, and leave all of it for the next."""
    if not FILE:
        return
    path = Path(FILE)
    for key, before in json.loads(path.read_text() or "{}").items() if path.exists() else ():
        line = tried.setdefault(key, Line(**before))
        if line.seconds is not before["seconds"]:
            line.seconds = before["seconds"] + line.seconds
            line.good, line.bad = line.good + before["good"], line.bad + before["bad"]
    path.write_text(json.dumps({key: asdict(line) for key, line in tried.items()}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of the reporter: a conftest's own hook hears of no test in another folder, and some rows' tests lie there.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in reporter.stats.get(outcome, []) if reporter else ():
            _note(report)
    for line in lines.values():
        if line.good and not line.seconds:
            line.seconds.append(f"({line.whole:.1f})")
    # `make test-faults` was asked for every row: one that was not tried does not hold.
    tried = {int(line.row) for line in lines.values() if line.result == "ok"}
    if ALL and (tried != set(ROWS) or any(line.result != "ok" for line in lines.values())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _note(report: pytest.TestReport) -> None:
    key = _key(report.nodeid)
    if key is None or key not in lines:
        return
    line, noted = lines[key], dict(report.user_properties)
    if report.skipped:
        line.skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if report.when == "call":
        line.good += report.passed
        line.whole += report.duration
        line.containers = str(noted.get("containers", line.containers))
        if "seconds" in noted:
            line.seconds.append(f"{max(0.0, noted['seconds']):.2f}")
    line.bad += report.failed
