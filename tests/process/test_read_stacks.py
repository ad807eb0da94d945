"""Stacks of real processes, by the signal; and processes that it would end, which never get it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base.kept import OWN_STACKS
from entrypoint.ranks.stall.reader import read
from entrypoint.system import proc
from tests.command import captured
from tests.process.bench import Process
from tests.waits import until

PROGRAM = """
import faulthandler, os, signal, sys, threading
def waits():
    print("up", flush=True)
    threading.Event().wait()
def other():
    threading.Event().wait()
if "handler" in sys.argv:
    signal.signal(46, lambda *args: sys.exit(3))
if "none" in sys.argv:
    faulthandler.unregister(46)
if "default" in sys.argv:
    signal.signal(46, signal.SIG_DFL)
threading.Thread(target=other, daemon=True).start()
if "fork" in sys.argv and os.fork():
    os.wait()
waits()
"""


class Started:
    """A Python that waits, with the folder that lets it print its own stack."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        (folder / "train.py").write_text(PROGRAM)
        path = {"PYTHONPATH": OWN_STACKS, **env}
        self.process = Process(
            [sys.executable, *words[:1], str(folder / "train.py"), *words[1:]],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **path},
        )
        assert self.process.stdout.readline() == "up\n"

    def read(self, limit: float = 10.0) -> tuple[list[str], str]:
        frames, why = asyncio.run(read(self.process.pid, limit))
        return [frame.function for frame in frames if not frame.library], why


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    program = Started(tmp_path, "-B")
    yield program
    program.process.kill()
    program.process.communicate()


@pytest.mark.promise("stacks are read without the right to trace processes")
def test_the_main_thread_s_stack_is_read(started: Started) -> None:
    assert started.read() == (["waits", "<module>"], "")
    assert started.read() == (["waits", "<module>"], ""), "and again"
    assert started.process.poll() is None


@pytest.mark.control("stacks are read without the right to trace processes")
@pytest.mark.parametrize("words", [("-I",), ("-I", "handler"), ("-B", "none"), ("-B", "default")])
def test_a_process_without_the_handler_gets_no_signal(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The control: a Python that ignores PYTHONPATH, one that has a handler of its own, and some
    that have given ours up."""
    program = Started(tmp_path, *words)
    try:
        assert program.read() == ([], "its Python prints no stack on a signal (see stall.minutes)")
        time.sleep(0.3)
        assert program.process.poll() is None, "no signal was sent"
    finally:
        program.process.kill()
        program.process.communicate()


def test_a_suspended_process_is_not_waited_for(started: Started) -> None:
    pid = started.process.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: proc.state(pid)[0] == "T", "suspended")
    assert started.read(600.0) == ([], "a suspended process answers no signal")
    os.kill(pid, signal.SIGCONT)
    assert started.read() == (["waits", "<module>"], ""), "nothing was left behind"


def test_a_program_s_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    """And its sys.path is as without ours."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.customized = __name__\n")
    code = "import sys; print(sys.customized, sys.modules['sitecustomize'].__file__, *sys.path[1:])"
    outputs = {
        captured([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True).stdout
        for path in (f"{OWN_STACKS}:{own}", str(own))
    }  # fmt: skip
    assert len(outputs) == 1, outputs
    assert outputs.pop().startswith(f"sitecustomize {own}/sitecustomize.py")
