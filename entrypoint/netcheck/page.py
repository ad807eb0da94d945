"""Renders the heat map: one self-contained HTML page, a row and a column for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from entrypoint.netcheck.analysis import NetworkFinding, usual
from entrypoint.netcheck.result import Measured, NetcheckResult
from entrypoint.render import render
from entrypoint.text import figure, size

_CELL, _TOP = 56, 32  # of the drawing
_CHARACTER, _LONGEST = 8, 24  # width of one, and how many of a name are drawn
# Milliseconds: below it round trips differ by the processors, and a quicker usual one counts as it.
_FLOOR = 0.25
_FIGURES = 16  # nodes up to which cells hold their figures
_STEPS = 5  # from usual (0) to ten times worse
Cell = tuple[float, float, str]  # value, how many times worse than usual, error


def page(result: NetcheckResult, findings: Sequence[NetworkFinding], job: str) -> str:
    """Return the page's text."""
    trip, rate = usual(result)
    bad = {finding.nodes[0]: finding for finding in findings if len(finding.nodes) == 1}
    median = f"usual {figure(trip)} ms; the median of small messages"
    if trip < _FLOOR:
        median += f"; up to {figure(1.5 * _FLOOR)} ms counts as usual"
    maps = [
        _map(result, bad, "Round trip, ms", median, "ms", _trips(trip)),
        _map(
            result,
            bad,
            "Bandwidth, Gbit/s",
            f"usual {figure(rate)} Gbit/s; from the node of the row to that of the column, one TCP"
            " stream",
            "Gbit/s",
            _rates(rate),
        ),
    ]
    return render(
        "netcheck/netcheck.html.j2",
        {
            "job": job,
            "nodes": len(result.nodes),
            "pairs": len(result.pairs),
            "findings": [
                {"text": finding.text, "kind": "fails" if finding.fails else "slow"}
                for finding in findings
            ],
            "left_out": (
                f"{result.left_out} pairs were not measured: {result.why_left_out}"
                if result.left_out
                else ""
            ),
            "rejected": result.rejected,
            "maps": maps,
            "backend": result.backend,
            "no_sweep": result.no_sweep,
            "sweep": _sweep(result),
        },
    )


def _sweep(result: NetcheckResult) -> list[dict[str, str]]:
    most = max((row.bus_gbs for row in result.reduced), default=0.0)
    return [
        {
            "size": size(row.size),
            "ms": f"{row.seconds * 1e3:.3f}",
            "bus": figure(row.bus_gbs * 1e3),
            "share": f"{100 * row.bus_gbs / most if most else 0:.0f}",
        }
        for row in result.reduced
    ]


def _trips(trip: float) -> Callable[[Measured], tuple[Cell, Cell]]:
    def cells(pair: Measured) -> tuple[Cell, Cell]:
        worse = pair.latency_ms / max(trip, _FLOOR)
        return (pair.latency_ms, worse, pair.error), (pair.latency_ms, worse, pair.error)

    return cells


def _rates(rate: float) -> Callable[[Measured], tuple[Cell, Cell]]:
    def cell(gbps: float, error: str) -> Cell:
        return gbps, rate / gbps if gbps > 0 else 1e9, error

    def cells(pair: Measured) -> tuple[Cell, Cell]:
        return cell(pair.there_gbps, pair.error), cell(pair.back_gbps, pair.error)

    return cells


def step(worse: float) -> int:
    """Return the colour of a cell that is `worse` times worse than usual: 0 up to 1.5 times, 5 from
    10 times."""
    if worse <= 1.5:
        return 0
    return min(_STEPS, 1 + int((_STEPS - 1) * log(worse / 1.5) / log(10 / 1.5)))


def _map(
    result: NetcheckResult,
    bad: Mapping[int, NetworkFinding],
    title: str,
    about: str,
    unit: str,
    cells: Callable[[Measured], tuple[Cell, Cell]],
) -> dict[str, Any]:
    """Return one heat map, as the template draws it."""
    nodes, drawn = len(result.nodes), []
    left = _CHARACTER * max(len(_drawn(result.name(node))) for node in range(nodes)) + 16
    for pair in result.pairs:
        for (row, column), (value, worse, error) in zip(
            ((pair.a, pair.b), (pair.b, pair.a)), cells(pair), strict=True
        ):
            source, target = result.nodes[row][0], result.nodes[column][0]
            shown = "x" if error else figure(value)
            drawn.append(
                {
                    "x": left + column * _CELL,
                    "y": _TOP + row * _CELL,
                    "kind": "error" if error else f"s{step(worse)}",
                    "shown": shown if nodes <= _FIGURES or error else "",
                    "title": f"{source} to {target}: {error or f'{shown} {unit}'}",
                }
            )
    width, height = left + nodes * _CELL, _TOP + nodes * _CELL
    return {
        "title": title,
        "about": about,
        "cells": drawn,
        "labels": _labels(result, bad),
        "diagonal": [{"x": left + node * _CELL, "y": _TOP + node * _CELL} for node in range(nodes)],
        "left": left,
        "top": _TOP,
        "cell": _CELL,
        "width": width,
        "height": height,
        # Below this the figures could not be read: the drawing scrolls.
        "least": width * 7 // 8 if nodes > 4 else 0,
    }


def _labels(result: NetcheckResult, bad: Mapping[int, NetworkFinding]) -> list[dict[str, Any]]:
    return [
        {
            "name": _drawn(result.name(rank)),
            "short": str(rank),
            "at": rank * _CELL + _CELL // 2,
            "kind": "bad" if rank in bad else "fine",
            "title": bad[rank].text if rank in bad else result.name(rank),
        }
        for rank in range(len(result.nodes))
    ]


def _drawn(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
