"""The last lines of a program that has failed, which its supervisor has saved."""

from __future__ import annotations

from entrypoint.job.messages import LINE, LINES
from entrypoint.system.files import RunDir
from entrypoint.text import one_line


def read(run_dir: RunDir, number: str, status: int) -> tuple[str, ...]:
    """Return the end of the output of a program that has ended with this status; none of a
    success."""
    try:
        text = (
            (run_dir.path / f"tail.{number}").read_bytes().decode("utf-8", "replace")
            if status
            else ""
        )
    except OSError:
        return ()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line.rstrip() for line in lines if line.strip())


def last(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines of a failed program, for people."""
    return tuple(one_line(line, LINE) for line in lines[-LINES:])
