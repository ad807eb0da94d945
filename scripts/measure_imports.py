#!/usr/bin/env python3
"""measure_imports.py - what statements such as imports cost a fresh Python beyond an empty one: CPU and wall time.

    scripts/measure_imports.py [--runs 15] [--python PYTHON] ['import entrypoint.cli' 'import json' ...]

Each run starts every statement once, so that a busy moment meets all of them. Prints the machine, every raw number
and the medians, in milliseconds.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent


def measure(python: str, statement: str) -> tuple[float, float]:
    """Milliseconds of CPU and of wall time of one Python that executes the statement."""
    start = time.monotonic()
    paths = os.pathsep.join(filter(None, (str(TREE), os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen([python, "-c", statement], env={**os.environ, "PYTHONPATH": paths})
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"measure_imports.py: {statement!r} failed")
    return (used.ru_utime + used.ru_stime) * 1e3, (time.monotonic() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statements", nargs="*", default=["import entrypoint.cli"])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()

    processors = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in processors if line.startswith("model name")), "?")
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"machine: {os.cpu_count()} cores, {model}, Linux {platform.release()}, {load}, {args.runs} runs each")
    statements = ["pass", *args.statements]
    for statement in statements:
        measure(args.python, statement)  # writes the bytecode
    taken = [[measure(args.python, statement) for statement in statements] for _ in range(args.runs)]
    empty = [statistics.median(run[0][clock] for run in taken) for clock in (0, 1)]
    for at, statement in enumerate(statements):
        print(f"{statement}{', beyond the empty one' if at else ''}")
        for clock, name in enumerate(("CPU", "wall")):
            raw = [run[at][clock] - empty[clock] * (at > 0) for run in taken]
            print(f"  {name:<4} ms, median {statistics.median(raw):.1f}: {' '.join(f'{each:.1f}' for each in raw)}")


if __name__ == "__main__":
    main()
