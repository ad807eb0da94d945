"""Stacks of real processes, by py-spy and by the signal; py-spy that may not trace, hangs or prints
nonsense; and a port that speaks as NCCL's RAS does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrypoint import supervised
from entrypoint.ranks.stall import ras
from entrypoint.ranks.stall.reader import Reader
from entrypoint.system import proc
from tests.cluster import until

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
        self.process = subprocess.Popen(
            [sys.executable, *words[:1], str(folder / "train.py"), *words[1:]],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **path},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def read(self, how: str, spy: str | None = None, limit: float = 10.0) -> tuple[list[str], str]:
        frames, why = asyncio.run(Reader(how, spy).read(self.process.pid, limit))
        return [frame.function for frame in frames if not frame.library], why


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    program = Started(tmp_path, "-B")
    yield program
    program.process.kill()
    program.process.communicate()


def script(folder: Path, text: str) -> str:
    file = folder / "py-spy"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


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
    begun = time.monotonic()
    assert started.read("auto", script(tmp_path, text), 3.0) == (["waits", "<module>"], "")
    assert time.monotonic() - begun < 3.0


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
    begun = time.monotonic()
    assert started.read("signal", None, 10.0)[1].endswith("a suspended process answers no signal")
    assert time.monotonic() - begun < 5.0
    os.kill(pid, signal.SIGCONT)
    assert started.read("signal") == (["waits", "<module>"], ""), "nothing was left behind"


def test_a_program_s_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    """And its sys.path is as without ours."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.customized = __name__\n")
    code = "import sys; print(sys.customized, sys.modules['sitecustomize'].__file__, *sys.path[1:])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, text=True,
            capture_output=True, check=True,
        ).stdout
        for path in (f"{supervised.OWN_STACKS}:{own}", str(own))
    }  # fmt: skip
    assert len(outputs) == 1, outputs
    assert outputs.pop().startswith(f"sitecustomize {own}/sitecustomize.py")


# --------------------------------------------------------------------------------------------------
# NCCL's RAS

STATUS = """NCCL version 2.27.5 compiled with CUDA 12.9

Job summary
===========

  Nodes  Processes         GPUs

Communicators... (0.00s)
=============

Group     Comms
    0         1

Errors
======

#0-0 (a) INCOMPLETE
  Missing communicator data from 1 job process

Warnings
========

#0-0 (a) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 41
  Rank 3 -- GPU 1 managed by process 77 on node 10.0.0.3 has launched up to operation 40
"""
SAID = (
    "NCCL RAS: #0-0 (a) INCOMPLETE",
    "NCCL RAS: Missing communicator data from 1 job process",
    "NCCL RAS: #0-0 (a) MISMATCH",
    "NCCL RAS: Communicator ranks have different collective operation counts",
    "NCCL RAS: 3 ranks have launched up to operation 41",
    "NCCL RAS: Rank 3 -- GPU 1 managed by process 77 on node 10.0.0.3 has launched up to operation"
    " 40",
)


def asked(answer: bytes | None) -> tuple[tuple[str, ...], float]:
    """What is said of a port that answers so, or that accepts and stays silent; and the seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def serve() -> None:
            connection, _ = server.accept()
            held.append(connection)
            if answer is not None and connection.recv(100) == b"verbose status\n":
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        begun = time.monotonic()
        said = asyncio.run(ras.ask(("127.0.0.1", server.getsockname()[1]), 2.0))
        took = time.monotonic() - begun
        thread.join()
        for connection in held:
            connection.close()
    return said, took


def test_what_nccl_says_is_wrong_is_shown() -> None:
    assert asked(STATUS.encode())[0] == SAID


@pytest.mark.parametrize(
    "answer", [b"", b"\xff" * 70_000, b"HTTP/1.1 400 Bad Request\r\n\r\n", None]
)
def test_another_program_at_that_port_says_nothing(answer: bytes | None) -> None:
    said, took = asked(answer)
    assert (said, took < 3.0) == ((), True)


def test_nobody_at_the_port_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
    assert asyncio.run(ras.ask(place, 2.0)) == ()


@pytest.mark.parametrize(
    ("env", "uses_nccl", "place"),
    [
        ({}, True, ("localhost", 28028)),
        ({}, False, None),
        ({"NCCL_RAS_ADDR": "10.0.0.1:99"}, False, ("10.0.0.1", 99)),
        ({"NCCL_RAS_ADDR": "[::1]:99"}, True, ("::1", 99)),
        ({"NCCL_RAS_ADDR": "nonsense"}, True, None),
        ({"NCCL_RAS_ADDR": "a:99999"}, True, None),
        ({"NCCL_RAS_ENABLE": "0"}, True, None),
    ],
)
def test_where_nccl_is_asked(
    env: dict[str, str], uses_nccl: bool, place: tuple[str, int] | None
) -> None:
    assert ras.address(env, uses_nccl) == place


def test_a_long_answer_is_cut() -> None:
    text = "Errors\n======\n" + "".join(f"line {number}\n" for number in range(1000))
    lines = ras.relevant(text)
    assert (len(lines), lines[-1]) == (12, "NCCL RAS: 989 more lines")
