"""Nobody's files are removed with the run directory, however the job ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.bench import Bench, until

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
    status = process.wait(30)
    until(lambda: not bench.left(), f"the end of {bench.left()}", 10)
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


@pytest.mark.promise("only what the entrypoint made is removed with the run directory")
@pytest.mark.parametrize("kind", LOCKS)
def test_a_folder_in_use_is_refused_and_stays_as_it_is(kind: str, bench: Bench) -> None:
    bench.run_dir.mkdir(mode=0o700)
    fill(bench.run_dir)
    LOCKS[kind](bench.run_dir / "lock")
    before = tree(bench.run_dir)
    for _ in range(2):
        assert bench.run("prog") == 78
        assert "EP411 the run directory holds other files" in bench.err
        assert tree(bench.run_dir) == before


@pytest.mark.promise("only what the entrypoint made is removed with the run directory")
@pytest.mark.parametrize("how", ENDS)
def test_what_a_program_or_somebody_puts_there_stays(how: str, bench: Bench) -> None:
    """Also after a second start on what a SIGKILL left; the entrypoint's own files are gone."""
    process = waiting(bench)
    bench.await_notes("ready")
    names = fill(bench.run_dir)
    # the entrypoint may write its own files meanwhile
    theirs = {
        name: about for name, about in tree(bench.run_dir).items() if name.split("/")[0] in names
    }
    assert end(bench, process, how) == ENDS[how]
    if how == "kill":
        assert {"lock", "rank.env", "tmp"} < set(tree(bench.run_dir)), (
            "the control: nobody tidied up"
        )
    assert end(bench, waiting(bench), "success") == 0
    left = tree(bench.run_dir)
    assert left.pop("lock")
    assert left == theirs
    said = f"warning: EP425 files in the run directory are not the entrypoint's | {bench.run_dir}: "
    assert said in bench.err


@pytest.mark.control("only what the entrypoint made is removed with the run directory")
def test_where_nobody_put_anything_it_is_gone(bench: Bench) -> None:
    for how, status in (*ENDS.items(), ("success", 0)):
        assert end(bench, waiting(bench), how) == status
        assert bench.run_dir.exists() == (how == "kill")
