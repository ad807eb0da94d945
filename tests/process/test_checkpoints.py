"""What counts as progress on a node: a file or a folder that changes while an attempt runs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.cause import Saved
from entrypoint.base.errors import RetryError
from entrypoint.job.messages import Grew, Progressed
from entrypoint.ranks import checkpoints
from entrypoint.ranks.checkpoints import CheckpointWatch, look_at
from tests.waits import PATIENCE

PROGRESS = [Grew(), Progressed()]


Until = Callable[[list[Any]], bool]


def at_once(told: list[Any]) -> bool:
    return True


def progressed(told: list[Any]) -> bool:
    return Progressed() in told


@pytest.fixture(autouse=True)
def _a_look_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine."""
    monkeypatch.setattr(checkpoints, "_LIMIT", PATIENCE)


def attempt(
    path: Path, *changes: Callable[[], Any], watch: float = 0.0, until: Until = at_once
) -> list[Any]:
    """What is told while these changes are made in one attempt, which ends once `until` holds for
    what is told: on a busy machine, looks are far apart."""
    told: list[Any] = []

    async def run() -> None:
        watched = CheckpointWatch(str(path), told.append, [].append)
        await watched.begin()
        task = asyncio.ensure_future(watched.watch())
        for change in changes:
            change()
            if watch:
                await asyncio.wait({task}, timeout=watch)
        while not until(told):
            await asyncio.wait({task}, timeout=0.05)
        watched.stop()
        await watched.end()
        task.cancel()

    asyncio.run(run())
    return told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ckpt" / "step-1").mkdir(parents=True)
    (tmp_path / "ckpt" / "step-1" / "model").write_text("weights")
    (tmp_path / "ckpt" / "latest").symlink_to("step-1")
    return tmp_path / "ckpt"


# What is done below the folder -> whether it is progress.
CHANGES: dict[str, tuple[Callable[[Path], Any], bool]] = {
    "a file": (lambda folder: saved(folder / "model"), True),
    "below": (lambda folder: saved(folder / "step-1/optimizer"), True),
    "its size": (lambda folder: saved(folder / "step-1/model"), True),
    "its time": (lambda folder: os.utime(folder / "step-1/model", ns=(1, 1)), True),
    "a step file": (lambda folder: (folder / "step").write_text("7"), True),
    "a link": (lambda folder: ((folder / "latest").unlink(), (folder / "latest").symlink_to("step-2")), True),
    "nothing": (lambda folder: None, False),
    "removed": (lambda folder: (folder / "step-1/model").unlink(), False),
    "read": (lambda folder: (folder / "step-1/model").read_text(), False),
    "an empty folder": (lambda folder: (folder / "empty").mkdir(), False),
    "the folder's time": (os.utime, False),
}  # fmt: skip


@pytest.mark.promise(
    "a checkpoint that is new, or changes, is progress; one that goes away is not",
    control="what is no progress, in the same table",
)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_once(folder: Path, name: str) -> None:
    change, is_progress = CHANGES[name]
    assert attempt(folder, lambda: change(folder)) == (PROGRESS if is_progress else [])


def test_one_file_is_enough_and_may_be_made_later(tmp_path: Path) -> None:
    file = tmp_path / "later" / "model"
    assert attempt(file) == []

    def write() -> None:
        file.parent.mkdir()
        file.write_text("1")

    assert attempt(file, write) == PROGRESS
    assert attempt(file) == []
    assert attempt(file, lambda: file.write_text("22")) == PROGRESS


TICKS = 0.02  # seconds: the clock of a file system has ticks of some ms


def saved(path: Path, pause: float = TICKS) -> None:
    """Write a file of many bytes under another name, and rename it."""
    written = path.with_suffix(".tmp")
    written.write_bytes(b"w" * 5000)
    time.sleep(pause)
    written.rename(path)


def grow(path: Path) -> Callable[[], Any]:
    """What adds to a file."""

    def write() -> None:
        with open(path, "ab") as file:
            file.write(b"w" * 5000)

    return write


def test_it_is_told_while_the_attempt_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has not changed between two looks is finished."""
    monkeypatch.setattr(checkpoints, "_CLOSEST", 0.05)
    assert attempt(folder, grow(folder / "new"), until=progressed) == PROGRESS


@pytest.mark.promise("a half-written checkpoint is no progress, and no stall")
def test_a_file_that_grows_until_the_ranks_end_is_no_progress(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two attempts, the second one begins with the first one's half. However far apart looks
    are, the file has grown before each."""

    def look(path: str) -> checkpoints.Look:
        grow(folder / "new")()
        return look_at(path)

    monkeypatch.setattr(checkpoints, "_CLOSEST", 0.02)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "look_at", look)
            told = attempt(folder, until=lambda told: told.count(Grew()) >= 5)
        assert {*told} == {Grew()}
    assert attempt(folder) == []


