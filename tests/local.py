"""`entrypoint local` as its user types it, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import clean_environment, processes
from tests.waits import PATIENCE, until


class Local:
    """One `entrypoint local`, in a session of its own as a terminal gives it."""

    def __init__(
        self, folder: Path, words: tuple[str, ...], env: dict[str, str], cwd: Path | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entrypoint", "local", *words],
                env={
                    **clean_environment(),
                    "TMPDIR": str(folder),
                    "LOCAL_TEST": str(folder),
                    **env,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd or folder,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def says(self, words: str, count: int = 1) -> None:
        """Wait until it has said this so often."""
        until(
            lambda: (self.out + self.err).count(words) >= count,
            f"{words!r} in:\n{self.out}{self.err}",
        )

    def ends(self) -> int:
        """Its exit status, once it has ended and left nothing."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.out}{self.err}")
        assert self.left() == [], f"{self.out}{self.err}"
        return status

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends SIGINT to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def pids(self) -> list[int]:
        """Its processes: those that have its folder in their environment, or on their command
        line."""
        return [*processes(self.folder)]

    def left(self) -> list[str]:
        """What it has left: processes and files."""
        return [
            *map(str, self.pids()),
            *sorted({each.name for each in self.folder.iterdir()} - {"out", "err"}),
        ]


Make = Callable[..., Local]  # the fixture's type
