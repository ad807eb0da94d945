"""Plots as SVG text: lines over a number, every run as a dot. Readable on a light and on a dark page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 48
# Each line has its own colour and its own dashes, for readers and printers that know no colours.
_LOOKS = (("#1f77b4", ""), ("#d95f02", "6 4"), ("#5a9e3d", "2 3"), ("#9467bd", "8 3 2 3"))
_STYLE = """  <style>
    text { font: 12px sans-serif; fill: #24292f }
    .axis { stroke: #57606a } .grid { stroke: #d0d7de } .title { font-size: 14px; font-weight: bold }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .axis { stroke: #9198a1 } .grid { stroke: #3d444d } }
  </style>"""

Points = Mapping[float, Sequence[float]]  # x -> the values of all runs


def lines(title: str, x: str, y: str, series: Mapping[str, Points]) -> str:
    """A plot with a line through the medians of each series; x and y name the axes, with their units."""
    places = sorted({at for points in series.values() for at in points})
    top = _round_up(max((run for points in series.values() for runs in points.values() for run in runs), default=1.0))
    right = max(places, default=1.0)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"  <title>{escape(title)}</title>",
        _STYLE,
        f'  <text class="title" x="{_LEFT}" y="20">{escape(title)}</text>',
    ]
    for step in range(6):
        value = top * step / 5
        at = _down(value, top)
        out.append(f'  <line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}"/>')
        out.append(f'  <text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    base, middle = HEIGHT - _BOTTOM, (_LEFT + WIDTH - _RIGHT) / 2
    out.append(f'  <line class="axis" x1="{_LEFT}" y1="{base}" x2="{WIDTH - _RIGHT}" y2="{base}"/>')
    out.append(f'  <line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{base}"/>')
    for place in places:
        out.append(f'  <text x="{_across(place, right):.1f}" y="{base + 18}" text-anchor="middle">{place:g}</text>')
    out.append(f'  <text x="{middle:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>')
    turned = f'transform="rotate(-90 16 {(_TOP + base) / 2:.1f})"'
    out.append(f'  <text x="16" y="{(_TOP + base) / 2:.1f}" text-anchor="middle" {turned}>{escape(y)}</text>')
    for number, (name, points) in enumerate(series.items()):
        out += _line(number, name, points, right, top)
    return "\n".join([*out, "</svg>", ""])


def _line(number: int, name: str, points: Points, right: float, top: float) -> list[str]:
    colour, dashes = _LOOKS[number % len(_LOOKS)]
    middle = {at: statistics.median(runs) for at, runs in sorted(points.items()) if runs}
    way = " ".join(f"{_across(at, right):.1f},{_down(value, top):.1f}" for at, value in middle.items())
    look = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
    at = _TOP + 8 + 18 * number
    return [
        f'  <polyline points="{way}" fill="none" {look}/>',
        *(
            f'  <circle cx="{_across(at, right):.1f}" cy="{_down(run, top):.1f}" r="2.5" fill="{colour}"/>'
            for at, runs in sorted(points.items())
            for run in runs
        ),
        f'  <line x1="{_LEFT + 12}" y1="{at}" x2="{_LEFT + 44}" y2="{at}" {look}/>',
        f'  <text x="{_LEFT + 50}" y="{at + 4}">{escape(name)}</text>',
    ]


def _across(value: float, right: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT - 12) * value / right


def _down(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5, 10, 20, ... that is not less, with room for the names of the lines."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0) if step * power >= value)
