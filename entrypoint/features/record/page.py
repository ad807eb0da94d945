"""Renders a timeline as one page of HTML that needs no network and no script: a bar for each
node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from entrypoint.base.phases import DNS, MEANING, Phase, Span
from entrypoint.base.render import render
from entrypoint.base.tables import table
from entrypoint.base.text import duration
from entrypoint.base.values import frozen
from entrypoint.features.record import ettr
from entrypoint.features.record.content import TimeSpent
from entrypoint.features.record.timeline import Bar, Timeline, notes, sentences
from entrypoint.output.lines import stamp

_CUT = 12.0  # per cent of the width for the time in which all nodes ran, if it would dwarf the boot
_TICKS = 6
_IN_WORDS = 6  # phases of a peer or a rank that are written in words
_SPANS = 40  # rows of peers and ranks that the page has for one node


# Colour, and the phases that have it: six that people see as different who do not see all colours
# (Okabe and Ito, "Color Universal Design", 2008).
_KINDS = table("""
    start  | CONTAINER FACTS HOOKS CHECKS EARLIER
    sshd   | KEYS SSHD
    call   | ROLL_CALL INQUIRY WAITING SPARE
    launch | FILES LAUNCHING OUTPUT
    run    | RUNNING
    end    | ENDING RELEASED
""")
_KIND_OF = {Phase[name].timeline: kind for kind, names in _KINDS.items() for name in names.split()}
_KIND_OF[DNS] = "sshd"
# The bar of the job's time: what was trained, what was not, and what was lost.
_KIND_OF_PART = table("""
    boot | start
    waiting | call
    training | run
    lost | lost
    detection | sshd
    stopping | end
    restarting | launch
""")
_MEANING = {**MEANING, DNS: "of a peer: until its name had an address"}


@frozen
class Axis:
    """Maps seconds to per cent of the width. The time from `cut` to `on` is drawn shorter; both are
    `whole` for none."""

    whole: float
    cut: float
    on: float

    @classmethod
    def of(cls, timeline: Timeline) -> Axis:
        """Return the axis; a run of hours is cut, so that the seconds of its boot are visible."""
        whole = max(timeline.seconds, 1e-6)
        phases = [phase for bar in timeline.bars for phase in bar.phases]
        runs = [phase for phase in phases if phase.name == Phase.RUNNING.timeline]
        cut = max((run.start for run in runs), default=whole)
        on = min((run.end for run in runs), default=whole)
        return cls(whole, cut, on) if on - cut > whole / 2 else cls(whole, whole, whole)

    def __call__(self, seconds: float) -> float:
        seconds = min(max(seconds, 0.0), self.whole)
        if (cut := self.on - self.cut) == 0:
            return 100 * seconds / self.whole
        inside = min(max(seconds - self.cut, 0.0), cut)
        scale = (100 - _CUT) / max(self.whole - cut, 1e-6)
        return (seconds - inside) * scale + _CUT * inside / cut

    def ticks(self) -> list[dict[str, Any]]:
        """Return the ticks: round times, none of them within the cut."""
        shown = self.whole - (self.on - self.cut)
        step = next(
            size * 10.0**power
            for power in range(-3, 9)
            for size in (1, 2, 5)
            if shown / (size * 10.0**power) <= _TICKS
        )
        before = [number * step for number in range(int(self.cut / step) + 1)]
        after = [number * step for number in range(1, int((self.whole - self.on) / step) + 1)]
        ticks = [(time, f"{time:g}s") for time in before]
        ticks += [(self.on + time, f"+{time:g}s") for time in after]
        return [
            {"left": f"{self(time):.3f}", "text": text} for time, text in ticks if self(time) <= 94
        ]


def page(timeline: Timeline) -> str:
    """Return the page's text."""
    axis = Axis.of(timeline)
    used = {phase.name for bar in timeline.bars for phase in (*bar.phases, *bar.spans)}
    meanings = [
        {"name": name, "kind": _KIND_OF[name], "text": meaning}
        for name, meaning in _MEANING.items()
        if name in used
    ]
    cut = (
        f"The {duration(axis.on - axis.cut)} in which all nodes ran are drawn shorter, between the"
        " dashed lines."
    )
    is_cut = axis.on > axis.cut
    context = {
        "job": timeline.job,
        "seconds": duration(timeline.seconds),
        "nodes": [_node(bar, timeline, axis) for bar in timeline.bars],
        "legend": [
            {
                "name": "roll call" if kind == "call" else kind,
                "kind": kind,
                "phases": ", ".join(names),
            }
            for kind in _KINDS
            if (names := [row["name"] for row in meanings if row["kind"] == kind])
        ],
        "meanings": meanings,
        "kinds": list(_KINDS),
        "ticks": axis.ticks(),
        "cut": [f"{axis(axis.cut):.3f}", f"{axis(axis.on):.3f}"] if is_cut else [],
        "sentences": sentences(timeline),
        "spent": _spent(timeline.spent),
        "notes": [*([cut] if is_cut else []), *notes(timeline)],
        "outcome": timeline.outcome,
        "failed": timeline.has_failed,
        "began": f"{stamp(timeline.began)[:19]}Z",
    }
    return render("report/timeline.html.j2", context)


