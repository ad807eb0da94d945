"""Our messages: stderr, one line each. They never delay the job, and never change how it ends.

A thread writes them, since stderr may be a pipe that nobody reads. Making it non-blocking would
also change it for the ranks and the terminal. Lines that cannot be written are dropped, the oldest
first, and counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from entrypoint.base.errors import CantCreateError
from entrypoint.base.kept import NOTE_AT, NOTE_SIZE
from entrypoint.base.secret import scrubbed
from entrypoint.base.text import count, escaped, escaped_lines
from entrypoint.base.values import frozen
from entrypoint.system.descriptors import open_regular, write_all

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from entrypoint.base.model import Topology
    from entrypoint.spec.logs import LogsSpec


_ROOM = 1 << 20  # bytes that may wait to be written
_PATIENCE = 0.1  # seconds that a caller waits for its line to be written
_CLEAR = b"\r\033[K"  # erases the last line of a terminal
# columns behind the live line: for `^C` of two signals, which a terminal shows there, and for the
# cursor; what is in the next row would not be erased with it
_BEHIND = 5
# Warnings, and errors with what explains them: the last lines of a rank, what a node lacks.
_IMPORTANT = r"^warning: |\bEP\d{3}\b|^  \| |^last |^cause: |^seen here: |; exit \d+$"
_LAST = 2.0  # seconds to write the remaining lines at the end


def answer(text: str) -> None:
    """Print a command's answer on stdout. It is no error if the reader leaves early, as in `plan |
    head`.

    Raises CantCreateError if it cannot be written.
    """
    try:
        write_all(1, text.encode("utf-8", "surrogateescape"))
    except BrokenPipeError:
        return
    except OSError as error:
        raise CantCreateError(
            "EP113 cannot write to stdout", error.strerror or "", "make room where it goes"
        ) from None


def show(text: str) -> None:
    """Print an answer for people: control characters of values in it are escaped."""
    answer(escaped_lines(text))


@frozen
class Callbacks:
    """Functions for parts of a node: `tell` takes an event, `background` a coroutine whose error
    ends the job."""

    log: Logger
    tell: Callable[[Any], None]
    background: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Logger:
    """Logs one line a call, and waits a moment until it is written, so that it keeps its place in
    the output."""

    name = ""
    quiet = False  # whether only warnings and errors are logged
    # Whose lines they are, in JSON: the names of job, node and host, once they are known.
    _whose = ("", "", "")
    attempt = 1
    _is_json = False
    _timestamps = False
    # The line that stays below all others, and its text on the terminal now.
    _status = ""
    _drawn = ""
    _bytes = 0  # bytes of `_lines`
    # lost lines that are not reported yet: failed writes, and lines dropped for later ones
    _lost = 0
    lost = 0  # all lost lines so far
    _torn = False  # whether the last line may be half-written
    _last_output = -1  # file with the end of the programs' last line (stream.py)
    _output_note = b""  # number of the note in that file that was read last
    _late = False  # whether the wait has failed since the queue was last empty
    _writer: threading.Thread | None = None

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._terminal = os.environ.get("TERM", "dumb") != "dumb" and os.isatty(fd)
        self._colour = self._terminal and not os.environ.get("NO_COLOR")
        self._lines: deque[bytes] = deque()  # the first one is being written
        self._changed = threading.Condition()

    def __call__(self, text: str, fields: Mapping[str, Any] | None = None) -> None:
        """Log a line; as a JSON object it also has these fields."""
        if self.quiet and not re.search(_IMPORTANT, text):
            return
        line = self._line(escaped(scrubbed(text, os.environ)), fields)
        with self._changed:
            self._lines.append(line)
            self._bytes += len(line)
            while len(self._lines) > 2 and self._bytes > _ROOM:
                self._bytes -= len(self._lines[1])
                del self._lines[1]
                self._lost += 1
                self.lost += 1
            self._changed.notify_all()
            if self._running() and not self._late:
                self._late = not self._changed.wait_for(lambda: not self._lines, _PATIENCE)

    def shape(self, logs: LogsSpec) -> None:
        """Write each line from now on as this is configured: as a JSON object, with the time, or
        only warnings and errors."""
        self._is_json = logs.format == "json"
        self._timestamps = logs.timestamps == "utc"
        self.quiet = logs.level == "warning"

    def about(self, topology: Topology) -> None:
        """Name the job and this node in each JSON line from now on."""
        self._whose = topology.job, topology.this.label, topology.this.host
        self.attempt = topology.history.number

    @property
    def live(self) -> Callable[[str], None] | None:
        """Return the function that shows a text as the last line of a terminal until the next call;
        None for a log."""
        is_plain = not (self._is_json or self._timestamps or self.quiet)
        return self._show if self._terminal and is_plain else None

    def _show(self, text: str) -> None:
        with self._changed:
            self._status = escaped(text)
            self._changed.notify_all()
            if self._running() and not text:  # a program may write there next
                self._changed.wait_for(lambda: not self._drawn, _PATIENCE)

    def follow(self, last_output: Path) -> None:
        """Begin a new line if the last output of a program has not ended its line, as progress bars
        do, from now on."""
        with self._changed:
            before = self._last_output
            self._last_output = -1
            self._output_note = b""
            with contextlib.suppress(OSError):
                self._last_output = open_regular(last_output)
            if before >= 0:
                os.close(before)

    def flush(self) -> None:
        """Return when all lines are written, or after a time limit."""
        with self._changed:
            self._status = ""
            self._changed.wait_for(lambda: not self._lines and not self._drawn, _LAST)

    def _line(self, text: str, fields: Mapping[str, Any] | None = None) -> bytes:
        prefix = f"[entrypoint {self.name}]" if self.name else "[entrypoint]"
        line = f"{prefix} {text}"
        if self._is_json or self._timestamps:
            from entrypoint.output import lines  # most starts need none

            line = f"{lines.stamp(time.time())} {line}"
            if self._is_json:
                whose = lines.origin(*self._whose, self.attempt)
                line = lines.json_message(text, whose, fields or {})
        elif self._colour:
            line = f"\033[{33 if text.startswith('warning:') else 36}m{prefix}\033[m {text}"
        return f"{line}\n".encode("utf-8", "backslashreplace")

    def _running(self) -> bool:
        """Return whether the writer thread runs. If it cannot start, write the lines that need no
        waiting here."""
        if self._writer is not None:
            return True
        writer = threading.Thread(target=self._write, daemon=True)
        try:
            writer.start()
        except RuntimeError:  # no more threads
            while self._lines and select.select([], [self._fd], [], 0)[1]:
                self._write_first()
            return False
        self._writer = writer
        return True

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._status != self._drawn)
            if self._lines:
                self._write_first()
            else:
                self._draw()

    def _draw(self) -> None:
        """Show the current live line; "" erases it."""
        with self._changed:
            text = self._status
        with contextlib.suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._fd).columns or 80
            shown = text[: max(0, columns - _BEHIND)]
            write_all(self._fd, _CLEAR + shown.encode("utf-8", "backslashreplace"))
        with self._changed:
            self._drawn = text
            self._changed.notify_all()

    def _write_first(self) -> None:
        with self._changed:
            line = self._lines[0]
            lost = self._lost
            self._lost = 0
            cut = self._torn or self._cut()
            clear = _CLEAR if self._drawn else b""
            self._drawn = ""
        if lost:
            line = self._line(f"EP901 {count(lost, 'line')} could not be written here") + line
        try:
            write_all(self._fd, clear + (b"\n" + line if cut else line))
            lost = 0
            self._torn = False
        except OSError:
            lost += 1
            self._torn = True
            self.lost += 1
        with self._changed:
            self._lost += lost
            self._bytes -= len(self._lines.popleft())
            if not self._lines:
                self._late = False
            self._changed.notify_all()

    def _cut(self) -> bool:
        """Return whether the last line on the log's stream is a program's and has no end."""
        with contextlib.suppress(OSError):
            note = os.pread(self._last_output, NOTE_SIZE, NOTE_AT)
            if note[2:] != self._output_note:
                self._output_note = note[2:]
                return note[not os.path.sameopenfile(1, self._fd)] == ord(".")
        return False


def width() -> int:
    """Return the columns for --help. argparse would use shutil, whose import loads modules that
    read archives."""
    with contextlib.suppress(OSError, ValueError):
        return max(20, int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns) - 2)
    return 78
