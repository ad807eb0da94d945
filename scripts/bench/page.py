"""The table and the picture of docs/performance.md, from the raw numbers alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .figures import Goal, by_name, figure, number
from .rows.boot import BARE, OURS
from .table import Row

BEGIN = "<!-- figures: `make bench` writes these, do not edit -->"
END = "<!-- end of the figures -->"
_GREY = "#6e7781"  # can be read on a light and on a dark page
_STYLES = {OURS: ("#1f77b4", "-"), BARE: ("#d95f02", "--")}


def laid(page: str, figures: str) -> str:
    """Return the page with other figures between its markers.

    Raises ValueError where the page does not have both markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def text(rows: Sequence[Row], kept: Mapping[str, Any]) -> str:
    """Return the table of all goals, and on which machines the rows were measured."""
    lines = [
        "| row | case | measured | compared with | result | goal | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    machines: dict[str, list[str]] = {}
    for row in rows:
        if row.name in kept:
            data = by_name(kept[row.name]["series"])
            lines += [_line(row, goal, data) for goal in row.goals]
            machines.setdefault(_machine(kept[row.name]), []).append(f"`{row.name}`")
        else:
            lines.append(f"| `{row.name}` | {row.title} | not measured | | | | no |")
    on = [f"- {', '.join(names)}: {machine}." for machine, names in machines.items()]
    return "\n".join([*lines, "", "Medians, each measured on the host of its row:", "", *on])


def _line(row: Row, goal: Goal, data: Any) -> str:
    ours, theirs = data.get((goal.case, goal.way)), data.get((goal.case, goal.beside))
    found = figure(goal, data)
    cells = [
        f"`{row.name}`",
        goal.case,
        f"{goal.way}: {number(ours.median, ours.unit)}" if ours else goal.way,
        f"{goal.beside}: {number(theirs.median, theirs.unit)}" if theirs else goal.beside,
        found.text,
        goal.words(ours.unit if ours else ""),
        "yes" if found.held else "no",
    ]
    return f"| {' | '.join(cells)} |"


def _machine(row: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in row["machine"].items())
    return f"{row['at'].partition(' ')[0]}, {facts}"


def draw(file: Path, kept: Mapping[str, Any]) -> None:
    """Write the picture of the boot: a line through the medians of each way, every run a dot."""
    import matplotlib  # only the benchmark's environment has it
    from matplotlib.figure import Figure

    colors = dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "legend.labelcolor", "xtick.color",
         "ytick.color"), _GREY,
    )  # fmt: skip
    # text stays text, and the same numbers give the same file
    with matplotlib.rc_context({**colors, "svg.fonttype": "none", "svg.hashsalt": "entrypoint"}):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for way, (color, dashes) in _STYLES.items():
            points = {
                int(series.case.split()[0]): series.good
                for series in by_name(kept["boot"]["series"]).values()
                if series.way == way
            }
            medians = [statistics.median(runs) for runs in points.values()]
            axes.plot(list(points), medians, color=color, linestyle=dashes, label=way)
            for nodes, runs in points.items():
                axes.scatter([nodes] * len(runs), runs, s=12, color=color)
        axes.set(
            title="From the start of the containers to the end of a trivial job",
            xlabel="nodes", ylabel="seconds", xlim=(0, None), ylim=(0, None),
        )  # fmt: skip
        axes.grid(axis="y", color=_GREY, alpha=0.3)
        axes.legend(frameon=False)
        figure.savefig(file, transparent=True, metadata={"Date": None})
