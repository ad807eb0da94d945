"""scripts/test simulate: thousands of schedules, each with its seed, then mutations that must be
found.

python -m tests.simulation                20,000 schedules of 2 to 16 nodes, 50 of 1,000, 5 of 10,000, the named ones,
                                          all mutations
python -m tests.simulation --seed 4711    one schedule, as a timeline of events and actions

Seeds from 3,000,000 on are schedules of a rank's machine (ranks.py), of which there are as many again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from random import Random

from entrypoint.base.phases import ALLOWED, ALLOWED_OF_OTHERS, Phase
from entrypoint.ranks.rank import NEXT, State
from tests.simulation import ranks
from tests.simulation.invariants import check
from tests.simulation.mutations import MOST, MUTATIONS, find, simulate
from tests.simulation.named import NAMED, differences
from tests.simulation.schedule import WORDS, Fault, Schedule, draw
from tests.simulation.world import World

# whether a node's own, from, to; those of a rank count as own
Transition = tuple[bool, Phase | State, Phase | State]
LARGE = 1_000_000  # seeds from here on are schedules of 1,000 nodes
HUGE = 2_000_000  # and from here on of 10,000
RANKS = 3_000_000  # and from here on of a rank
MOST_BYTES = 1 << 30  # of one process; a schedule of 10,000 nodes took 273 MB on 2026-11-25


def schedule_of(seed: int) -> Schedule:
    """The schedule that a seed stands for."""
    nodes = 10_000 if seed >= HUGE else 1000 if seed >= LARGE else None
    return draw(Random(seed), nodes=nodes, seed=seed)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def violations(seed: int) -> tuple[int, list[str], set[Transition]]:
    """What does not hold in this seed's schedule, and which transitions of phases it has."""
    if seed >= RANKS:
        rank = ranks.check(ranks.draw(Random(seed)))
        return seed, rank.wrong(), {(True, *pair) for pair in rank.transitions}
    try:
        world, wrong = check(schedule_of(seed))
    except MemoryError:
        return seed, [f"took more than {MOST_BYTES >> 20} MiB of memory"], set()
    return seed, wrong, {*world.transitions}


def timeline(world: World) -> Iterable[str]:
    """What happened and what was done, a line each."""
    for when, rank, what in world.timeline or ():
        words = f"{WORDS[what.kind]} ({what})" if isinstance(what, Fault) else str(what)
        yield f"{when:9.3f} s  node-{rank:<4} {words[:200]}"


def main() -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description="simulate jobs", prog="scripts/test simulate")
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=50, help="schedules of 1,000 nodes")
    parser.add_argument("--huge", type=int, default=5, help="schedules of 10,000 nodes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="show this one")
    parser.add_argument(
        "--mutation", choices=sorted(MUTATIONS), help="show the seed with this mutation"
    )
    parser.add_argument(
        "--find", metavar="TEXT", help="only show the first violation with this text"
    )
    args = parser.parse_args()
    if args.find is not None:
        return _find(args.find, args.seed or 0, args.schedules)
    if args.mutation:
        status, output = simulate(MUTATIONS[args.mutation], "--seed", str(args.seed or 0))
        print(output, end="")
        return status
    if args.seed is not None:
        return _show(args.seed)
    return _simulate_all(args.first, args.schedules, args.large, args.huge)


def _simulate_all(first: int, schedules: int, large: int, huge: int) -> int:
    """The named schedules, those of the seeds, and then all mutations."""
    if problems := [problem for each in MUTATIONS.values() if (problem := each.problem())]:
        print("\n".join(problems))
        return 1
    begun, bad = time.monotonic(), 0
    reached: Counter[Transition] = Counter()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name, named in NAMED.items():
        world, wrong = differences(named)
        reached.update(world.transitions)
        if wrong:
            bad += 1
            print(f"{name}: {wrong[0]}")
    seeds = [*range(first, first + schedules), *range(LARGE, LARGE + large)]
    seeds += range(RANKS + first, RANKS + first + schedules)
    with multiprocessing.Pool(initializer=_limit_memory) as pool:
        # the longest first, each on its own
        longest = pool.imap_unordered(violations, range(HUGE, HUGE + huge))
        others = pool.imap_unordered(violations, seeds, chunksize=10)
        for seed, wrong, transitions in chain(longest, others):
            reached.update(transitions)
            if wrong:
                bad += 1
                print(f"seed {seed}: {wrong[0]}")
    took = time.monotonic() - begun
    print(f"{schedules} schedules of 2 to 16 nodes, {large} of 1,000, {huge} of 10,000, {len(NAMED)} named ones "
          f"and {schedules} of a rank: "
          f"{bad} violated, {took:.0f} s")  # fmt: skip
    unreached = _show_transitions(reached)
    missed = _try_mutations()
    print(
        f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations are found within {MOST} schedules"
    )
    print(
        f"{time.monotonic() - begun:.0f} s in all; show one: python -m tests.simulation --seed N"
        " [--mutation NAME]"
    )
    return bool(bad or missed or unreached)


def _show_transitions(reached: Counter[Transition]) -> int:
    """Print how many schedules have each transition that phases.py allows. Return how many none
    has."""
    allowed: set[Transition]
    allowed = {(True, before, after) for before, others in ALLOWED.items() for after in others}
    allowed |= {
        (False, before, after) for before, others in ALLOWED_OF_OTHERS.items() for after in others
    }
    allowed |= {(True, before, after) for before, others in NEXT.items() for after in others}
    print(f"\n{'transition':<40} schedules that have it")
    for own, before, after in sorted(allowed, key=lambda it: (not it[0], reached[it])):
        words = f"{'' if own else 'of another node: '}{before.name} -> {after.name}"
        print(f"{words:<40} {reached[own, before, after] or 'NONE'}")
    missed = sum(not reached[transition] for transition in allowed)
    print(f"{len(allowed) - missed} of {len(allowed)} allowed transitions are reached\n")
    return missed


def _try_mutations() -> int:
    """Print which mutation is found, and where. Return how many are not."""
    print(f"\n{'mutation':<80} first schedule that shows it")
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # of processes that each simulate one mutation
        for mutation, (found, words) in zip(
            MUTATIONS.values(), pool.map(find, MUTATIONS.values()), strict=True
        ):
            is_stale = mutation.seed != "0" and not words.startswith(f"{mutation.seed}:")
            note = f" (its seed, {mutation.seed}, shows it no more)" if found and is_stale else ""
            print(f"{mutation.name:<80} {words[:100] if found else words}{note}", flush=True)
            missed += not found
    return missed


def _find(text: str, seed: int, most: int) -> int:
    """Show the first violation that contains this text: of this seed's schedule, of the named ones,
    and of so many seeds'; if there is none, the first of any kind."""
    other = ""
    first = seed // RANKS * RANKS
    named = ((name, differences(each)[1]) for name, each in NAMED.items() if not first)
    drawn = (violations(each)[:2] for each in range(first, first + most))
    for place, wrong in chain([violations(seed)[:2]], named, drawn):
        if found := next((words for words in wrong if text in words), None):
            print(f"{place}: {found}")
            return 0
        if wrong and not other:
            other = f", but {place}: {wrong[0]}"
    print(f"NOT FOUND{other}")
    return 1


def _show(seed: int) -> int:
    if seed >= RANKS:
        rank = ranks.check(ranks.draw(Random(seed)))
        lines = [str(rank.schedule), *(f"{when:9.3f} s  {fact}" for when, fact in rank.facts)]
        print("\n".join([*lines, *(rank.wrong() or ["all invariants hold"])]))
        return bool(rank.wrong())
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
