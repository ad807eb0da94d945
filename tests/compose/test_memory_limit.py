"""A real kernel kills for memory in a container, and the toolkit's watch says so."""

from __future__ import annotations

import subprocess

import pytest

from tests.containers import IMAGE

pytestmark = pytest.mark.fault("5", "the kernel's own count, and a control", launcher="any")

# The toolkit's own interpreter in the image watches; the child takes what it is told to.
WATCH = """
import subprocess, sys
from entrypoint.system.cgroups import Memory
memory = Memory()
child = subprocess.run([sys.executable, "-c", f"x = b'x' * ({sys.argv[1]} << 20)"])
print(child.returncode, memory.oom_killed())
"""


@pytest.mark.promise("a kill for memory is told with limit and peak", control="its second case")
@pytest.mark.parametrize(
    ("take", "said"),
    [(512, "-9 out of memory: limit 128 MiB, peak 128 MiB"), (8, "0 None")],
    ids=["killed", "control"],
)
def test_a_kill_for_memory_has_words(take: int, said: str) -> None:
    limits = ["--memory", "128m", "--memory-swap", "128m"]
    done = subprocess.run(
        ["docker", "run", "--rm", *limits, "--entrypoint", "/opt/entrypoint/bin/python", IMAGE, "-c", WATCH, str(take)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr
