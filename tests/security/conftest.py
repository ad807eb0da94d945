"""One line for each point: what must hold, the seconds it took to try, whether it does (`make test-security`).

A point is a test function; its docstring is what the line says, and docs/explanation/security.md names it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.containers import missing

ALL = os.environ.get("ENTRYPOINT_SECURITY") == "all"  # as `make test-security` sets it
IMAGES = ("entrypoint-gpu:dev", "entrypoint-ascend:dev")


@dataclass
class Point:
    title: str
    seconds: float = 0.0
    runs: int = 0
    failed: int = 0
    skipped: str = ""


points: dict[str, Point] = {}  # test function -> its line, in the order of the tests


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/security" in item.nodeid]
    slow = [] if ALL else [item for item in here if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    for item in here:
        doc = (getattr(item.obj, "__doc__", None) or item.name).split("\n\n")[0]  # type: ignore[attr-defined]
        points.setdefault(_function(item.nodeid), Point(" ".join(doc.split()).rstrip(".")))


def _function(nodeid: str) -> str:
    return nodeid.split("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    point = points.get(_function(report.nodeid))
    if point is None:
        return
    point.seconds += report.duration
    point.runs += report.when == "call"
    point.failed += report.failed
    if report.skipped:
        point.skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ALL:
        return
    terminalreporter.section("security: point, seconds, result")
    for point in points.values():
        if not point.runs and not point.failed and not point.skipped:
            continue
        result = "FAILED" if point.failed else "ok" if not point.skipped else f"not tried: {point.skipped}"
        cases = f" ({point.runs} cases)" if point.runs > 1 else ""
        terminalreporter.write_line(f"{point.title}{cases}  {point.seconds:.1f} s  {result}")


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := missing(name):
        pytest.skip(reason)
    return name


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """Nodes on this machine, as tests/loopback has them."""
    made: list[Cluster] = []
    # Short, since a unix socket's path is: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="ep-", dir="/tmp") as folder:

        def make(nodes: int, slots: int = 1) -> Cluster:
            made.append(Cluster(Path(folder), nodes, slots))
            return made[-1]

        yield make
        for each in made:
            each.close()
