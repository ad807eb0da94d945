"""One line for each point of docs/reference/image-contract.md and each image: seconds, result (`make test-image`).

A point is a test function; the first line of its docstring is what the line says, and begins with the point's number.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.containers import missing

ALL = os.environ.get("ENTRYPOINT_IMAGE_TESTS") == "all"  # as `make test-image` sets it
IMAGES = os.environ.get("ENTRYPOINT_TEST_IMAGES", "entrypoint-gpu:dev entrypoint-ascend:dev").split()


@dataclass
class Line:
    title: str
    image: str
    seconds: float = 0.0
    cases: int = 0
    failed: int = 0
    skipped: str = ""

    @property
    def result(self) -> str:
        return "FAILED" if self.failed else f"not tried: {self.skipped}" if self.skipped else "ok"


lines: dict[tuple[str, str], Line] = {}  # test function, image -> its line
of: dict[str, tuple[str, str]] = {}  # test -> the key of its line


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/image" in item.nodeid]
    slow = [] if ALL else [item for item in here if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    for item in here:
        item.add_marker(pytest.mark.containers)
        title = (getattr(item.obj, "__doc__", None) or item.name).split("\n")[0].rstrip(".")  # type: ignore[attr-defined]
        image = getattr(item, "callspec", None)
        name = image.params.get("image", "both") if image else "both"
        key = item.nodeid.split("[")[0], name
        of[item.nodeid] = key
        lines.setdefault(key, Line(title, name))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.nodeid not in of:
        return
    line = lines[of[report.nodeid]]
    line.seconds += report.duration
    line.cases += report.when == "call"
    line.failed += report.failed
    if report.skipped:
        line.skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried = [line for line in lines.values() if line.cases or line.failed or line.skipped]
    if not ALL or not tried:
        return
    terminalreporter.section("image contract: point, image, seconds, result")
    for line in sorted(tried, key=lambda line: (line.title, line.image)):
        cases = f" ({line.cases} cases)" if line.cases > 1 else ""
        terminalreporter.write_line(f"{line.title}{cases}  {line.image}  {line.seconds:.1f} s  {line.result}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    # `make test-image` was asked for every point: one that was not tried does not hold.
    if ALL and any(line.skipped for line in lines.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    reason = missing(name)
    if reason:
        pytest.skip(reason)
    return name
