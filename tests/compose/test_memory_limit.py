"""A real kernel kills for memory in a container, and the toolkit's watch says so."""

from __future__ import annotations

import subprocess

import pytest

from tests.containers import IMAGE, TREE

# The toolkit's own interpreter in the image watches; the child takes what it is told to.
WATCH = """
import subprocess, sys
from entrypoint.run.memory import Memory
memory = Memory.watch()
child = subprocess.run([sys.executable, "-c", f"x = b'x' * ({sys.argv[1]} << 20)"])
print(child.returncode, memory.oom_killed())
"""


@pytest.mark.parametrize(
    ("take", "said"), [(512, "-9 out of memory: limit 128 MiB, peak 128 MiB"), (8, "0 None")], ids=["killed", "control"]
)
def test_a_kill_for_memory_has_words(take: int, said: str) -> None:
    limits = ["--memory", "128m", "--memory-swap", "128m"]
    done = subprocess.run(
        ["docker", "run", "--rm", *limits, "--entrypoint", "/opt/entrypoint/bin/python", IMAGE, "-c", WATCH, str(take)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr


# A rank takes what the container must not have; launcher and entrypoint are smaller, so it is the one that is killed.
TAKES = "x = [bytearray(b'x' * (1 << 20)) for _ in range(512)]"


def test_a_rank_that_is_killed_for_memory() -> None:
    """Row 5 of the table of faults: 137, and the words say memory, limit and peak; a rank that is killed says none."""
    asking = [path for path in (TREE / "entrypoint/run").glob("*.py") if "oom_killed" in path.read_text()]
    if [path.name for path in asking] == ["memory.py"]:
        pytest.skip("nobody asks yet why a rank was killed")
    words = ["--memory", "128m", "--memory-swap", "128m", IMAGE, "--launcher", "mpirun", "--slots", "1", "--"]
    for program, said in ((TAKES, True), ("import os; os.kill(os.getpid(), 9)", False)):
        done = subprocess.run(
            ["docker", "run", "--rm", *words, "python", "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 137, done.stderr
        assert ("out of memory: limit 128 MiB, peak 128 MiB" in done.stderr) == said, done.stderr
