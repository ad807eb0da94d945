"""The last line of a rank that shows its progress (`stall.line`), in a file of the run directory.

The keeper imports this only if the spec asks for it.
"""

from __future__ import annotations

import os
import re
import time

from entrypoint.system.descriptors import open_regular, read_regular

_LINE = 256  # characters of a line that are compared
_MOST = 100  # lines of one read that are compared, from the last one
_HEAD = 20  # bytes of the time
_DIGITS = 15  # of a step at most

if False:  # only for type checkers: importing it is slow
    from re import Pattern


def place(run_dir: str, number: str) -> str:
    """Return the file of the program or rank of this number."""
    return f"{run_dir}/step.{number}"


class StepWatch:
    """Finds the lines of one stream that show progress, and notes the last one's time and step in a
    file, which both streams of a rank share."""

    def __init__(self, pattern: Pattern[str], fd: int) -> None:
        self._pattern = pattern
        self._fd = fd
        self._rest = b""  # the beginning of an unfinished line

    def note(self, step: int) -> None:
        """Write a step and the time of this clock, in one call that a reader sees whole."""
        try:
            os.pwrite(self._fd, b"%020.3f\n%15d" % (time.monotonic(), step), 0)
        except OSError:
            return  # the disk is full

    def take(self, data: bytes) -> None:
        """Compare the lines that end in this data, the last ones first."""
        lines = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()[: 4 * _LINE]
        for line in reversed(lines[-_MOST:]):
            text = line[: 4 * _LINE].decode("utf-8", "replace")[:_LINE]
            if match := self._pattern.search(text):
                self.note(int(match[1]))
                return


def pattern_of(text: str) -> Pattern[str]:
    """Return the pattern of a text with `{step}` in place of a number. One space stands for any
    number of them, since programs align their numbers."""
    before, _, after = (
        re.sub(r"(\\ )+", " +", re.escape(part)) for part in text.partition("{step}")
    )
    begin = before or r"(?<!\d)"
    return re.compile(rf"{begin}(\d{{1,{_DIGITS}}})(?!\d){after}", re.ASCII)


def opened(text: str, run_dir: str, number: str) -> StepWatch | None:
    """Return what notes the steps of one stream of this rank; None if the file cannot be opened."""
    try:
        pattern = pattern_of(os.fsencode(text).decode())
        file = open_regular(place(run_dir, number), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        return StepWatch(pattern, file)
    except (OSError, ValueError):
        return None


def last(run_dir: str, number: str) -> tuple[float, int] | None:
    """Return when a rank last showed progress, by this machine's monotonic clock, and its step;
    None if it has not yet."""
    try:
        content = read_regular(place(run_dir, number), _HEAD + 1 + _DIGITS)
        when, _, step = content.partition(b"\n")
        return float(when), int(step)
    except (OSError, ValueError):
        return None
