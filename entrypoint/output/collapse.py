"""Lines of several ranks that differ only by rank, pid or time become one (`logs.collapse`).

Only a job that asks for it loads this.
"""

from __future__ import annotations

import re
import time
from bisect import bisect

from entrypoint.base.text import spans
from entrypoint.output.lines import FIELD, LONGEST, NEVER, PIECE

# A time, and glog's thread behind it; NCCL's host:pid:thread [device]; `rank 3`, but no fraction.
VARIABLE = (
    rb"(?<![\w:])(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d?:\d\d:\d\d(?!:\d)(?:[.,]\d{1,9})?"
    rb"(?: +\d+(?= [\w./-]{1,255}:\d+\]))?|(?<![\w.-])[\w.-]{1,255}:\d+:\d+ \[[\d#]+\]"
    rb"|((?i:rank|[pt]id|process|device|[gn]pu|cuda|worker|node|host)[ :=#_[(-]*)\d+(?!\.?\d)"
)


class _Held:
    """A line that waits for the same one of other ranks. `order`: its place among the lines, and
    the bytes up to its arrival; `due`: when it is passed on, by the monotonic clock."""

    def __init__(self, order: tuple[int, int], due: float, prefix: bytes, text: bytes) -> None:
        self.order = order
        self.due = due
        self._prefix = prefix
        self._text = text
        self.ranks: list[bytes] = []  # that have printed it

    def line(self, is_json: bool) -> bytes:
        """Return it, with its ranks if there are several."""
        if len(self.ranks) == 1:
            return self._prefix + self._text
        names = ",".join(spans(sorted(map(int, self.ranks)))).encode()
        note = b',"count":%d,"ranks":"%b"' if is_json else b" [x%d: ranks %b]"
        body = self._text.rstrip(b"}\n" if is_json else b"\r\n")
        end = self._text[len(body) :]
        return self._prefix + body + note % (len(self.ranks), names) + end


class Collapser:
    """Holds lines for a second: those of other ranks join them, or follow the last line of their
    rank, so that what a rank prints stays in its order."""

    due = NEVER  # when the next line that is held is passed on

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._lines: list[_Held] = []
        self._alike: dict[bytes, list[_Held]] = {}
        self._last: dict[bytes, tuple[int, int]] = {}  # rank -> order of its last line
        self._passed = (0, 0)  # order of the last line that was passed on
        self._size = 0  # bytes of all lines since none was held

    def take(self, data: bytes) -> bytes:
        """Take whole lines, and return those that are due."""
        self._hold(data)
        return self._pass(NEVER if self._size > 4 * LONGEST else time.monotonic())

    def rest(self) -> bytes:
        """Return all lines."""
        return self._pass(NEVER)

    def _hold(self, lines: bytes) -> None:
        for line in lines.splitlines(keepends=True):
            self._size += len(line) + 200
            parts = line.split(FIELD.encode(), 2)
            prefix, rank, text = parts if len(parts) == 3 else (line, b"", b"")
            is_one = len(text) > PIECE or not rank.isdigit() or text.endswith(b"\r")
            own = b"" if is_one else text.replace(b"[%b]" % rank, b"[#]")
            alike = self._alike.setdefault(re.sub(VARIABLE, rb"\1#", own), []) if own else []
            last = max(self._last.get(rank, self._passed), self._passed)
            at = bisect(alike, last, key=lambda held: held.order)
            if at == len(alike):
                alike.append(self._insert(last if rank else None, prefix, text))
            self._last[rank] = alike[at].order
            alike[at].ranks.append(rank)

    def _insert(self, last: tuple[int, int] | None, prefix: bytes, text: bytes) -> _Held:
        """Hold a line behind the last one of its rank, and at the end if that is the last of
        all."""
        end = self._lines[-1].order[0] if self._lines else self._passed[0]
        order = (last[0] if last and last[0] < end else end + 1, self._size)
        at = bisect(self._lines, order, key=lambda held: held.order)
        # A line is passed on before those behind it.
        due = min([time.monotonic() + 1, *(held.due for held in self._lines[at : at + 1])])
        held = _Held(order, due, prefix, text)
        self._lines.insert(at, held)
        return held

    def _pass(self, now: float) -> bytes:
        due = self._lines[: bisect(self._lines, now, key=lambda held: held.due)]
        del self._lines[: len(due)]
        if due:
            self._passed = due[-1].order
        self.due = self._lines[0].due if self._lines else NEVER
        if not self._lines:
            self._alike.clear()
            self._last.clear()
            self._passed = (0, 0)
            self._size = 0
        return b"".join(held.line(self._is_json) for held in due)
