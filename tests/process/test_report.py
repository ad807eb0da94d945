"""`entrypoint report`: what it says where there is nothing to report."""

from __future__ import annotations

import os
from pathlib import Path

from tests import command


def report(path: Path) -> command.Done:
    return command.run(Path(), "report", str(path), env={"PATH": os.environ["PATH"]})


def test_a_missing_file_and_one_without_a_timeline_are_errors(tmp_path: Path) -> None:
    done = report(tmp_path / "run/")
    assert done.returncode == 66
    assert (
        done.stderr
        == f"[entrypoint] EP042 there is no timeline to read | {tmp_path}/run-state.json: No such"
        " file or directory | give worker-0's run directory, as `entrypoint plan` names it,"
        " after the job's end\n"
    )
    (tmp_path / "run-state.json").write_text("{}")
    done = report(tmp_path / "run")
    assert (done.returncode, done.stderr.count("\n")) == (66, 1)
    assert "is no record" in done.stderr
