"""Plots by matplotlib, which only the benchmark's environment has: lines over a number, every run
as a dot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

# Each line has its own colour and dashes, for readers and printers without colours.
_STYLES = (("#1f77b4", "-"), ("#d95f02", "--"), ("#5a9e3d", ":"), ("#9467bd", "-."))
_GREY = "#6e7781"  # can be read on a light and on a dark page
_SETTINGS = {
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "axes.titlecolor": _GREY,
    "font.family": "sans-serif",
    "legend.labelcolor": _GREY,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "entrypoint",  # the same numbers give the same file
    "xtick.color": _GREY,
    "ytick.color": _GREY,
}

Points = Mapping[float, Sequence[float]]  # x -> the values of all runs


def save(file: Path, title: str, x: str, y: str, series: Mapping[str, Points]) -> None:
    """Write a plot with a line through the medians of each series; `x` and `y` name the axes, with
    their units."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for number, (name, points) in enumerate(series.items()):
            color, dashes = _STYLES[number % len(_STYLES)]
            ordered = sorted(points.items())
            medians = [statistics.median(runs) for _, runs in ordered]
            axes.plot([at for at, _ in ordered], medians, color=color, linestyle=dashes, label=name)
            runs = [(at, run) for at, values in ordered for run in values]
            axes.scatter(*zip(*runs, strict=True), s=12, color=color)
        axes.set(
            title=title,
            xlabel=x,
            ylabel=y,
            xticks=sorted({at for points in series.values() for at in points}),
        )
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=_GREY, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(file, transparent=True, metadata={"Date": None})
