"""The text of docs/performance.md between its markers, from the raw numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import Goal, Series, by_name, figure, number, unpacked

BEGIN = "<!-- figures: `make bench` writes these, do not edit -->"
END = "<!-- end of the figures -->"


@dataclass(frozen=True)
class About:
    """What the page says of a row beside its numbers."""

    name: str
    title: str
    method: str  # how it is measured, in sentences
    goals: tuple[Goal, ...]
    plot: str = ""  # its name beside the page; shown once the row was measured


def laid(page: str, figures: str) -> str:
    """The page with other figures between its markers.

    Raises ValueError where the page does not have both markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def text(rows: Sequence[About], kept: Mapping[str, Any]) -> str:
    """All figures: what was reached, then each row with its medians, machine and raw numbers."""
    return "\n\n".join([_summary(rows, kept), *(_row(row, kept.get(row.name)) for row in rows)])


def _summary(rows: Sequence[About], kept: Mapping[str, Any]) -> str:
    lines = ["| what | case | measured | goal | reached |", "|---|---|---|---|---|"]
    for row in rows:
        if row.name not in kept:
            lines.append(f"| [{row.title}](#{anchor(row.title)}) | | not measured | | no |")
            continue
        data = by_name(unpacked(kept[row.name]["series"]))
        for goal in row.goals:
            found = figure(goal, data)
            series = data.get((goal.case, goal.way))
            over = f" over {goal.beside}" if goal.beside else ""
            lines.append(
                f"| [{row.title}](#{anchor(row.title)}) | {goal.case}: {goal.way}{over} |"
                f" {found.text} | {goal.words(series.unit if series else '')} |"
                f" {'yes' if found.held else 'no'} |"
            )
    return "\n".join(lines)


def anchor(title: str) -> str:
    """The heading's link, as GitHub makes it."""
    kept = "".join(each for each in title.lower() if each.isalnum() or each in "-_ ")
    return kept.replace(" ", "-")


def _row(row: About, kept: Mapping[str, Any] | None) -> str:
    head = f"### {row.title}\n\n{row.method}"
    if kept is None:
        return f"{head}\n\nNot measured yet: `make bench ROWS={row.name}`."
    if row.plot:
        head += f"\n\n![{row.title}]({row.plot})"
    lines = ["| case | way | median | runs |", "|---|---|---|---|"]
    lines += [_series(each) for each in unpacked(kept["series"])]
    return f"{head}\n\n" + "\n".join(lines) + f"\n\n{_machine(kept)}"


def _series(series: Series) -> str:
    raw = ", ".join(run if isinstance(run, str) else number(run, "") for run in series.runs)
    return (
        f"| {series.case} | {series.way} | {number(series.median, series.unit)} |"
        f" {raw.replace('|', '/')} |"
    )


def _machine(kept: Mapping[str, Any]) -> str:
    machine = kept["machine"]
    said = ", ".join(f"{name} {value}" for name, value in machine.items())
    return f"Measured {kept['at']}: {said}; {kept['in use']:.0f} % of the cores were in use before."
