"""Killed is not gone: what a program held is free when the kernel has taken back its memory, and
not before."""

from __future__ import annotations

import sys

import pytest

from tests.command import captured

# It holds a port and much memory, which the kernel takes back first.
HOLDS = """
import mmap, socket, time
port = socket.create_server(("127.0.0.1", 0))
memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
print(port.getsockname()[1], flush=True)
time.sleep(600)
"""
ENDS = """
import asyncio, socket, subprocess, sys
from entrypoint.system import children
holder = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
port = int(holder.stdout.readline())
left = asyncio.run(children.end_all(float(sys.argv[2])))
print(left == [], left == [f"pid {holder.pid}, state R"] or [each[:3] for each in left] == ["pid"])
socket.create_server(("127.0.0.1", port))
print("free")
"""


@pytest.mark.parametrize(
    ("how", "printed"), [("20", "True False\nfree\n"), ("0", "False True\n")], ids=["", "named"]
)
def test_what_killed_programs_held_is_free(how: str, printed: str) -> None:
    for _ in range(5):  # the kernel may be faster than our look at once
        done = captured([sys.executable, "-c", ENDS, HOLDS, how])
        if done.stdout == printed:
            break
    assert done.stdout == printed, done.stderr
    assert (done.returncode == 0) is (how == "20")
    assert ("Address already in use" in done.stderr) is (how != "20")
