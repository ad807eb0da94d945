"""The pytest plug-in: with `--proof FOLDER` each test leaves a line of JSON in results.jsonl there,
and what proven.txt there names is not run again.

A line has: `test`; `outcome`, passed, failed or skipped; `seconds`; `says`, the cells of its table's
line; `noted`, what the test recorded; `reason`, of a skip; `key`, the name of the contents of all
that its file depends on; `commit`; `run`, the run's number.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.proof.says import says

RESULTS, PROVEN, STATE = "results.jsonl", "proven.txt", "state.json"
Result = dict[str, Any]


def read(folder: Path) -> list[Result]:
    """Return the results that a folder has, the oldest first."""
    try:
        lines = (folder / RESULTS).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def begin(folder: Path, run: str, commit: str, keys: Mapping[str, str], known: set[str]) -> None:
    """Begin a run: keep the last result of each test alone, and leave what `append` and the
    deselection need."""
    folder.mkdir(parents=True, exist_ok=True)
    last = {each["test"]: each for each in read(folder)}
    (folder / RESULTS).write_text("".join(json.dumps(each) + "\n" for each in last.values()))
    (folder / PROVEN).write_text("".join(f"{name}\n" for name in sorted(known)))
    (folder / STATE).write_text(json.dumps({"run": run, "commit": commit, "keys": keys}))


@functools.cache
def _state(folder: Path) -> dict[str, Any]:
    """Return what `begin` has left: a process has one run."""
    state: dict[str, Any] = json.loads((folder / STATE).read_text())
    return state


def append(folder: Path, result: Result) -> None:
    """Write a result, with the run, the commit and the key that the runner has left there."""
    state = _state(folder)
    test = result["test"]
    more = {
        "key": state["keys"].get(test.partition("::")[0], ""),
        "commit": state["commit"],
        "run": state["run"],
    }
    with (folder / RESULTS).open("a") as file:
        file.write(json.dumps({**result, **more}) + "\n")


class Recorder:
    """Writes the results, in the process that reports them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        new: Result = {"test": report.nodeid, "outcome": "passed", "seconds": 0.0, "noted": {}}
        result = self._open.setdefault(report.nodeid, new)
        result["seconds"] = round(result["seconds"] + report.duration, 2)
        result["says"] = getattr(report, "says", ())
        if report.failed:
            result["outcome"] = "failed"
        elif report.skipped and result["outcome"] == "passed":
            result["outcome"] = "skipped"
            why = report.longrepr
            result["reason"] = str(why[2] if isinstance(why, tuple) else why)
        if report.when == "call":
            result["noted"] = {name: str(value) for name, value in report.user_properties}
        if report.when == "teardown":
            append(self._folder, self._open.pop(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        """A test whose process died has no teardown."""
        for result in self._open.values():
            if result["outcome"] == "failed":
                append(self._folder, result)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.getoption("--proof"):
        vars(report)["says"] = says(item)  # xdist passes a report on with its attributes
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("proof").addoption(
        "--proof", type=Path, metavar="FOLDER", help="leave results there; scripts/test does this"
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--proof")
    if folder and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(folder))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is proven."""
    folder = config.getoption("--proof")
    proven = folder and folder / PROVEN
    if proven and proven.exists():
        names = set(proven.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]
