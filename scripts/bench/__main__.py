"""Runs rows of the benchmarks, keeps their raw numbers, and writes the page from them.

    python -m scripts.bench [ROW ...] [--runs N] [--quick] [--keep] without ROW: all
    python -m scripts.bench --check                                 ratios beside the committed ones
    python -m scripts.bench --check --against IMAGE                 beside those of an older image
    python -m scripts.bench --write                                 page and plots, nothing measured

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
from .figures import MARGIN, by_name, figure, packed, unpacked, worse
from .machine import facts, image_id, in_use
from .page import laid, text
from .rows import ROWS
from .rows.boot import BARE, OURS, SCRIPT
from .rows.rollcall import PER
from .table import FAILURES, IMAGE, MPI_IMAGE, Row, Table, words

DOCS = Path(__file__).resolve().parents[2] / "docs"
_CALM = 10.0  # per cent of the cores that others may use without a warning
KEPT, PAGE = DOCS / "performance.json", DOCS / "performance.md"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 1 when a ratio is worse than the committed one by more than the margin, or
    none is compared."""
    args = _arguments(argv)
    if args.list:
        for row in ROWS:
            print(f"{row.name:<22}{row.runs:>3} runs  {row.about.title}")
        return 0
    if args.write:
        _write()
        return 0
    rows = [
        row
        for row in ROWS
        if row.name in args.rows or (not args.rows and (row.quick or not args.check))
    ]
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _stop)
    engine, compared, failed = Engine(), 0, 0
    try:
        for row in rows:
            found = _measured(row, engine, args, args.image)
            if args.check:
                before = (
                    _measured(row, engine, args, args.against)
                    if args.against
                    else _kept().get(row.name)
                )
                results = _checked(row, found, before)
                compared, failed = compared + len(results), failed + sum(results)
            elif args.keep:
                _keep(row, found)
        if args.check and not compared:
            print(
                "bench-check: nothing was compared: run make bench, and commit"
                " docs/performance.json"
            )
        return 1 if failed or (args.check and not compared) else 0
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
    parser.add_argument("rows", nargs="*", metavar="ROW", help="see --list")
    parser.add_argument(
        "--runs", type=int, default=0, help="of each row, instead of its own number"
    )
    parser.add_argument("--quick", action="store_true", help="the smallest case of each row alone")
    parser.add_argument(
        "--keep", action="store_true", help="write docs/performance.json, the page and the plots"
    )
    parser.add_argument("--check", action="store_true", help="compare with the committed ratios")
    parser.add_argument(
        "--against",
        metavar="IMAGE",
        default="",
        help="with --check: compare with this image, on the same machine",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the page and the plots from what is kept"
    )
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--image", default=IMAGE)
    parser.add_argument("--mpi-image", default=MPI_IMAGE)
    args = parser.parse_args(argv)
    unknown = set(args.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list names them")
    if args.against and not args.check:
        parser.error("--against is for --check")
    if args.keep and args.quick:
        parser.error("a quick run has other cases than the page: leave out --keep or --quick")
    return args


def _stop(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _measured(row: Row, engine: Engine, args: argparse.Namespace, chosen: str) -> dict[str, Any]:
    """One row's runs in containers of an image, as they are kept."""
    quick = args.quick or args.check
    runs = args.runs or (row.quick if args.check else row.runs)
    image, mpi_image = (image_id(name) or name for name in (chosen, args.mpi_image))
    table = Table(engine, runs or 1, quick, image, mpi_image)
    title = f"{row.name}: {row.about.title}, {table.runs} runs of {chosen}"
    print(title, file=sys.stderr, flush=True)
    facts(chosen)
    used = in_use()
    if used > _CALM:
        print(
            f"  warning: others use {used:.0f} % of this machine's cores now",
            file=sys.stderr,
            flush=True,
        )
    try:
        row.measure(table)
    except FAILURES as error:  # what the runs need could not be set up
        table.add("set-up", row.name, "", words(error))
    found = {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": dict(facts(chosen)),
        "in use": round(used, 1),
        "series": packed(table.series()),
    }
    print(f"{row.name}: {found['machine']}, {used:.0f} % in use before")
    for each in table.series():
        print(
            f"  {each.case}, {each.way}, {each.unit or 'count'}:"
            f" {' '.join(str(run) for run in each.runs)}"
        )
    data = by_name(table.series())
    for goal in row.about.goals:
        if (series := data.get((goal.case, goal.way))) is not None:
            seen = figure(goal, data)
            over = f" over {goal.beside}" if goal.beside else ""
            held = "reached" if seen.held else "NOT reached"
            print(
                f"  {goal.case}: {goal.way}{over}: {seen.text}; goal {goal.words(series.unit)}:"
                f" {held}",
                flush=True,
            )
    return found


def _checked(row: Row, found: dict[str, Any], before: dict[str, Any] | None) -> list[bool]:
    """For each ratio that can be compared, whether it is worse than the one before by more than the
    margin."""
    if before is None:
        print(f"bench-check: {row.name}: nothing is committed to compare with")
        return []
    now, then = by_name(unpacked(found["series"])), by_name(unpacked(before["series"]))
    bad = []
    for goal in (*row.about.goals, *row.also):
        if goal.beside and (goal.case, goal.way) in now and (line := worse(goal, now, then)):
            words, failed = line
            bad.append(failed)
            print(
                f"bench-check: {row.name}: {words} (margin {MARGIN:g}):"
                f" {'FAILED' if failed else 'ok'}",
                flush=True,
            )
    return bad


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return kept


def _keep(row: Row, found: dict[str, Any]) -> None:
    """Put a row's numbers in the place of its former ones, and write the page."""
    kept = {**_kept(), row.name: found}
    ordered = {each.name: kept[each.name] for each in ROWS if each.name in kept}
    KEPT.write_text(_json(ordered))
    _write()


def _json(kept: dict[str, Any]) -> str:
    """One line for each series, so that a change can be read."""
    rows = []
    for name, row in kept.items():
        series = ",\n   ".join(json.dumps(each) for each in row["series"])
        head = json.dumps({key: value for key, value in row.items() if key != "series"})
        rows.append(f' {json.dumps(name)}: {head[:-1]}, "series": [\n   {series}]}}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _write() -> None:
    """Write the page and the plots, from what is kept."""
    from . import plot  # matplotlib takes half a second, and a run that keeps nothing needs none

    kept = _kept()
    PAGE.write_text(laid(PAGE.read_text(), text([row.about for row in ROWS], kept)))
    boots = {
        name: points
        for name in (OURS, BARE, SCRIPT)
        if (points := _points(kept, "boot", " nodes", name))
    }
    named = {
        f"{name}, whole boot" if name == OURS else name: points for name, points in boots.items()
    }
    if named:
        title = "From the start of the containers to the end of a trivial job"
        plot.save(DOCS / "performance-boot.svg", title, "nodes", "seconds", named)
    calls = {
        "real nodes": _points(kept, "roll-call", " real workers", PER),
        "simulated workers": _points(kept, "roll-call-simulated", " simulated workers", PER),
    }
    calls = {name: points for name, points in calls.items() if points}
    if calls:
        title = "Roll call: the cost of a worker"
        plot.save(
            DOCS / "performance-rollcall.svg",
            title,
            "workers",
            "milliseconds for each worker",
            calls,
        )


def _points(kept: dict[str, Any], row: str, ending: str, way: str) -> dict[float, list[float]]:
    """The runs of one way over the number that each case begins with."""
    series = unpacked(kept[row]["series"]) if row in kept else []
    named = [
        each for each in series if each.way == way and each.case.endswith(ending) and each.good
    ]
    return {float(each.case.removesuffix(ending)): each.good for each in named}


if __name__ == "__main__":
    sys.exit(main())
