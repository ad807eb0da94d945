"""The run directory goes as a whole, however the job ends, and nothing else goes with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import command
from tests.process.bench import Bench
from tests.rundirs import refusal
from tests.waits import until

WAITS = 'echo ready >>"$NOTES"; until [ -s status ]; do sleep 0.02; done; exit $(cat status)'
ENDS = {"success": 0, "failure": 7, "signal": 143, "kill": -9}


def fill(folder: Path) -> set[str]:
    """Files of somebody else: some with names that an entrypoint uses, links to what is elsewhere,
    a tree. Returns their names in the folder."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "kept").write_text("kept")
    names = {"train.py", "line.bak", "tail", ".hidden", ".lock.0123456789abcdef", "agent.py"}
    for name in names:
        (folder / name).write_text(name)
    (folder / "data/more").mkdir(parents=True)
    (folder / "data/more/weights").write_text("weights")
    (folder / "link").symlink_to(elsewhere / "kept")
    (folder / "folder").symlink_to(elsewhere)
    os.link(elsewhere / "kept", folder / "hard")
    return names | {"data", "link", "folder", "hard"}


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    def found() -> Iterator[tuple[str, tuple[int, str]]]:
        for path in sorted(folder.rglob("*")):
            text = path.read_text() if path.is_file() else ""
            yield str(path.relative_to(folder)), (path.lstat().st_ino, text)

    return dict(found())


def end(bench: Bench, process: subprocess.Popen[str], how: str) -> int:
    """End a job whose rank waits; its status, once nothing of it runs."""
    bench.await_notes("ready")
    (bench.folder / "notes").unlink()
    if how in ("signal", "kill"):
        process.send_signal(signal.SIGTERM if how == "signal" else signal.SIGKILL)
    else:
        (bench.folder / "cwd/status").write_text(str(ENDS[how]))
    status = process.wait()
    until(lambda: not bench.left(), f"the end of {bench.left()}")
    (bench.folder / "cwd/status").unlink(missing_ok=True)
    return status


def waiting(bench: Bench) -> subprocess.Popen[str]:
    return bench.start("sh", "-c", WAITS, slots=1)


# What makes a private folder look like a run directory, and is none.
LOCKS: dict[str, Callable[[Path], object]] = {
    "empty": Path.touch,
    "other text": lambda lock: lock.write_text("12345\n"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link": lambda lock: lock.symlink_to(lock.parent / "train.py"),
    "none": lambda lock: None,
}


@pytest.mark.promise(
    "the run directory is the entrypoint's as a whole, and no other is touched",
    control="it goes with all that is in it",
)
@pytest.mark.parametrize("kind", LOCKS)
def test_a_folder_in_use_is_refused_and_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    fill(run_dir)
    LOCKS[kind](run_dir / "lock")
    before = tree(run_dir)
    assert "EP411 the run directory contains other files" in refusal(run_dir)
    assert tree(run_dir) == before


@pytest.mark.promise("the run directory is the entrypoint's as a whole, and no other is touched")
@pytest.mark.parametrize("how", ENDS)
def test_it_goes_with_all_that_is_in_it(how: str, bench: Bench) -> None:
    """Also by a second start on what a SIGKILL left. Where links lead to stays as it was."""
    process = waiting(bench)
    bench.await_notes("ready")
    names = fill(bench.run_dir)
    elsewhere = tree(bench.folder / "elsewhere")
    assert end(bench, process, how) == ENDS[how]
    if how == "kill":
        assert {"lock", "rank.sh", "tmp", *names} < set(tree(bench.run_dir)), "nobody tidied up"
        assert end(bench, waiting(bench), "success") == 0
    assert not bench.run_dir.exists()
    assert tree(bench.folder / "elsewhere") == elsewhere


@pytest.mark.promise("a second start in a running job's run directory changes nothing of it")
@pytest.mark.parametrize("launcher", ["mpirun", "plain"])
def test_a_second_start_leaves_the_record_alone(launcher: str, bench: Bench) -> None:
    """Also one that becomes its program, and needs no run directory."""
    process = waiting(bench)
    bench.await_notes("ready")
    until(lambda: asked(bench).get("phase") == "running", "the record")
    words = ("run", "--launcher", launcher, "--", "/no/such/program")
    second = command.run(bench.folder, *words, env=bench.env)
    assert second.returncode == (78 if launcher == "mpirun" else 127), second.stderr
    assert asked(bench)["phase"] == "running"
    assert end(bench, process, "success") == 0
    assert asked(bench)["status"] == 0


def asked(bench: Bench) -> dict[str, Any]:
    """What `status` answers; {} if there is no record yet."""
    words = ("status", "--json", "--run-dir", str(bench.run_dir))
    done = command.run(bench.folder, *words, env=bench.env)
    return json.loads(done.stdout) if done.stdout else {}


@pytest.mark.control("a second start in a running job's run directory changes nothing of it")
def test_after_the_end_the_next_start_writes_its_own(bench: Bench) -> None:
    assert end(bench, waiting(bench), "success") == 0
    assert bench.run("/no/such/program", slots=1) == 127
    assert asked(bench)["status"] == 127
