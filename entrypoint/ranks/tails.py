"""The last output of programs and ranks that failed, as their supervisors save it."""

from __future__ import annotations

from entrypoint.job.messages import LINE, LINES
from entrypoint.output.stream import TAIL
from entrypoint.system.descriptors import read_regular
from entrypoint.system.files import RunDir
from entrypoint.text import one_line


def saved_lines(run_dir: RunDir, number: str, status: int) -> tuple[str, ...]:
    """Return the output of a failed program that its supervisor has saved: its end."""
    if not status:
        return ()
    try:
        text = read_regular(run_dir.path / f"tail.{number}", TAIL).decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line.rstrip() for line in lines if line.strip())


def last_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last lines of a failed program, for people."""
    return tuple(one_line(line, LINE) for line in lines[-LINES:])
