"""Findings as people and programs read them: one table, worst first, or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from entrypoint.check.findings import summary
from entrypoint.check.observation import Observation
from entrypoint.model import Finding, Outcome
from entrypoint.text import columns, some
from entrypoint.wire import to_json

_HEAD = ("", "node", "what", "seen", "needed", "fix")
# characters of each column; the last ones give way on a narrow terminal
_WIDEST = (
    7,
    30,
    30,
    70,
    34,
    70,
)
_LEAST = 16
_SHOWN = 3  # nodes named in a cell


def text(lines: Sequence[Finding], nodes: int, width: int, head: str) -> str:
    """The table of so many nodes under its `head`, in lines of at most `width` characters where
    that is possible."""
    rows = [
        (line.level, _who(line.nodes, nodes), line.what, line.seen, line.needed, line.fix)
        for line in lines
    ]
    shown = [number for number in range(len(_HEAD)) if number != 1 or nodes != 1]
    longest = [max(len(row[column]) for row in (_HEAD, *rows)) for column in shown]
    widths = _widths(
        [min(_WIDEST[column], most) for column, most in zip(shown, longest, strict=True)], width
    )
    table: list[tuple[str, ...]] = []
    for row in (_HEAD, *rows):
        cells = [
            textwrap.wrap(row[column], wide) or [""]
            for column, wide in zip(shown, widths, strict=True)
        ]
        table += zip_longest(*cells, fillvalue="")
    return "\n".join([head, "", *columns(table), "", summary(lines), ""])


def as_json(lines: Sequence[Finding], observed: Mapping[str, Observation], ended: Outcome) -> str:
    """How the check ends, all findings, and what each node has seen."""
    whole = {
        "status": ended.status,
        "reason": ended.reason,
        "findings": lines,
        "observed": observed,
    }
    return to_json(whole, indent=2) + "\n"


def _who(named: Sequence[str], nodes: int) -> str:
    return "all" if len(named) == nodes else some(named, _SHOWN)


def _widths(wanted: list[int], width: int) -> list[int]:
    """What each column takes: what it wants, but where the line is too short, the widest gives
    way."""
    widths = list(wanted)
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return widths
