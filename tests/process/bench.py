"""A bench for real processes: our own command, with a mpirun of ours first on PATH that records how
it was called."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote, split
from typing import IO, Any, AnyStr

from tests.cluster import processes
from tests.waits import PATIENCE, until

FAKE = Path(__file__).with_name("fake_mpirun.py")
MARK = "TEST_MARK"  # in the environment of all that a test starts, so that nothing can hide


class Process(subprocess.Popen[AnyStr]):
    """A process for `with`, which kills it where the test fails: it may never end by itself, and the
    plain one would be waited for forever. Only the pipes that were asked for are there."""

    stdin: IO[AnyStr]  # type: ignore[assignment]
    stdout: IO[AnyStr]  # type: ignore[assignment]
    stderr: IO[AnyStr]  # type: ignore[assignment]

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind:
            self.kill()
        super().__exit__(kind, *error)


def executable(file: Path, script: str, by: str = "/bin/sh") -> Path:
    """Return this file, made an executable script for that program, and its folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{by}\n{script}\n")
    file.chmod(0o755)
    return file


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, for a runner that knows functions alone."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), PATIENCE))

    return run


def marked(mark: str) -> dict[int, str]:
    """Every live process that was started with this mark: pid -> command line."""
    return processes(f"{MARK}={mark}")


@dataclass
class Bench:
    """A place to run `entrypoint run --launcher mpirun` in. One at a time."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        for name in ("bin", "cwd"):
            (self.folder / name).mkdir(parents=True)
        programs = {"mpirun": f"-IS {quote(str(FAKE))}", "entrypoint": "-m entrypoint"}
        for name, words in programs.items():
            executable(self.folder / "bin" / name, f'exec {sys.executable} {words} "$@"')
        self.env = {
            "PATH": f"{self.folder}/bin:/usr/local/bin:/usr/bin:/bin",
            MARK: self.mark,
            "FAKE_RECORD": str(self.folder / "record"),
            "NOTES": str(self.folder / "notes"),
            "ENTRYPOINT_RUN_DIR": str(self.run_dir),
            # what need not wait for it ends within any bound of a test, and what would does not
            "ENTRYPOINT_TIMEOUTS_GRACE": "600",
        }

    def others(self, count: int) -> list[Bench]:
        """So many benches more, to run side by side: a start is mostly waiting for the
        interpreter."""
        return [Bench(self.folder / f"bench-{number}", self.mark) for number in range(count)]

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def popen(self, argv: list[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start anything on the bench, its output in the files `out` and `err`."""
        with open(self.folder / "out", "w") as out, open(self.folder / "err", "w") as err:
            return subprocess.Popen(
                argv, cwd=self.folder / "cwd", env={**self.env, **(env or {})}, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, text=True, start_new_session=True,
            )  # fmt: skip

    def start(
        self, *program: str, slots: int = 2, flags: tuple[str, ...] = (), **env: str
    ) -> subprocess.Popen[str]:
        """`entrypoint run --launcher mpirun --slots SLOTS -- PROGRAM`; a setting of "" is left
        out."""
        slot_flags = ["--slots", str(slots)] if slots else []
        argv = [
            sys.executable,
            *split("-m entrypoint run --launcher mpirun"),
            *slot_flags,
            *flags,
            "--",
            *program,
        ]
        return self.popen(argv, env)

    def run(self, *program: str, **how: Any) -> int:
        """Its exit status."""
        return self.start(*program, **how).wait()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def notes(self) -> list[str]:
        """What the ranks wrote down, sorted, since nobody knows which is first."""
        path = self.folder / "notes"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def record(self) -> dict[str, Any]:
        """How mpirun was called: argv without the program, env."""
        called: dict[str, Any] = json.loads((self.folder / "record").read_text())
        return called

    def await_notes(self, *notes: str) -> None:
        until(
            lambda: self.notes == sorted(notes), f"{sorted(notes)}, have {self.notes}; {self.err}"
        )

    def left(self) -> dict[int, str]:
        """What still runs of all that was started here."""
        return marked(self.mark)
