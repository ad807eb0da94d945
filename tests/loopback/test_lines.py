"""Lines of several ranks, of which nobody asked for a prefix or JSON: whole, however they were
written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Make

RANK = "os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']"
PROGRAM = f"""
import os, sys, time
rank = ({RANK}).encode()
for number in range(100):
    line = b"<%s %d %s>" % (rank, number, rank * 30)
    os.write(1, line[:20]); time.sleep(0.002); os.write(1, line[20:] + b"\\n" + b"<%s next" % rank)
    time.sleep(0.02); os.write(1, b" line>\\n")
"""
WHOLE = re.compile(r"<(\d) (\d+ \1{30}|next line)>|<\d next line>")


@pytest.mark.promise(
    "lines of several ranks are whole by default, and prompts are shown",
    control="its case `control`",
)
@pytest.mark.parametrize("launcher", ["mpirun", "hydra"])
def test_lines_that_come_in_pieces_do_not_mix(
    launcher: str, cluster: Make, python_with: Callable[[str], str]
) -> None:
    path = (
        f"{Path(python_with('mpich')).parent}:/usr/bin:/bin"
        if launcher == "hydra"
        else os.environ["PATH"]
    )
    job = cluster(nodes=2, slots=2)
    for node in (1, 0):
        job.start(node, sys.executable, "-c", PROGRAM, env={"PATH": path}, launcher=launcher)
    assert job.ends() == {0: 0, 1: 0}, job.both()
    lines = job.out().splitlines()
    assert [line for line in lines if not WHOLE.fullmatch(line)] == []
    assert len(lines) == 800
