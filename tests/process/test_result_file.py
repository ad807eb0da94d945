"""Where the result of a real process can be read: beside the run directory, whatever the end."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.bench import Bench


def result(bench: Bench) -> dict[str, Any]:
    """The result in the record beside the run directory, which is gone."""
    path = bench.folder / "run-state.json"
    assert not bench.run_dir.exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert text.count("\n") == 1
    fields: dict[str, Any] = json.loads(text)["result"]
    assert list(fields) == ["status", "reason", "node", "job", "class"]
    assert fields["node"] == os.uname().nodename
    assert [path.name for path in bench.folder.iterdir() if path.name.startswith(".")] == []
    return fields


def run(bench: Bench, *words: str, **env: str) -> int:
    return bench.popen([sys.executable, "-m", "entrypoint", "run", *words], env).wait()


def test_the_programs_end(bench: Bench) -> None:
    assert bench.run("sh", "-c", "exit 7", slots=1, flags=("--name", "demo")) == 7
    fields = result(bench)
    assert (fields["status"], fields["class"], fields["job"]) == (7, "job", "demo")
    assert bench.err.endswith(f"] {fields['reason']}; exit 7\n")
    assert bench.run("true", slots=1) == 0
    assert (result(bench)["status"], result(bench)["class"]) == (0, "success")


def test_an_error_before_anything_starts(bench: Bench) -> None:
    hosts = ("--hosts", "a=127.0.0.1,b=127.0.0.2", "--node-rank", "0")
    assert run(bench, *hosts, "--launcher", "mpirun", "--", "true") == 78
    fields = json.loads((bench.folder / "run-state.json").read_text())["result"]
    assert (fields["status"], fields["class"], fields["node"]) == (78, "config", "a")
    assert "no secret and no key files" in fields["reason"]


def test_the_result_of_an_earlier_run_goes_away(bench: Bench) -> None:
    """A program that we become has no result of ours, nor of another's."""
    old = bench.folder / "run-state.json"
    old.write_text('{"result": {}}\n')
    assert run(bench, "--", "true") == 0
    assert json.loads(old.read_text())["result"] is None


def test_a_place_that_cannot_be_written_changes_nothing(bench: Bench) -> None:
    blocked = bench.folder / "run-state.json"
    (blocked / "in-the-way").mkdir(parents=True)
    assert bench.run("sh", "-c", "exit 7", slots=1) == 7
    assert "Traceback" not in bench.err
    assert [path.name for path in bench.folder.iterdir() if path.name.startswith(".")] == []


def test_what_lies_there_is_replaced_and_not_followed(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (bench.folder / "run-state.json").symlink_to(other)
    assert bench.run("true", slots=1) == 0
    assert other.read_text() == "mine"
    assert result(bench)["status"] == 0


def test_a_slash_at_the_end_of_the_run_directory(bench: Bench) -> None:
    """The result and the logs are beside it all the same, and the next start finds its own."""
    for _ in range(2):
        assert (
            bench.run("sh", "-c", "exit 7", slots=1, ENTRYPOINT_RUN_DIR=f"{bench.run_dir}//") == 7
        ), bench.err
        assert result(bench)["status"] == 7


@pytest.mark.parametrize("place", ["Ending._release", "Ending.begin"])
def test_a_defect_after_the_outcome_is_known_ends_the_node(bench: Bench, place: str) -> None:
    """The node would wait forever for a machine that has decided, and cannot act on it."""
    patch = bench.folder / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(
        "import entrypoint.job.ending as it\n"
        "def fail(*_):\n    raise TypeError('a planted defect')\n"
        f"it.{place} = fail\n"
    )
    path = {"PYTHONPATH": f"{patch}:{Path(__file__).parents[2]}"}
    assert bench.run("sh", "-c", "exit 7", slots=1, **path) == 70
    assert bench.err.endswith(
        "EP900 internal error: TypeError: a planted defect | please report it; exit 70\n"
    )
    assert result(bench)["status"] == 70
