"""Tables of results: a row for each area of a run, and a line for each thing that an area shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from textwrap import shorten

from tests.proof.areas import area_of
from tests.proof.results import Result

WIDTH = 70  # characters of a cell
OUTCOMES = ("passed", "failed", "skipped")


def home(test: str) -> str:
    """Return the area of a test, or a step's own name."""
    return area_of(test).name if "::" in test else test


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns; those of numbers are aligned to the right."""
    width = max(map(len, rows))
    full = [[*row, *[""] * (width - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    lines = []
    for row in full:
        cells = (
            cell.rjust(width) if cell.replace(".", "").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def of_run(
    results: Sequence[Result], run: str, commit: str, known: Collection[str], seconds: float
) -> str:
    """Return the table of a run, a row for each area and step: what was run, what was not since
    nothing that it depends on has changed (`known`), and of which commits those results are."""
    executed = [each for each in results if each["run"] == run]
    last = {each["test"]: each for each in results}
    ran, kept = defaultdict(list), defaultdict(list)
    for each in executed:
        ran[home(each["test"])].append(each)
    for name in known:
        kept[home(name)].append(last[name])
    rows: list[tuple[str, ...]] = [("area", *OUTCOMES, "seconds", "unchanged", "of commit")]
    for area in sorted({*ran, *kept}):
        counts = Counter(each["outcome"] for each in ran[area])
        took = sum(each["seconds"] for each in ran[area])
        commits = Counter(each["commit"] for each in kept[area]).most_common(3)
        rows.append(
            (area, *(str(counts[outcome]) for outcome in OUTCOMES), f"{took:.0f}",
             str(len(kept[area])), ", ".join(name for name, _ in commits))
        )  # fmt: skip
    lines = [aligned(rows), *_reasons(executed)]
    distinct = {each["test"] for each in executed}
    failed = sorted({each["test"] for each in executed if each["outcome"] == "failed"})
    lines += [f"FAILED {name}" for name in failed]
    minutes, rest = divmod(round(seconds), 60)
    lines.append(
        f"{len(distinct)} distinct tests, {len(executed)} executions, {len(failed)} failed,"
        f" {len(known)} unchanged; commit {commit}; {minutes} min {rest} s"
    )
    return "\n".join(lines)


def _reasons(results: Iterable[Result]) -> list[str]:
    """Return why tests were skipped, a line for each reason."""
    reasons = Counter(each.get("reason", "") for each in results if each["outcome"] == "skipped")
    return [f"{count} skipped: {reason}" for reason, count in reasons.most_common()]


def of_lines(results: Iterable[Result], areas: Collection[str]) -> str:
    """Return what each area shows, as its tests say it, with what was seen the last time."""
    last = {each["test"]: each for each in results}
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for name, each in last.items():
        if home(name) in areas:
            line: tuple[str, ...] = (home(name), *each["says"])
            groups[line].append(each)
    rows: list[tuple[str, ...]] = [("area", "what", "", "", "", "seen", "seconds", "result")]
    shown = []
    for (area, *says), tests in sorted(groups.items()):
        noted = {name: value for each in tests for name, value in each["noted"].items()}
        outcomes = Counter(each["outcome"] for each in tests)
        result = next(word for word in ("failed", "passed", "skipped") if outcomes[word])
        seen = "; ".join(noted[name] for name in ("containers", "seen", "seconds") if name in noted)
        cells = [shorten(str(cell), WIDTH) for cell in [*says, "", "", "", ""][:4]]
        took = sum(each["seconds"] for each in tests)
        count = f" ({len(tests)} cases)" if len(tests) > 1 else ""
        rows.append((area, *cells, seen, f"{took:.1f}", result + count))
        if "shown" in noted:
            shown.append(f"\n{': '.join(says)}\n\n{noted['shown']}")
    return "\n".join([aligned(rows), *shown])