def _spent(spent: TimeSpent | None) -> dict[str, Any]:
    """Return the bar of the job's time: its parts one after the other, and their table."""
    if not spent or not spent.whole:
        return {}
    parts, left = [], 0.0
    for name, seconds in spent.seconds.items():
        width = 100 * seconds / spent.whole
        place = {"left": f"{left:.3f}", "width": f"{width:.3f}"}
        text = f"{duration(seconds)}, {width:.2f} %, {ettr.PARTS[name]}"
        parts.append({**place, "name": name, "kind": _KIND_OF_PART[name], "text": text})
        left += width
    return {"text": ettr.headline(spent), "parts": parts, "lines": ettr.lines(spent)[1:]}


def _node(bar: Bar, timeline: Timeline, axis: Axis) -> dict[str, Any]:
    rows: dict[str, list[Span]] = {}
    for phase in bar.spans:
        rows.setdefault(phase.about, []).append(phase)
    # The slowest peers and ranks first: a node may have a thousand.
    waits = {
        about: sum(phase.seconds for phase in spans if phase.name != Phase.RUNNING.timeline)
        for about, spans in rows.items()
    }
    slowest = sorted(rows, key=lambda about: -waits[about])[:_SPANS]
    return {
        "host": bar.name,
        "last": bar is timeline.last,
        "lost": bool(bar.note),
        "note": bar.note,
        "seconds": duration(bar.seconds) if bar.phases else "no part",
        "parts": _parts(bar.phases, axis),
        "table": [
            {
                "name": name,
                "kind": _KIND_OF[name],
                "seconds": duration(seconds),
                "began": duration(next(span.start for span in bar.phases if span.name == name)),
            }
            for name, seconds in bar.totals.items()
        ],
        "rows": [
            {
                "about": about,
                "parts": _parts(rows[about], axis),
                "seconds": duration(waits[about]),
                "text": "; ".join(part["title"] for part in _parts(rows[about][:_IN_WORDS], axis)),
            }
            for about in slowest
        ],
        "more": len(rows) - len(slowest),
    }


def _parts(phases: Sequence[Span], axis: Axis) -> list[dict[str, str]]:
    return [
        {
            "kind": _KIND_OF[phase.name],
            "left": f"{axis(phase.start):.3f}",
            "width": f"{axis(phase.end) - axis(phase.start):.3f}",
            "title": f"{phase.name}: {duration(phase.seconds)}, from {duration(phase.start)}",
        }
        for phase in phases
        if phase.seconds >= 0.0005
    ]
