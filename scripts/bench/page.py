"""The tables and the picture of docs/performance.md, from the raw numbers alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import share
from .figures import OURS, Data, Goal, data_of, result
from .rows.boot import BARE
from .table import Row

BEGIN = "<!-- figures: `make bench` writes these, do not edit -->"
END = "<!-- end of the figures -->"
_GREY = "#6e7781"  # can be read on a light and on a dark page
_HEAD = (
    "| row | case | measured | compared with | result | goal | reached |",
    "|---|---|---|---|---|---|---|",
)
_STYLES = {OURS: ("#1f77b4", "-"), BARE: ("#d95f02", "--")}


def laid(page: str, figures: str) -> str:
    """Return the page with other figures between its markers."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{rest.partition(END)[2]}"


def text(rows: Sequence[Row], kept: Mapping[str, Any]) -> str:
    """Return a table of all goals of rows that were measured, for each machine that measured."""
    tables: dict[str, list[str]] = {}
    for row in rows:
        if row.name in kept:
            found = kept[row.name]
            facts = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
            on = f"Medians of {found['at'].partition(' ')[0]}: {facts}.\n"
            tables.setdefault(on, [on, *_HEAD])
            tables[on] += [_line(row, goal, data_of(found)) for goal in row.goals]
    figures = ["\n".join(lines) for lines in tables.values()]
    return "\n\n".join(filter(None, (*figures, share.text(kept))))


def _line(row: Row, goal: Goal, data: Data) -> str:
    ours, other = data.get((goal.case, OURS)), data.get((goal.case, goal.baseline))
    measured, reached = result(goal, data)
    cells = [
        f"`{row.name}`",
        goal.case,
        f"{OURS}: {ours.text}" if ours else "",
        f"{goal.baseline}: {other.text}" if other else "",
        measured,
        goal.words(ours.unit if ours else ""),
        "yes" if reached else "no",
    ]
    return f"| {' | '.join(cells)} |"


def draw(file: Path, boot: Data) -> None:
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
                int(case.split()[0]): series.good
                for (case, by), series in boot.items()
                if by == way and case.endswith(" nodes")
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
