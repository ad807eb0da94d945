"""A node whose clock is minutes off, over a real roll call: named before ranks start, and the job
runs all the same."""

from __future__ import annotations

import re
import sys

import pytest

from tests.cluster import Make

pytestmark = pytest.mark.fault("16", "clocks minutes apart", launcher="all")

LINE = r"warning: EP424 clocks differ \| worker-1 \(node-1\) is (299|30\d)s ahead of the others \| "
# The entrypoint with another clock. Not by faketime: a Python under it cannot start programs
# reliably (EINVAL).
SHIFTED = (
    "import time; now = time.time; time.time = lambda: now() + {}; from entrypoint.cli import"
    " script; script()"
)


@pytest.mark.parametrize("shift", [300, 100], ids=["minutes", "control"])
def test_a_clock_that_is_minutes_off_is_named(cluster: Make, shift: int) -> None:
    job = cluster(2)
    run = ("run", "--launcher", "mpirun", "--", "true")
    job.start(1, argv=(sys.executable, "-c", SHIFTED.format(shift), *run))
    job.start(0, "true")
    assert job.ends() == {0: 0, 1: 0}, job.both()
    said = job.err(0)
    if shift == 300:
        line = re.search(LINE, said)
        assert line, said
        assert line.start() < said.index("4 ranks on 2 nodes")
    assert said.count("warning: EP424 clocks") == (shift == 300), said
    assert "clocks" not in job.err(1)
