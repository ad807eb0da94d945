"""Runs rows of the benchmarks, keeps their raw numbers, and writes the page's table from them.

    python -m scripts.bench [ROW ...] [--runs N] [--quick] [--keep] without ROW: all
    python -m scripts.bench --check                                 ratios beside the committed ones
    python -m scripts.bench --check --against IMAGE                 beside those of an older image
    python -m scripts.bench --write                                 the page, nothing measured

A run that fails stays in the numbers, and its row fails its goals. Every wait has a limit;
containers, networks and processes are removed at the end, after Ctrl-C too.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from .engine import Engine
from .figures import MARGIN, by_name, figure, worse
from .machine import facts, image_id, in_use
from .page import draw, laid, text
from .rows import ROWS
from .table import FAILURES, Row, Table, words

DOCS = Path(__file__).resolve().parents[2] / "docs"
_CALM = 10.0  # per cent of the cores that others may use without a warning
KEPT, PAGE, PICTURE = (DOCS / f"performance{end}" for end in (".json", ".md", "-boot.svg"))


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 when a ratio is worse than the committed one by more than the
    margin, or none is compared."""
    args = _arguments(argv)
    if args.list:
        for row in ROWS:
            print(f"{row.name:<22}{row.runs:>3} runs  {row.title}")
        return 0
    if args.write:
        _write(_kept())
        return 0
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _stop)
    engine = Engine()
    try:
        return _check(engine, args) if args.check else _measure(engine, args)
    finally:
        # a second Ctrl-C must not leave containers behind
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        engine.close()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("rows", nargs="*", metavar="ROW", help="see --list")
    add("--runs", type=int, default=0, help="of each row, instead of its own number")
    add("--quick", action="store_true", help="the smallest case of each row alone")
    add("--keep", action="store_true", help="write docs/performance.json and the page")
    add("--check", action="store_true", help="compare with the committed ratios")
    add("--against", metavar="IMAGE", help="with --check: compare with this image, on this machine")
    add("--write", action="store_true", help="write the page from what is kept")
    add("--list", action="store_true", help="name the rows")
    add("--image", default="entrypoint-gpu:dev")
    args = parser.parse_args(argv)
    if unknown := set(args.rows) - {row.name for row in ROWS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list names them")
    if args.against and not args.check:
        parser.error("--against is for --check")
    if args.keep and args.quick:
        parser.error("a quick run has other cases than the page: leave out --keep or --quick")
    return args


def _stop(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _measure(engine: Engine, args: argparse.Namespace) -> int:
    for row in ROWS:
        if not args.rows or row.name in args.rows:
            found = _run(row, engine, args.image, args.runs or row.runs, args.quick)
            if args.keep:
                kept = {**_kept(), row.name: found}
                KEPT.write_text(
                    _json({each.name: kept[each.name] for each in ROWS if each.name in kept})
                )
                _write(kept)
    return 0


def _check(engine: Engine, args: argparse.Namespace) -> int:
    """Compare the ratios of all rows that have a quick case, or of those that were named."""
    compared = failed = 0
    for row in ROWS:
        if row.quick and (not args.rows or row.name in args.rows):
            runs = args.runs or row.quick
            now = _run(row, engine, args.image, runs, True)
            then = (
                _run(row, engine, args.against, runs, True)
                if args.against
                else _kept().get(row.name)
            )
            for line, bad in _compared(row, now, then):
                held = "FAILED" if bad else "ok"
                print(f"bench-check: {row.name}: {line} (margin {MARGIN:g}): {held}", flush=True)
                compared, failed = compared + 1, failed + bad
    if not compared:
        print("bench-check: nothing was compared: run make bench, and commit docs/performance.json")
    return 1 if failed or not compared else 0


def _compared(row: Row, now: dict[str, Any], then: dict[str, Any] | None) -> list[tuple[str, bool]]:
    """Return for each ratio that both have a line, and whether it is worse by more than the
    margin."""
    if then is None:
        return []
    here, before = by_name(now["series"]), by_name(then["series"])
    goals = [goal for goal in (*row.goals, *row.also) if goal.beside]
    lines = [worse(goal, here, before) for goal in goals if (goal.case, goal.way) in here]
    return [line for line in lines if line is not None]


def _run(row: Row, engine: Engine, image: str, runs: int, quick: bool) -> dict[str, Any]:
    """Return one row's runs in containers of an image, as they are kept."""
    table = Table(engine, image_id(image) or image, runs, quick)
    print(f"{row.name}: {row.title}, {runs} runs of {image}", file=sys.stderr, flush=True)
    used = in_use()
    if used > _CALM:
        print(f"  warning: others use {used:.0f} % of this machine's cores now", file=sys.stderr)
    try:
        row.measure(table)
    except FAILURES as error:  # what the runs need could not be set up
        table.add("set-up", row.name, "", words(error))
    found: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": dict(facts(image)),
        "in use": round(used, 1),
        "series": table.series(),
    }
    data = by_name(found["series"])
    for (case, way), series in data.items():
        print(f"  {case}, {way}, {series.unit or 'count'}: {' '.join(map(str, series.runs))}")
    for goal in row.goals:
        if (goal.case, goal.way) in data:
            seen, unit = figure(goal, data), data[goal.case, goal.way].unit
            over = f" over {goal.beside}" if goal.beside else ""
            reached = "reached" if seen.held else "NOT reached"
            print(
                f"  {goal.case}: {goal.way}{over}: {seen.text}; goal {goal.words(unit)}: {reached}"
            )
    sys.stdout.flush()
    return found


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return kept


def _json(kept: dict[str, Any]) -> str:
    """Return one line for each series, so that a change can be read."""
    rows = []
    for name, row in kept.items():
        series = ",\n   ".join(json.dumps(each) for each in row["series"])
        head = json.dumps({key: value for key, value in row.items() if key != "series"})
        rows.append(f' {json.dumps(name)}: {head[:-1]}, "series": [\n   {series}]}}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _write(kept: dict[str, Any]) -> None:
    """Write the page's table and its picture from these numbers."""
    PAGE.write_text(laid(PAGE.read_text(), text(ROWS, kept)))
    if "boot" in kept:
        draw(PICTURE, kept)


if __name__ == "__main__":
    sys.exit(main())
