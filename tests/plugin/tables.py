"""`--table NAME`: what was tried, a line each, at the end of a run: bake, deploy, engines,
launchers, faults, image, network, platforms, security, see, slurm or staged.

With `--every` the run fails if a line of the table does not hold or was not tried. With
`--table-file PATH` the rounds before this one are in the table too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import rows
from tests.containers import missing


@dataclass
class Line:
    """A line of a table: what it says, and what came of its tests."""

    says: tuple[str, ...]
    runs: int = 0
    good: int = 0
    bad: int = 0
    skipped: str = ""
    call: float = 0.0  # seconds of this run's tests
    whole: float = 0.0  # with their fixtures
    # as the tests measured them, one for each round
    seconds: list[str] = field(default_factory=list)
    containers: str = ""
    seen: str = ""
    shown: str = ""  # what stands below the table

    @property
    def tried(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.runs or self.bad or self.skipped)

    @property
    def result(self) -> str:
        """The last cell."""
        if self.bad:
            return "FAILED"
        return f"not tried: {self.skipped}" if self.skipped else "ok" if self.good else "NOT TRIED"

    def note(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        self.whole += report.duration
        self.bad += report.failed
        if report.skipped:
            self.skipped = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            )
        if report.when == "call":
            noted = dict(report.user_properties)
            self.runs += 1
            self.good += report.passed
            self.call += report.duration
            self.containers = str(noted.get("containers", self.containers))
            self.seen = str(noted.get("seen", self.seen))
            self.shown = str(noted.get("shown", self.shown))
            if "seconds" in noted:
                self.seconds.append(f"{max(0.0, float(str(noted['seconds']))):.2f}")

    def add(self, before: Line) -> None:
        """Put an earlier round before this one."""
        self.runs = self.runs + before.runs
        self.good = self.good + before.good
        self.bad = self.bad + before.bad
        self.seconds = before.seconds + self.seconds


# key of the line, and what it says; None where the test has none
Found = tuple[str, tuple[str, ...]] | None
Find = Callable[[pytest.Item], Found]


@dataclass(frozen=True)
class Table:
    """How one table is made: which line a test has, and the cells of a line."""

    title: str
    find: Find
    cells: Callable[[Line], tuple[str, ...]]
    head: tuple[str, ...] = ()  # with one, the cells are in columns
    order: Callable[[Line], object] = lambda line: 0
    # lines that it has whatever is collected
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foot: str = ""


def _engine(table: str, item: pytest.Item) -> Found:
    row = rows.ROW_OF.get(item.nodeid)
    return (row.test, (row.test,)) if row and row.table == table else None


def _engine_cells(line: Line) -> tuple[str, ...]:
    row = rows.ROW_OF[line.says[0]]
    version = "?" if missing(row.image) else rows.version(row.image, row.package, row.launcher)
    return (
        row.engine,
        row.launcher,
        version,
        row.given,
        row.shape,
        f"{line.call or line.whole:.1f}",
        line.result,
    )


def _given(item: pytest.Item) -> Mapping[str, Any]:
    """The parameters of the test."""
    params = getattr(item, "callspec", None)
    return params.params if params else {}


def _fault(item: pytest.Item) -> Found:
    mark = item.get_closest_marker("fault")
    if mark is None:
        return None
    given = _given(item)
    row, fault = mark.args
    launcher = str(mark.kwargs.get("launcher", given.get("launcher", "any")))
    # A file of another folder is one line.
    key = item.nodeid if item.nodeid.startswith("tests/faults/") else item.nodeid.partition("::")[0]
    return key, (row, fault.format(**given), launcher, mark.kwargs.get("bound", ""))


def _fault_cells(line: Line) -> tuple[str, ...]:
    *says, bound = line.says
    return *says, line.containers, bound, " ".join(line.seconds), line.result


def _staged(item: pytest.Item) -> Found:
    """A row of tests/loopback/test_staged_failures.py, and what else is shown there."""
    if not item.nodeid.startswith("tests/loopback/test_staged_failures.py"):
        return None
    row = _given(item).get("row")
    if row:
        return item.nodeid, row.says
    found = _point("loopback", False, item)
    case = item.nodeid.partition("[")[2].rstrip("]")
    return found and (item.nodeid, (case, "plain", found[1][0], ""))


def _staged_cells(line: Line) -> tuple[str, ...]:
    return (
        *line.says,
        "as expected" if line.seen and line.seen == line.says[3] else line.seen,
        f"{line.call:.1f}",
        line.result,
    )


def _slurm(item: pytest.Item) -> Found:
    mark = item.get_closest_marker("slurm")
    if mark is None:
        return None
    row, what = mark.args
    return item.nodeid, (row, what.format(**_given(item)))


def _slurm_cells(line: Line) -> tuple[str, ...]:
    return *line.says, line.seen, f"{line.call:.1f}", line.result


def _platform(item: pytest.Item) -> Found:
    """A case folder is a line, and so is every other test of who is recognised; those say what they
    show."""
    params = getattr(item, "callspec", None)
    if (
        item.nodeid.startswith("tests/unit/test_platforms.py")
        and params
        and "folder" in params.params
    ):
        return item.nodeid, (params.params["name"], params.params["folder"].name)
    if item.nodeid.startswith("tests/unit/test_detection.py"):
        found = _point("unit", False, item)
        return found and (found[0], ("several", found[1][0]))
    return None


def _platform_cells(line: Line) -> tuple[str, ...]:
    return *line.says, line.result


def _marked(name: str, item: pytest.Item) -> Found:
    """Tests whose marks say the same are one line; one whose mark says nothing has none."""
    mark = item.get_closest_marker(name)
    if mark is None or not mark.args:
        return None
    says = tuple(str(word).format(**_given(item)) for word in mark.args)
    return " ".join(says), says


def _deployed_cells(line: Line) -> tuple[str, ...]:
    return *line.says, line.result


def _point(folder: str, by_image: bool, item: pytest.Item) -> Found:
    """A test function is a point; the line says its docstring."""
    if not item.nodeid.startswith(f"tests/{folder}/"):
        return None
    doc = (getattr(item.obj, "__doc__", None) or item.name).split("\n\n")[0]  # type: ignore[attr-defined]
    title, params = " ".join(doc.split()).rstrip("."), getattr(item, "callspec", None)
    image = (params.params.get("image", "both") if params else "both",) if by_image else ()
    return " ".join((item.nodeid.partition("[")[0], *image)), (title, *image)


def _network(item: pytest.Item) -> Found:
    """A case of a test in tests/networks is a line: what the test says, the launcher, and what else
    it is given."""
    found, params = _point("networks", False, item), getattr(item, "callspec", None)
    if not found or not params:
        return None
    given = dict(params.params)
    return item.nodeid, (*found[1], given.pop("launcher"), ", ".join(map(str, given.values())))


def _network_cells(line: Line) -> tuple[str, ...]:
    return *line.says, f"{line.whole:.1f}", line.result


def _point_cells(line: Line) -> tuple[str, ...]:
    cases = f" ({line.runs} cases)" if line.runs > 1 else ""
    return line.says[0] + cases, *line.says[1:], f"{line.whole:.1f} s", line.result


_SHOWN = ("pages", "odd nodes", "timeline", "logs", "words")


def _see_cells(line: Line) -> tuple[str, ...]:
    where, what = line.says
    cases = f" ({line.runs} cases)" if line.runs > 1 else ""
    return where, what + cases, line.seen, f"{line.call:.1f}", line.result


def _engines(table: str, given: str) -> Table:
    return Table(
        table,
        functools.partial(_engine, table),
        _engine_cells,
        ("engine", "launcher", "version", given, "containers", "seconds", "result"),
        known={test: (test,) for test, row in rows.ROW_OF.items() if row.table == table},
        foot="{good} of {all} rows hold",
    )


TABLES = {
    "deploy": Table(
        "deploy",
        functools.partial(_marked, "deployed"),
        _deployed_cells,
        ("target", "kind or case", "checked against", "result"),
        order=lambda line: line.says,
        foot="{good} of {all} lines hold, of {rows} targets",
    ),
    "engines": _engines("engines", "given"),
    "launchers": _engines("launchers", "what"),
    "faults": Table(
        "faults",
        _fault,
        _fault_cells,
        ("row", "fault", "launcher", "containers", "bound", "seconds", "result"),
        order=lambda line: int(line.says[0]),
        foot="{good} of {all} lines hold, of {rows} rows\n"
        "seconds from the fault to the last container's end; (of the whole test)",
    ),
    "image": Table(
        "image contract: point, image, seconds, result",
        functools.partial(_point, "image", True),
        _point_cells,
        order=lambda line: line.says,
    ),
    "network": Table(
        "networks of containers",
        _network,
        _network_cells,
        ("network", "launcher", "given", "seconds", "result"),
        order=lambda line: line.says,
        foot="{good} of {all} lines hold, of {rows} networks",
    ),
    "bake": Table(
        "two lines in a Dockerfile: what, image, seconds, result",
        functools.partial(_point, "bake", True),
        _point_cells,
        order=lambda line: line.says,
    ),
    "platforms": Table(
        "platforms",
        _platform,
        _platform_cells,
        ("platform", "case", "result"),
        order=lambda line: line.says,
        foot="{good} of {all} cases hold, of {rows} platforms",
    ),
    "security": Table(
        "security: point, seconds, result",
        functools.partial(_point, "security", False),
        _point_cells,
    ),
    "see": Table(
        "what people look at",
        functools.partial(_marked, "see"),
        _see_cells,
        ("where", "what", "seen", "seconds", "result"),
        order=lambda line: (_SHOWN.index(line.says[0]), line.says),
        foot="{good} of {all} lines hold",
    ),
    "staged": Table(
        "staged failures",
        _staged,
        _staged_cells,
        ("row", "launcher", "fault", "expected", "seen", "seconds", "result"),
        foot="{good} of {all} rows hold",
    ),
    "slurm": Table(
        "slurm",
        _slurm,
        _slurm_cells,
        ("row", "what", "seen", "seconds", "result"),
        order=lambda line: line.says,
        foot="{good} of {all} lines hold, of {rows} rows",
    ),
}


class Labels:
    """Labels each report with the line of its test, where that runs: only there is the test itself
    at hand, and xdist passes the report on with its attributes."""

    def __init__(self, find: Find) -> None:
        self._find = find

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.table_line = self._find(item)
        return report


class Tally:
    """The lines of the table that was asked for."""

    def __init__(self, table: Table, every: bool, file: Path | None) -> None:
        self.table, self.every, self.file = table, every, file
        self.lines = {key: Line(says) for key, says in table.known.items()}

    def _line(self, found: Found) -> Line | None:
        return found and self.lines.setdefault(found[0], Line(tuple(found[1])))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self._line(self.table.find(item))  # in the table, even if it is not tried

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if line := self._line(getattr(report, "table_line", None)):
            line.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for line in self.lines.values():
            if line.good and not line.seconds:
                line.seconds.append(f"({line.call:.1f})")
        if self.every and any(line.result != "ok" for line in self.lines.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.file:
            for key, before in (
                json.loads(self.file.read_text() or "{}").items() if self.file.exists() else ()
            ):
                self.lines.setdefault(key, Line(before["says"])).add(Line(**before))
            self.file.write_text(
                json.dumps({key: asdict(line) for key, line in self.lines.items()})
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = sorted(
            (line for line in self.lines.values() if self.every or line.tried),
            key=self.table.order,  # type: ignore[arg-type]
        )
        if not lines:
            return
        table = [cells for cells in (self.table.head, *map(self.table.cells, lines)) if cells]
        if self.table.head:
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            table = [tuple(map(str.ljust, cells, widths)) for cells in table]
        terminalreporter.section(self.table.title)
        for cells in table:
            terminalreporter.write_line("  ".join(cells).rstrip())
        if self.every and self.table.foot:
            good = sum(line.result == "ok" for line in lines)
            first = {line.says[0] for line in lines}
            terminalreporter.write_line(
                self.table.foot.format(good=good, all=len(lines), rows=len(first))
            )
        for line in lines:
            if line.shown:
                terminalreporter.write_line(f"\n{': '.join(line.says)}\n\n{line.shown}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tables", "tables of what was tried")
    group.addoption("--table", choices=list(TABLES), help="print this table at the end")
    group.addoption(
        "--every", action="store_true", help="fail if a line of it was not tried or does not hold"
    )
    group.addoption(
        "--table-file",
        type=Path,
        help="add the rounds that this file has, and leave all of them in it",
    )


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("table"):
        table = TABLES[name]
        config.pluginmanager.register(Labels(table.find), "labels")
        if not hasattr(config, "workerinput"):  # xdist's workers have one
            tally = Tally(table, config.getoption("every"), config.getoption("table_file"))
            config.pluginmanager.register(tally, "tally")
