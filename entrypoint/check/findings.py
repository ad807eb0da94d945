"""What a check finds: one line for each thing looked at, the exit status of them all, and the table
or JSON that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from entrypoint.check.observation import Observation
from entrypoint.errors import ConfigError
from entrypoint.model import Finding, Outcome
from entrypoint.text import columns, count, some
from entrypoint.values import replace
from entrypoint.wire import to_json

ORDER = ("error", "warning", "ok")
_ALIKE = 8  # lines on one matter that the table shows
_HEAD = ("", "node", "what", "seen", "needed", "fix")
# characters of each column; the last ones give way on a narrow terminal
_WIDEST = (7, 30, 30, 70, 34, 70)
_LEAST = 16
_SHOWN = 3  # nodes named in a cell


def sort(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then as they were looked at; one line for the same on several nodes; no fix for
    what is well."""
    same: dict[Finding, list[str]] = {}
    for finding in findings:
        same.setdefault(
            replace(finding, nodes=(), fix=finding.fix if finding.level != "ok" else ""), []
        ).extend(finding.nodes)
    lines = [replace(finding, nodes=tuple(dict.fromkeys(nodes))) for finding, nodes in same.items()]
    return sorted(lines, key=lambda finding: ORDER.index(finding.level))


def together(lines: Sequence[Finding]) -> list[Finding]:
    """The same lines, but few: what is well on several nodes is one, and of many alike the first
    are shown."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in lines:
        what = finding.what if finding.level == "ok" else ""
        alike.setdefault((finding.level, finding.id, what), []).append(finding)
    shown = []
    for same in alike.values():
        first, *others = same
        if first.level == "ok":
            if others:
                seen = f"{first.seen}, and others like it ({len(others)})"
                first = replace(first, seen=seen, nodes=_nodes(same))
            shown.append(first)
            continue
        shown += same[:_ALIKE]
        if more := same[_ALIKE:]:
            seen = f"and {len(more)} more like these; --json has them all"
            shown.append(replace(more[0], seen=seen, needed="", fix="", nodes=_nodes(more)))
    return shown


def _nodes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for finding in findings for node in finding.nodes))


def status(findings: Iterable[Finding], strict: bool = False) -> int:
    """0, or 78 where the job would fail; `strict`: also where there is a warning."""
    bad = ("error", "warning") if strict else ("error",)
    return ConfigError.status if any(finding.level in bad for finding in findings) else 0


def summary(findings: Iterable[Finding]) -> str:
    """Such as `2 errors, 1 warning`."""
    levels = [finding.level for finding in findings]
    return (
        ", ".join(count(levels.count(level), level) for level in ORDER[:2] if level in levels)
        or "nothing is wrong"
    )


def text(lines: Sequence[Finding], nodes: int, width: int, head: str) -> str:
    """The table of so many nodes under its `head`, in lines of at most `width` characters where
    that is possible."""
    shown = [number for number in range(len(_HEAD)) if number != 1 or nodes != 1]
    rows = [_HEAD]
    for line in lines:
        who = "all" if len(line.nodes) == nodes else some(line.nodes, _SHOWN)
        rows.append((line.level, who, line.what, line.seen, line.needed, line.fix))
    longest = [max(len(row[column]) for row in rows) for column in shown]
    widths = [min(_WIDEST[column], most) for column, most in zip(shown, longest, strict=True)]
    _narrow(widths, width)
    table: list[tuple[str, ...]] = []
    for row in rows:
        cells = [
            textwrap.wrap(row[column], wide) or [""]
            for column, wide in zip(shown, widths, strict=True)
        ]
        table += zip_longest(*cells, fillvalue="")
    return "\n".join([head, "", *columns(table), "", summary(lines), ""])


def as_json(lines: Sequence[Finding], observed: Mapping[str, Observation], ended: Outcome) -> str:
    """How the check ends, all findings, and what each node has seen."""
    ends = {"status": ended.status, "reason": ended.reason}
    whole = {**ends, "findings": lines, "observed": observed}
    return to_json(whole, indent=2) + "\n"


def _narrow(widths: list[int], width: int) -> None:
    """Let the widest columns give way where a line is too long."""
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
