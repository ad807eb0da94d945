"""Runs rows of the benchmarks, keeps their raw numbers, and writes the page's table from them.

    scripts/bench/run [ROW ...] [--runs N] [--quick] [--keep]    without ROW: all
    scripts/bench/run --check                     compared with the committed figures
    scripts/bench/run ROW ... --against COMMIT    compared with an older commit
    scripts/bench/run --write                     the page, nothing measured

A run that fails stays in the numbers, and its row fails its goals. Every wait has a limit;
containers, networks and processes are removed at the end, after Ctrl-C too.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.containers import IMAGE

from .engine import TREE, Engine, Tree, first_line, image_id
from .figures import MARGIN, OURS, compared, data_of, expected, result
from .page import draw, laid, text
from .rows import ROWS
from .table import FAILURES, Row, Table, reason

SET_UP = "what the runs need"  # the case of a row that could not begin
KEPT, PAGE, PICTURE = (TREE / f"docs/performance{end}" for end in (".json", ".md", "-boot.svg"))


def main() -> int:
    """Return the exit status: 1 when a figure is worse than the one that it is compared with by
    more than the margin, or none is compared."""
    args = _arguments()
    if args.write:
        _write(_kept())
        return 0
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda signum, _: sys.exit(128 + signum))
    if os.getloadavg()[0] > 0.5:
        print("warning: others use this machine now", file=sys.stderr)
    engine = Engine()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        trees = [Tree(), *(_clone(commit, Path(folder, commit)) for commit in args.against)]
        try:
            for row in ROWS:
                if row.name in args.rows or (not args.rows and (row.quick or not args.check)):
                    found = _run(row, engine, trees, args)
                    results += list(_compared(row, found, trees, args.check))
        finally:
            # a second Ctrl-C must not leave containers behind
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            engine.close()
    for line, worse in results:
        print(f"bench-check: {line} (margin {MARGIN:g}): {'FAILED' if worse else 'ok'}")
    asked = args.check or args.against
    if asked and not results:
        print("bench-check: nothing was compared: run make bench, and commit docs/performance.json")
    return int(bool(asked) and (not results or any(worse for _, worse in results)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    names = [row.name for row in ROWS]
    add("rows", nargs="*", metavar="ROW", help=", ".join(names))
    add("--runs", type=int, default=0, help="of each row, instead of its own number")
    add("--quick", action="store_true", help="the smallest case of each row alone")
    add("--keep", action="store_true", help="write docs/performance.json and the page")
    add("--check", action="store_true", help="compare --quick with the committed figures")
    add("--against", metavar="COMMIT", action="append", default=[], help="measure it, too")
    add("--write", action="store_true", help="write the page from what is kept")
    args = parser.parse_args()
    if unknown := {*args.rows} - {*names}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for index, commit in enumerate(args.against):
        named = ("git", "rev-parse", "--quiet", "--verify", "--short=10", f"{commit}^{{commit}}")
        args.against[index] = first_line(*named) or parser.error(f"no such commit: {commit}")
    if args.keep and (args.quick or args.check):
        parser.error("a quick run has other cases than the page: leave out --keep")
    return args


def _clone(commit: str, folder: Path) -> Tree:
    """Return a checkout of a commit."""
    for words in (
        ("clone", "--quiet", "--shared", "--no-checkout", str(TREE), str(folder)),
        ("-C", str(folder), "checkout", "--quiet", "--detach", commit),
    ):
        subprocess.run(["git", *words], check=True)
    return Tree(folder, commit)


def _run(row: Row, engine: Engine, trees: Sequence[Tree], args: argparse.Namespace) -> Any:
    """Measure a row; return its runs, as they are kept."""
    runs = args.runs or (row.quick if args.check else row.runs)
    print(f"{row.name}: {runs} runs", file=sys.stderr, flush=True)
    table = Table(engine, trees, runs, args.quick or args.check)
    machine = _machine()
    try:
        row.measure(table)
    except FAILURES as error:
        table.add(SET_UP, OURS, "", reason(error))
    found = {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine,
        "series": table.series(),
    }
    data = data_of(found)
    for (case, way), series in data.items():
        print(f"  {case}, {way}: {series.text}; {' '.join(map(str, series.runs))}")
    for goal in row.goals:
        if (goal.case, OURS) in data:
            measured, reached = result(goal, data)
            limit = goal.words(data[goal.case, OURS].unit)
            print(f"  {goal.case}: {measured}, {limit}: {'' if reached else 'NOT '}reached")
    sys.stdout.flush()
    if args.keep:
        kept = {**_kept(), row.name: found}
        KEPT.write_text(_json({each.name: kept[each.name] for each in ROWS if each.name in kept}))
        _write(kept)
    return found


def _compared(
    row: Row, found: Any, trees: Sequence[Tree], check: bool
) -> Iterator[tuple[str, bool]]:
    """Yield for each figure that has one to compare with a line, and whether it is worse."""
    data = data_of(found)
    if (SET_UP, OURS) in data:
        yield f"{row.name}, {SET_UP}", True
    for tree in trees[1:]:
        for (case, way), series in data.items():
            if way == OURS and case != SET_UP and data[case, tree.way].good:
                yield compared(f"{row.name}, {case}", series, data[case, tree.way].median)
    before = data_of(_kept().get(row.name, {"series": []}))
    for goal in row.goals if check else ():
        other = expected(goal, data, before)
        if other is not None:
            yield compared(f"{row.name}, {goal.case}", data[goal.case, OURS], other)


@functools.cache
def _machine() -> dict[str, str]:
    """Return what a reader needs to judge the numbers, as it is at first: a row that is kept
    changes the page, and with it the checkout."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "Linux": platform.release(),
        "docker": first_line("docker", "version", "--format", "{{.Server.Version}}"),
        "Open MPI": first_line("mpirun", "--version").rpartition(" ")[2] or "none",
        "OpenSSH": first_line("ssh", "-V").partition(",")[0].partition("_")[2] or "none",
        "Python": platform.python_version(),
        "commit": first_line("git", "describe", "--always", "--dirty", "--abbrev=10"),
        "image": image_id(IMAGE)[7:19] or "none",
    }


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(KEPT.read_text())
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
        draw(PICTURE, data_of(kept["boot"]))


if __name__ == "__main__":
    sys.exit(main())
