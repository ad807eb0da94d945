"""Hangs that are planted in real jobs, without containers: which rank is named, and when. And slow
jobs that nothing is wrong with: how many are stopped."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import Cluster
from tests.waits import until

from ..engine import HERE, Tree, tail
from ..figures import Goal, Run
from ..hang import WAYS
from ..table import Row, Table

NODES, SLOTS = 2, 2
_LIMIT = 20.0  # seconds without a step that are a stall
_NAMED, _LAST = "a planted hang is named, after its limit", "the slowest of 8"
_STOPPED = "20 slow jobs whose steps take up to 0.9 of the limit: stopped ones"
_ALL = 300.0  # seconds of all jobs at once


def measure(table: Table) -> None:
    """A job for each way to hang, all at once; then 20 slow jobs, all at once."""
    ways, slow = ([*WAYS][:2], 2) if table.quick else ([*WAYS], 20)
    for _ in range(table.runs):
        for tree in table.trees:
            found = _named(tree, ways)
            for each in found.values():
                table.add(_NAMED, tree.way, "s", each)
            text = "; ".join(f"{way}: {each}" for way, each in found.items() if each is str(each))
            table.add(_LAST, tree.way, "s", text or max(map(float, found.values())))
            table.take({_STOPPED: "jobs"}, tree.way, _stopped, tree, slow)


@contextlib.contextmanager
def _jobs(tree: Tree, arguments: Sequence[tuple[str, int, float]]) -> Iterator[list[Cluster]]:
    """Jobs of hang.py with these arguments, each started when the ranks of the one before run; a
    stall ends them."""
    env = {
        "PYTHONPATH": str(tree.folder), "ENTRYPOINT_TIMEOUTS_GRACE": "2",
        "ENTRYPOINT_STALL_MINUTES": str(_LIMIT / 60), "ENTRYPOINT_STALL_ACTION": "stop",
        "ENTRYPOINT_STALL_LINE": "step {step}",
    }  # fmt: skip
    # Short, since a unix socket's path is.
    with tempfile.TemporaryDirectory(prefix="bn-", dir="/tmp") as name, ExitStack() as stack:
        jobs: list[Cluster] = []
        for number, words in enumerate(arguments):
            folder = Path(name, str(number))
            folder.mkdir()
            jobs.append(job := Cluster(folder, NODES, SLOTS))
            stack.callback(job.close)
            program = (sys.executable, str(HERE / "hang.py"), *map(str, words), str(folder))
            job.start_all(*program, env=env)
            until(functools.partial(_has_ranks, job), f"{words}: ranks run", 60)
        yield jobs


def _has_ranks(job: Cluster) -> bool:
    return f"{NODES * SLOTS} ranks on {NODES} nodes: " in job.err()


def _named(tree: Tree, ways: Sequence[str]) -> dict[str, Run]:
    """Return for each way the seconds from the limit until the rank is named, or why it was not."""
    ranks = {way: random.randrange(NODES * SLOTS) for way in ways}
    found: dict[str, Run] = {}
    with _jobs(tree, [(way, rank, 1.0) for way, rank in ranks.items()]) as jobs:

        def all_found() -> bool:
            for job, (way, rank) in zip(jobs, ranks.items(), strict=True):
                verdict = re.search(r"EP610 the job stalled: .*", job.err())
                hung = re.search(r"hangs (\d+\.\d+)", job.out())
                if way not in found and verdict and hung:
                    late = time.time() - float(hung[1]) - _LIMIT
                    is_named = f"rank {rank} on worker-{rank // SLOTS} " in verdict[0]
                    found[way] = late if is_named else tail(verdict[0])
            return len(found) == len(jobs)

        with contextlib.suppress(AssertionError):
            until(all_found, "all hangs are named", _ALL)
    return {way: found.get(way, "not named") for way in ways}


def _stopped(tree: Tree, count: int) -> tuple[float]:
    """Return how many of so many slow jobs did not end well."""
    with _jobs(tree, [("slow", 6, 0.9 * _LIMIT)] * count) as jobs:
        return (float(sum(any(job.ends().values()) for job in jobs)),)


ROW = Row("hangs", measure, 1, (Goal(_LAST, "value", 15.0), Goal(_STOPPED, "value", 0.0)))
