"""make simulate: thousands of schedules, each with its seed, then planted defects that must be found.

python -m tests.simulation                  20,000 schedules of 2 to 16 nodes, 50 of 1,000, and all planted defects
python -m tests.simulation --seed 4711      one schedule, as a timeline of events and actions
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from tests.simulation.defects import DEFECTS, planted
from tests.simulation.invariants import check
from tests.simulation.schedule import KINDS, Fault, Schedule, draw
from tests.simulation.world import World

LARGE = 1_000_000  # seeds from here on are schedules of 1,000 nodes


def schedule_of(seed: int) -> Schedule:
    """The schedule that a seed stands for."""
    return draw(Random(seed), nodes=1000 if seed >= LARGE else None, seed=seed)


def violations(seed: int) -> tuple[int, list[str]]:
    """What does not hold in this seed's schedule."""
    return seed, check(schedule_of(seed))[1]


def timeline(world: World) -> Iterable[str]:
    """What happened and what was done, a line each."""
    for when, rank, what in world.timeline or ():
        words = f"{KINDS[what.kind]} ({what})" if isinstance(what, Fault) else str(what)
        yield f"{when:9.3f} s  node-{rank:<4} {words[:200]}"


def found_in(defect: str, most: int) -> tuple[str, int | None]:
    """The first seed whose schedule shows this planted defect."""
    with planted(defect):
        return defect, next((seed for seed in range(most) if violations(seed)[1]), None)


def main() -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description="simulate jobs", prog="make simulate")
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=50, help="schedules of 1,000 nodes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="show this one")
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="with this planted defect")
    args = parser.parse_args()
    if args.seed is not None:
        return _show(args.seed, args.defect)
    begun, bad = time.monotonic(), []
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    seeds = [*range(args.first, args.first + args.schedules), *range(LARGE, LARGE + args.large)]
    with multiprocessing.Pool() as pool:
        for seed, wrong in pool.imap_unordered(violations, seeds, chunksize=10):
            if wrong:
                bad.append(seed)
                print(f"seed {seed}: {wrong[0]}")
        took = time.monotonic() - begun
        print(
            f"{args.schedules} schedules of 2 to 16 nodes and {args.large} of 1,000: {len(bad)} violated, {took:.0f} s"
        )
        print(f"\n{'planted defect':<80} found by seed")
        missed = 0
        for defect, seed in pool.imap(_find, DEFECTS):
            print(f"{defect:<80} {'NOT FOUND' if seed is None else seed}", flush=True)
            missed += seed is None
    print(f"{len(DEFECTS) - missed} of {len(DEFECTS)} planted defects are found within 2000 schedules")
    print(f"{time.monotonic() - begun:.0f} s in all; show one: python -m tests.simulation --seed N [--defect NAME]")
    return bool(bad or missed)


def _find(defect: str) -> tuple[str, int | None]:
    return found_in(defect, 2000)


def _show(seed: int, defect: str | None) -> int:
    with planted(defect):
        world, wrong = check(schedule_of(seed), keep_log=True)
    print(replace(world.schedule, starts=world.schedule.starts[:16], save=world.schedule.save[:16]))
    for line in timeline(world):
        print(line)
    for container in world.containers[:16]:
        for when, outcome in container.outcomes:
            print(f"node-{container.rank} ended at {when:.3f} s: {outcome}")
    print("\n".join(wrong) or "all invariants hold")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