@pytest.mark.control("a half-written checkpoint is no progress, and no stall")
def test_a_file_that_has_grown_before_a_pause_is_progress(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_CLOSEST", 0.3)
    told = attempt(folder, *[grow(folder / "new")] * 5, watch=0.1, until=progressed)
    assert told.count(Progressed()) == 1


def test_an_empty_file_is_not_finished(folder: Path) -> None:
    assert attempt(folder, (folder / "new").touch) == [Grew()]


def written(path: Path, size: int = 5000) -> None:
    """Write a file in one go, which no rename says to be whole."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    time.sleep(TICKS)
    path.write_bytes(b"w" * size)


def checkpoint(folder: Path) -> None:
    """Write a checkpoint of two files, then the file with its step."""
    written(folder / "step_70" / "model")
    written(folder / "step_70" / "optimizer", 9000)
    (folder / "latest_step").write_text("70")


def shards(folder: Path) -> None:
    """Write the first file of a checkpoint, and half of the second one."""
    written(folder / "step_70" / "model-1")
    written(folder / "step_70" / "model-2")


# What ranks do after SIGTERM -> the name of what they have saved.
SAVES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "renamed": (lambda folder: saved(folder / "step_70.pt"), "step_70.pt"),
    "renamed at once": (lambda folder: saved(folder / "step_70.pt", 0.0), "step_70.pt"),
    "a step file at last": (checkpoint, "step_70"),
    "below": (lambda folder: saved(folder / "step-1/model"), "step-1"),
    "a hostile name": (lambda folder: saved(folder / ("\x1b[31m\n" + "x" * 180)), f" {'x' * 96}..."),
    "half a file": (lambda folder: written(folder / "step_70.pt"), ""),
    "half of its files": (shards, ""),
    "removed": (lambda folder: (folder / "step-1/model").unlink(), ""),
    "nothing": (lambda folder: None, ""),
}  # fmt: skip


def after_sigterm(path: Path, save: Callable[[], Any], order: str = "") -> Saved | None:
    async def run() -> Saved | None:
        watched = CheckpointWatch(str(path), [].append, [].append)
        await watched.begin()
        look = watched.stop()
        if order != "the look at the stop is slow":
            await look
        time.sleep(TICKS)
        save()
        if order == "another look":
            await watched._look()
        await look
        return await watched.end()

    return asyncio.run(run())


@pytest.mark.promise(
    "the end of an attempt says whether the program has saved after SIGTERM",
    control="what is no save, in the same table",
)
@pytest.mark.parametrize("order", ["in turn", "the look at the stop is slow", "another look"])
@pytest.mark.parametrize("name", SAVES)
def test_what_was_saved_after_sigterm(folder: Path, name: str, order: str) -> None:
    for name_before in ("step-1/model", "latest"):
        os.utime(folder / name_before, (time.time() - 2460,) * 2, follow_symlinks=False)
    save, expected = SAVES[name]
    found = after_sigterm(folder, lambda: save(folder), order)
    assert found is not None
    assert found.name == expected
    assert found.seconds is not None
    assert 0 <= found.seconds < PATIENCE if expected else -2520 < found.seconds <= -2460


@pytest.mark.parametrize(("save", "is_whole"), [(written, False), (saved, True)])
def test_half_of_a_checkpoint_is_not_the_last_one(
    folder: Path, save: Callable[[Path], Any], is_whole: bool
) -> None:
    """The ranks are stopped while they write it."""
    for before in ("step-1/model", "latest"):
        os.utime(folder / before, (time.time() - 2460,) * 2, follow_symlinks=False)

    async def run() -> Saved | None:
        watched = CheckpointWatch(str(folder), [].append, [].append)
        await watched.begin()
        save(folder / "step_70.pt")
        await watched.stop()
        return await watched.end()

    found = asyncio.run(run())
    assert found is not None
    assert found.seconds is not None
    assert (found.name, found.seconds > -2460) == ("", is_whole)


def test_a_save_into_one_file_has_its_name(tmp_path: Path) -> None:
    file = tmp_path / "latest"
    assert after_sigterm(file, lambda: None) == Saved("", None)
    assert after_sigterm(file, lambda: file.write_text("70")) == Saved("latest", 0.0)


@pytest.mark.parametrize("ends", [False, True])
def test_nothing_waits_for_a_disk_that_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(checkpoints, "_LIMIT", 0.2)
    looks: list[str] = []
    answers = threading.Event()

    def hang(path: str) -> checkpoints.Look:
        looks.append(path)
        if len(looks) > ends:
            answers.wait(600)
        return look_at(path)

    monkeypatch.setattr(checkpoints, "look_at", hang)
    assert attempt(folder, (folder / "new").touch) == []
    answers.set()


def test_no_thread_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(work: object) -> None:
        raise RetryError("EP430 no thread")

    monkeypatch.setattr(checkpoints, "in_thread", refused)
    assert attempt(folder, (folder / "new").touch) == []


@pytest.mark.parametrize("name", ["below", "its size", "its time", "removed"])
def test_of_very_many_files_each_change_is_seen(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, is_progress = CHANGES[name]
    monkeypatch.setattr(checkpoints, "_MOST", 3)
    for number in range(6):
        (folder / "step-1" / f"old-{number}").touch()
    time.sleep(0.02)  # the clock of a file system has ticks
    monkeypatch.setattr(checkpoints, "_CLOSEST", 0.2)
    ends = {"until": progressed} if is_progress else {"watch": 1.0}
    told = attempt(folder, lambda: change(folder), **ends)  # type: ignore[arg-type]
    assert told == (PROGRESS if is_progress else [])
    assert attempt(folder, grow(folder / "late")) == [Grew()], "just before the end"


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("ckpt", PermissionError(13, "Permission denied"), "Permission denied"),
        ("ckpt", OSError(116, "Stale file handle"), "Stale file handle"),
        ("ckpt", None, ""),
        ("not-yet", None, ""),
        ("ckpt/step-1/model/below", None, ""),
        ("loop", None, "Too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_read_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: OSError | None, says: str
) -> None:
    (folder.parent / "loop").symlink_to("loop")
    if error:
        monkeypatch.setattr(checkpoints.os, "scandir", _raising(error))
    path = str(folder.parent / name)
    logged: list[str] = []

    async def begin() -> None:
        await CheckpointWatch(path, [].append, logged.append).begin()

    asyncio.run(begin())
    assert len(logged) == bool(says)
    if says:
        assert f"EP641 restarts.progress cannot be read | {path}: {says} |" in logged[0]


def _raising(error: OSError) -> Callable[[str], Any]:
    def scandir(path: str) -> Any:
        raise error

    return scandir
