"""How many threads OpenMP, OpenBLAS (numpy) and torch use in real containers, with the toolkit and
without.

The tree's toolkit runs in the image's Python. `scripts/test table cpus` prints a line for each container.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from tests import TREE
from tests.command import captured
from tests.containers import IMAGE, missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PROBE = ("python3", "/tree/tests/cpus/probe.py")
TOOLKIT = ("/opt/entrypoint/bin/python", "-B", "-m", "entrypoint", "run", "--quiet")
LIBRARIES = ("openmp", "openblas", "torch")
CPUS = len(os.sched_getaffinity(0))
# Options of docker, ranks, and the threads of each.
CONTAINERS = [
    (("--cpus", "1"), 1, 1),
    (("--cpus", "1.5"), 1, 1),
    (("--cpus", "0.5"), 2, 1),
    (("--cpuset-cpus", "0"), 1, 1),
    ((), 1, CPUS),
    ((), 2, max(1, CPUS // 2)),
    (("--cpus=1", "-e", "OMP_NUM_THREADS=2"), 1, min(2, CPUS)),  # the user's own
]


def threads(*words: str, options: tuple[str, ...]) -> list[dict[str, int]]:
    """Return the answer of each rank of this container."""
    place = ("-v", f"{TREE}:/tree:ro", "-w", "/tree", "--entrypoint", "")
    done = captured(["docker", "run", "--rm", *place, *options, IMAGE, *words, *PROBE])
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(text) for text in re.findall(r"\{.*\}", done.stdout)]


@pytest.mark.parametrize(
    ("options", "ranks", "expected"),
    CONTAINERS,
    ids=[f"{' '.join(options) or 'no limit'}, {ranks} ranks" for options, ranks, _ in CONTAINERS],
)
def test_libraries_use_the_share_of_a_rank(
    options: tuple[str, ...], ranks: int, expected: int
) -> None:
    if reason := missing(IMAGE):
        pytest.skip(reason)
    (before,) = threads(options=options)
    launcher = ("--launcher", "mpirun", "--slots", str(ranks), "--")
    after = threads(*TOOLKIT, *launcher, options=options)
    wide = f"{' '.join(options) or 'no limit':32}{ranks} ranks on {CPUS} CPUs"
    for name, found in (("without", [before]), ("with", after)):
        said = ", ".join(f"{library} {found[0][library]}" for library in LIBRARIES)
        print(f"{wide}  {name:8}{said}")
    assert after == [dict.fromkeys(LIBRARIES, expected)] * ranks
    if "--cpus" in options:  # the control: a quota alone is no limit for OpenMP
        assert before["openmp"] == CPUS
