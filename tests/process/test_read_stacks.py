"""Stacks of real processes, by py-spy and by the signal; py-spy that may not trace, hangs or prints
nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint.base import supervised
from entrypoint.ranks.stall.reader import read
from entrypoint.system import proc
from tests.cluster import until
from tests.command import captured
from tests.process.bench import Process, executable

SPY = f"{sys.prefix}/bin/py-spy"
PROGRAM = """
import os, sys, threading
def waits():
    print("up", flush=True)
    threading.Event().wait()
def other():
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
if "fork" in sys.argv and os.fork():
    os.wait()
waits()
"""


class Started:
    """A Python that waits, with the folder that lets it print its own stack."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        (folder / "train.py").write_text(PROGRAM)
        path = {"PYTHONPATH": supervised.OWN_STACKS, **env}
        self.process = Process(
            [sys.executable, *words[:1], str(folder / "train.py"), *words[1:]],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **path},
        )
        assert self.process.stdout.readline() == "up\n"

    def read(self, how: str, spy: str | None = None, limit: float = 10.0) -> tuple[list[str], str]:
        frames, why = asyncio.run(read(how, spy, self.process.pid, limit))
        return [frame.function for frame in frames if not frame.library], why


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    program = Started(tmp_path, "-B")
    yield program
    program.process.kill()
    program.process.communicate()


def script(folder: Path, text: str) -> str:
    return str(executable(folder / "py-spy", text))


@pytest.mark.promise("stacks are read without the right to trace processes")
@pytest.mark.parametrize("way", ["auto", "py-spy", "signal"])
def test_the_main_thread_s_stack_is_read(started: Started, way: str) -> None:
    assert started.read(way, SPY) == (["waits", "<module>"], "")
    assert started.read(way, SPY) == (["waits", "<module>"], ""), "and again"
    assert started.process.poll() is None


@pytest.mark.promise("stacks are read without the right to trace processes")
@pytest.mark.parametrize(
    "text",
    [
        "echo 'Error: Permission Denied' >&2; exit 1",
        "exec sleep 600",
        "echo '[{}]'",
        "echo '{'",
        "exec yes",
    ],
)
def test_a_py_spy_that_cannot_read_is_followed_by_the_signal(
    started: Started, tmp_path: Path, text: str
) -> None:
    """Within the limit, of which py-spy has a half."""
    assert started.read("auto", script(tmp_path, text), 4.0) == (["waits", "<module>"], "")


@pytest.mark.control("stacks are read without the right to trace processes")
def test_without_either_way_it_is_said_why(tmp_path: Path) -> None:
    """The control: a Python that ignores PYTHONPATH, and a py-spy that may not trace."""
    program = Started(tmp_path, "-I")
    try:
        denied = script(tmp_path, "echo 'Error: Permission Denied' >&2; exit 1")
        why = "py-spy: Error: Permission Denied; its Python prints no stack on a signal"
        assert program.read("auto", denied) == ([], why)
        missing = "EP617 there is no py-spy on PATH"
        assert program.read("py-spy", None) == ([], missing)
        assert program.read("never", SPY) == ([], "stall.stacks is never")
        assert program.process.poll() is None, "no signal was sent"
    finally:
        program.process.kill()
        program.process.communicate()


def test_a_suspended_process_is_not_waited_for(started: Started) -> None:
    pid = started.process.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: proc.state(pid)[0] == "T", 10, "suspended")
    why = "a suspended process answers no signal"
    assert started.read("signal", None, 600.0)[1].endswith(why)
    os.kill(pid, signal.SIGCONT)
    assert started.read("signal") == (["waits", "<module>"], ""), "nothing was left behind"


def test_a_program_s_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    """And its sys.path is as without ours."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.customized = __name__\n")
    code = "import sys; print(sys.customized, sys.modules['sitecustomize'].__file__, *sys.path[1:])"
    outputs = {
        captured([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True).stdout
        for path in (f"{supervised.OWN_STACKS}:{own}", str(own))
    }  # fmt: skip
    assert len(outputs) == 1, outputs
    assert outputs.pop().startswith(f"sitecustomize {own}/sitecustomize.py")
