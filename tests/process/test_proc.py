"""How processes are found in /proc: children, also ended ones, and all below a process."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.ranks import reaper
from entrypoint.system import proc
from entrypoint.system.threads import in_thread
from tests.process.bench import Process, in_loop
from tests.waits import until

# It starts a program, and prints the pid of that.
PARENT = """
import subprocess, sys
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
sys.stdin.read()
"""


def unlisted(pid: int) -> list[int]:
    raise FileNotFoundError(f"a kernel without CONFIG_PROC_CHILDREN, asked about {pid}")


@pytest.fixture
def ended() -> Iterator[int]:
    """A child that has ended, and that nobody has waited for."""
    child = subprocess.Popen(["true"])
    until(lambda: proc.state(child.pid)[0] == "Z", "the child has ended")
    yield child.pid
    child.wait()


def test_a_child_that_has_ended_is_listed_until_somebody_waits(ended: int) -> None:
    assert ended in proc.children(os.getpid())
    assert ended not in proc.descendants(os.getpid())


def test_a_child_of_a_thread_that_has_ended_is_listed() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "600"])))
    thread.start()
    thread.join()
    (child,) = started
    try:
        assert child.pid in proc.children(os.getpid())
        assert child.pid in proc.descendants(os.getpid())
    finally:
        child.kill()
        child.wait()
    with pytest.raises(FileNotFoundError):
        proc.children(child.pid)


def test_a_child_whose_thread_ends_meanwhile_is_listed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
    may_end = threading.Event()

    def starts_a_child() -> None:
        started.put(subprocess.Popen(["sleep", "600"]))
        may_end.wait()

    def read_and_end_the_thread(file: str) -> io.StringIO:
        text = Path(file).read_text()
        may_end.set()
        until(lambda: not task.exists(), "the thread has ended")
        return io.StringIO(text)

    thread = threading.Thread(target=starts_a_child, daemon=True)
    thread.start()
    task = Path(f"/proc/self/task/{thread.native_id}")
    child = started.get()
    monkeypatch.setattr(proc, "open", read_and_end_the_thread, raising=False)
    try:
        assert proc.children(os.getpid()).count(child.pid) == 1
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("kernel", ["that lists children", "that does not"])
def test_all_below_a_process_are_found(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel == "that does not":
        monkeypatch.setattr(proc, "children", unlisted)
    parent = Process([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    below = int(parent.stdout.readline())
    try:
        assert proc.descendants(parent.pid) == [below]
        assert {parent.pid, below} <= set(proc.descendants(os.getpid()))
        assert proc.descendants(below) == []
    finally:
        os.kill(below, 9)
        parent.communicate()


@in_loop
async def test_a_keeper_that_somebody_has_suspended_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaper.process, "adopt_orphans", lambda: None)  # those of other tests
    keeper = await asyncio.create_subprocess_exec("sleep", "600")
    watch = reaper.Reaper(keeper.pid)
    for _ in range(2):
        keeper.send_signal(signal.SIGSTOP)
        await in_thread(lambda: until(lambda: proc.state(keeper.pid)[0] == "T", "it is suspended"))
        await in_thread(lambda: until(lambda: proc.state(keeper.pid)[0] != "T", "it goes on"))
    watch.close()
    keeper.kill()
    await keeper.wait()


@pytest.mark.parametrize("kernel", ["that lists children", "that does not"])
def test_zombies_are_found(kernel: str, ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel == "that does not":
        monkeypatch.setattr(proc, "children", unlisted)
    zombies = [pid for pid in proc.own_children() if proc.state(pid)[0] == "Z"]
    assert ended in zombies
    assert os.getppid() not in zombies
