"""Renders a timeline as one page of HTML that needs no network and no script: a bar for each
node."""

from __future__ import annotations

from typing import Any

from entrypoint.output.lines import stamp
from entrypoint.phases import DNS, MEANING, Phase, Span
from entrypoint.record.timeline import Bar, Timeline, notes, sentences
from entrypoint.render import render
from entrypoint.text import duration
from entrypoint.values import dataclass

_CUT = 12.0  # per cent of the width for the time in which all nodes ran, if it would dwarf the boot
_TICKS = 6
_TOLD = 6  # phases of a peer or a rank that are told in words
_SPANS = 40  # rows of peers and ranks that the page has for one node


@dataclass(frozen=True)
class Axis:
    """Maps seconds to per cent of the width. The time from `cut` to `on` is drawn shorter; both are
    0 for none."""

    whole: float
    cut: float = 0.0
    on: float = 0.0

    @classmethod
    def of(cls, timeline: Timeline) -> Axis:
        """Return the axis; a run of hours is cut, so that the seconds of its boot are visible."""
        whole = max(timeline.seconds, 1e-6)
        runs = [
            phase
            for bar in timeline.bars
            for phase in bar.phases
            if phase.name == Phase.RUNNING.timeline
        ]
        if runs:
            cut = max(run.start for run in runs)
            on = min(run.end for run in runs)
            if on - cut > whole / 2:
                return cls(whole, cut, on)
        return cls(whole)

    def __call__(self, seconds: float) -> float:
        seconds = min(max(seconds, 0.0), self.whole)
        if not self.on:
            return 100 * seconds / self.whole
        scale = (100 - _CUT) / max(self.whole - (self.on - self.cut), 1e-6)
        inside = min(max(seconds - self.cut, 0.0), self.on - self.cut)
        return (seconds - inside) * scale + _CUT * inside / (self.on - self.cut)

    def ticks(self) -> list[dict[str, Any]]:
        """Return the ticks: round times, none of them within the cut."""
        shown = self.whole - (self.on - self.cut)
        step = next(
            size * 10.0**power
            for power in range(-3, 9)
            for size in (1, 2, 5)
            if shown / (size * 10.0**power) <= _TICKS
        )
        times = [
            number * step for number in range(int((self.cut if self.on else self.whole) / step) + 1)
        ]
        if self.on:
            times += [
                self.on + number * step
                for number in range(1, int((self.whole - self.on) / step) + 1)
            ]
        return [
            {"left": f"{self(time):.3f}", "text": _tick(time, self)}
            for time in times
            if self(time) <= 94
        ]


def _tick(seconds: float, axis: Axis) -> str:
    after = axis.on and seconds > axis.on
    return f"+{seconds - axis.on:g}s" if after else f"{seconds:g}s"


def page(timeline: Timeline) -> str:
    """Return the page's text."""
    axis = Axis.of(timeline)
    used = {phase.name for bar in timeline.bars for phase in (*bar.phases, *bar.spans)}
    cut = (
        f"The {duration(axis.on - axis.cut)} in which all nodes ran are drawn shorter, between the"
        " dashed lines."
    )
    context = {
        "job": timeline.job,
        "seconds": duration(timeline.seconds),
        "nodes": [_node(bar, timeline, axis) for bar in timeline.bars],
        "legend": [
            {
                "name": name,
                "kind": kind,
                "phases": ", ".join(phase for phase in phases if phase in used),
            }
            for kind, (name, phases) in _KINDS.items()
            if used.intersection(phases)
        ],
        "meanings": [
            {"name": name, "kind": _KIND_OF[name], "text": meaning}
            for name, meaning in _MEANING.items()
            if name in used
        ],
        "ticks": axis.ticks(),
        "cut": [f"{axis(axis.cut):.3f}", f"{axis(axis.on):.3f}"] if axis.on else [],
        "sentences": sentences(timeline),
        "notes": [*([cut] if axis.on else []), *notes(timeline)],
        "outcome": timeline.outcome,
        "failed": timeline.has_failed,
        "began": f"{stamp(timeline.began)[:19]}Z",
    }
    return render("report/timeline.html.j2", context)


_MEANING = {**MEANING, DNS: "of a peer: until its name had an address"}


# Colour, its name, and the phases that have it: six that people see as different who do not see all
# colours (Okabe and Ito, "Color Universal Design", 2008).
_KINDS = {
    "start": (
        "start",
        tuple(
            phase.timeline
            for phase in (Phase.CONTAINER, Phase.FACTS, Phase.HOOKS, Phase.CHECKS, Phase.EARLIER)
        ),
    ),
    "sshd": ("sshd", (Phase.KEYS.timeline, Phase.SSHD.timeline, DNS)),
    "call": (
        "roll call",
        (Phase.ROLL_CALL.timeline, Phase.INQUIRY.timeline, Phase.WAITING.timeline),
    ),
    "launch": (
        "launch",
        (Phase.FILES.timeline, Phase.LAUNCHING.timeline, Phase.OUTPUT.timeline),
    ),
    "run": ("run", (Phase.RUNNING.timeline,)),
    "end": ("end", (Phase.ENDING.timeline, Phase.RELEASED.timeline)),
}
_KIND_OF = {name: kind for kind, (_, names) in _KINDS.items() for name in names}


def _node(bar: Bar, timeline: Timeline, axis: Axis) -> dict[str, Any]:
    took = bar.totals
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
        "last": timeline.last is not None and timeline.last.rank == bar.rank,
        "lost": bool(bar.note) and not bar.phases,
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
            for name, seconds in took.items()
        ],
        "rows": [
            {
                "about": about,
                "parts": _parts(rows[about], axis),
                "seconds": duration(waits[about]),
                "text": "; ".join(part["title"] for part in _parts(rows[about][:_TOLD], axis)),
            }
            for about in slowest
        ],
        "more": len(rows) - len(slowest),
    }


def _parts(phases: tuple[Span, ...] | list[Span], axis: Axis) -> list[dict[str, str]]:
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
