"""Lines of several ranks that become one (`logs.collapse`), in real containers under three
launchers."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.composed import Compose

# The sleep has all lines of a node come within a second, and a loss differs for each rank.
PROGRAM = """\
import os, time
rank = os.environ.get("RANK") or os.environ["JAX_PROCESS_ID"]
time.sleep(1)
print(f"2026-01-01 12:00:0{rank},123 rank {rank} runs as pid {os.getpid()}")
print(f"step 10 loss 0.{rank}")
print("saved")
"""
# Which ranks print into one line: all under an MPI, whose output worker-0 prints; else a node's.
TOGETHER = {"mpirun": ["0-3"], "torchrun": ["0-1", "2-3"], "jax": ["0-1", "2-3"]}


def run(compose: Compose, launcher: str, collapse: str) -> str:
    fields = f'logs: {{collapse: {collapse}, prefix: "[{{node}} {{rank}}] "}}\n'
    statuses, log = compose.train("collapse", launcher, PROGRAM, fields)
    assert statuses == {0}, log
    return log


@pytest.mark.promise("`logs.collapse` prints a line of several ranks once, under every launcher")
@pytest.mark.parametrize("launcher", TOGETHER)
def test_a_line_of_several_ranks_is_printed_once(compose: Compose, launcher: str) -> None:
    log = run(compose, launcher, "yes")
    for line in (r"2026-.* rank \d runs as pid \d+", "saved"):
        found = re.findall(rf"\[worker-\d \d\] {line} \[x(\d): ranks ([\d-]+)\]\n", log)
        together = TOGETHER[launcher]
        assert sorted(found) == [(str(4 // len(together)), ranks) for ranks in together], log
    assert Counter(re.findall(r"loss 0\.(\d)\n", log)) == Counter("0123"), log


@pytest.mark.control("`logs.collapse` prints a line of several ranks once, under every launcher")
def test_without_it_each_rank_prints_it(compose: Compose) -> None:
    log = run(compose, "torchrun", "no")
    assert len(re.findall(r"\[worker-\d \d\] saved\n", log)) == 4, log
