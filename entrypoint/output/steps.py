"""The last line of a rank that shows its progress (`stall.line`), in a file of the run directory.

The supervisor of a rank imports this only if the spec asks for it.
"""

from __future__ import annotations

import os
import re
import time

from entrypoint.system.descriptors import open_regular, read_regular

STEP = 40  # characters of a step that are kept
_LINE = 256  # characters of a line that are compared: see spec/patterns.py
_MOST = 100  # lines of one read that are compared, from the last one
_HEAD = 20  # bytes of the time
_PATTERN = 1 << 16  # bytes of the pattern

if False:  # only for type checkers: importing it is slow
    from re import Pattern


def place(run_dir: str, number: str) -> str:
    """Return the file of the program or rank of this number."""
    return f"{run_dir}/step.{number}"


class StepFile:
    """The file with the time and the text of the last step. Both streams of a rank share it."""

    def __init__(self, pattern: Pattern[str], fd: int) -> None:
        self.pattern = pattern
        self._fd = fd

    def note(self, step: str) -> None:
        """Write a step and the time of this clock, in one call that a reader sees whole."""
        text = f"{time.monotonic():0{_HEAD}.3f}\n{step}".encode("utf-8", "replace")
        try:
            os.pwrite(self._fd, text.ljust(_HEAD + 1 + 4 * STEP), 0)
        except OSError:
            return  # the disk is full


class StepWatch:
    """Finds the lines of one stream that show progress."""

    def __init__(self, file: StepFile) -> None:
        self._file = file
        self._rest = b""  # the beginning of an unfinished line

    def take(self, data: bytes) -> None:
        """Compare the lines that end in this data, the last ones first."""
        lines = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()[: 4 * _LINE]
        for line in reversed(lines[-_MOST:]):
            text = line[: 4 * _LINE].decode("utf-8", "replace")[:_LINE]
            if match := self._file.pattern.search(text):
                self._file.note(_step(match))
                return


def _step(match: re.Match[str]) -> str:
    text = next((group for group in match.groups() if group is not None), match[0])
    return "".join(char if char.isprintable() else "?" for char in text.strip())[:STEP]


def opened(pattern_file: str, run_dir: str, number: str) -> StepFile | None:
    """Return the file for this rank's steps; None if the pattern or the file cannot be opened."""
    try:
        pattern = re.compile(read_regular(pattern_file, _PATTERN).decode())
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        return StepFile(pattern, open_regular(place(run_dir, number), flags))
    except (OSError, ValueError, re.error):
        return None


def last(run_dir: str, number: str) -> tuple[float, str] | None:
    """Return when a rank last showed progress, by this machine's monotonic clock, and its step;
    None if it has not yet."""
    try:
        content = read_regular(place(run_dir, number), _HEAD + 1 + 4 * STEP)
        when, _, step = content.partition(b"\n")
        return float(when), step.decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None
